# SPDX-License-Identifier: Apache-2.0
"""A quantised model that is given real numbers: they are quantised, and it answers in real numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tflite

from models.digits import quantize
from models.digits.data import held_out
from models.tflite_reference import tflite_micro
from tests.cli.running import inv

_PICTURE = held_out()[0][:1].transpose(0, 2, 3, 1)
_INTEGERS = quantize.quantized_images(held_out()[0][:1])


def _run(tmp_path: Path, given: Path, *words: str) -> tuple[int, str, npt.NDArray[Any] | None]:
    output = tmp_path / "y.npy"
    done = inv(
        "model.run", "--model", quantize.MODEL, "--board=host", "--input", given, "--output", output, *words
    )
    return done.returncode, done.stdout + done.stderr, np.load(output) if done.returncode == 0 else None


def _output_quantity() -> tuple[float, int]:
    """What the file says of its output."""
    graph = tflite.Model.GetRootAs(quantize.MODEL.read_bytes(), 0).Subgraphs(0)
    said = graph.Tensors(graph.Outputs(0)).Quantization()
    return said.Scale(0), said.ZeroPoint(0)


def test_real_numbers_in_real_numbers_out_and_integers_as_they_are(tmp_path: Path) -> None:
    (expected,) = tflite_micro(quantize.MODEL.read_bytes(), [[_INTEGERS]])[0]
    np.save(tmp_path / "real.npy", _PICTURE)
    np.save(tmp_path / "integers.npy", _INTEGERS)
    np.savetxt(tmp_path / "real.csv", _PICTURE.reshape(8, 8), delimiter=",")
    np.savetxt(tmp_path / "integers.csv", _INTEGERS.reshape(1, 64), delimiter=",", fmt="%d")
    digests = set()
    for name, words in (("integers.npy", []), ("integers.csv", ["--raw"]), ("real.npy", []), ("real.csv", [])):
        code, said, output = _run(tmp_path, tmp_path / name, *words)
        assert code == 0, said
        assert output is not None
        digests.add(next(line for line in said.splitlines() if line.startswith("outputs_sha256")))
        if name.startswith("integers"):
            assert output.dtype == np.int8
            assert output.tobytes() == expected.tobytes()
        else:
            assert output.dtype == np.float32
            scale, zero = _output_quantity()
            assert np.allclose(output, scale * (expected.astype(np.float64) - zero), rtol=1e-6)
    assert len(digests) == 1  # the board's own


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("1,2\n", [], "the file has 2 numbers"),
        ("1,two\n", [], "is not rows of numbers"),
        (",".join(["0.5"] * 64), ["--raw"], "is int8, and the file has numbers that are not"),
        (",".join(["nan"] * 64), [], "no finite number"),
    ],
)
def test_what_cannot_be_an_input_is_refused(tmp_path: Path, text: str, words: list[str], said: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    code, printed, _ = _run(tmp_path, tmp_path / "x.csv", *words)
    assert code == 2
    assert said in printed
