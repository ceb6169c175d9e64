# SPDX-License-Identifier: Apache-2.0
"""A quantised model that is given real numbers: they are quantised, and it answers in real numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
import tflite
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from models.digits import quantize
from models.digits.data import held_out
from models.tflite_reference import tflite_micro
from tests.cli.running import inv

_PICTURE = held_out()[0][:1].transpose(0, 2, 3, 1)
_INTEGERS = quantize.quantized_images(held_out()[0][:1])


def _run(tmp_path: Path, given: Path, *words: str) -> tuple[int, str, npt.NDArray[Any] | None]:
    output = tmp_path / "y.npy"
    done = inv("model.run", "--model", quantize.MODEL, "--board=host", "--input", given, "--output", output, *words)
    return done.returncode, done.stdout + done.stderr, np.load(output) if done.returncode == 0 else None


def _output_quantity() -> tuple[float, int]:
    """What the file says of its output."""
    graph = tflite.Model.GetRootAs(quantize.MODEL.read_bytes(), 0).Subgraphs(0)
    said = graph.Tensors(graph.Outputs(0)).Quantization()
    return said.Scale(0), said.ZeroPoint(0)


def test_real_inputs_and_outputs_and_plain_integers(tmp_path: Path) -> None:
    (expected,) = tflite_micro(quantize.MODEL.read_bytes(), [[_INTEGERS]])[0]
    np.save(tmp_path / "real.npy", _PICTURE)
    np.save(tmp_path / "integers.npy", _INTEGERS)
    np.savetxt(tmp_path / "real.csv", _PICTURE.reshape(8, 8), delimiter=",")
    digests = set()
    for name in ("integers.npy", "real.npy", "real.csv"):
        code, said, output = _run(tmp_path, tmp_path / name)
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


def _of_integers() -> onnx.ModelProto:
    """An ONNX model that takes int8, gives half of it, and says by its nodes what the integers mean."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.INT8, (1, 4)) for name in "xy"]
    constants = {"s": 0.5, "t": 0.25, "half": 0.5}
    stored = [numpy_helper.from_array(np.array(each, np.float32), name) for name, each in constants.items()]
    zeros = [numpy_helper.from_array(np.array(each, np.int8), name) for name, each in {"z": -3, "o": 7}.items()]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node("Mul", ["real", "half"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "t", "o"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:], [*stored, *zeros])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_onnx_outer_nodes_define_integer_meaning(name: str, tmp_path: Path) -> None:
    model, given, output = tmp_path / "m.onnx", tmp_path / name, tmp_path / "y.npy"
    onnx.save(_of_integers(), model)
    reals = np.array([[-4, 0.5, 1, 30]], np.float32)
    np.save(given, reals) if name.endswith("npy") else np.savetxt(given, reals, delimiter=",")
    done = inv("model.run", "--model", model, "--board=host", "--input", given, "--output", output)
    assert done.returncode == 0, done.stdout + done.stderr
    np.testing.assert_array_equal(np.load(output), np.array([[-2, 0.25, 0.5, 15]], np.float32))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2\n", "the file has 2 numbers"),
        ("1,two\n", "is not rows of numbers"),
        (",".join(["nan"] * 64), "NaN or infinite"),
    ],
)
def test_what_cannot_be_an_input_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    code, printed, _ = _run(tmp_path, tmp_path / "x.csv")
    assert code == 2
    assert said in printed


def test_a_picture_is_an_input_and_a_folder_of_them_samples(tmp_path: Path) -> None:
    """Held-out digits, as pictures: ink is as much as the model has learned it."""
    bytes_ = np.rint(held_out()[0][:3, 0] / held_out()[0].max() * 255).astype(np.uint8)
    said = tflite.Model.GetRootAs(quantize.MODEL.read_bytes(), 0).Subgraphs(0)
    quantity = said.Tensors(said.Inputs(0)).Quantization()
    reals = bytes_[:, np.newaxis, :, :, np.newaxis] / 255 * held_out()[0].max()
    integers = np.clip(np.rint(reals / quantity.Scale(0)) + quantity.ZeroPoint(0), -128, 127).astype(np.int8)
    answers = [outputs[0] for outputs in tflite_micro(quantize.MODEL.read_bytes(), [[each] for each in integers])]
    for number, pixels in enumerate(bytes_):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    scale = f"--set=scale=0..{held_out()[0].max():g}"
    code, printed, output = _run(tmp_path, tmp_path / "1.png", scale)
    assert code == 0, printed
    assert output is not None
    factor, zero = _output_quantity()
    assert np.allclose(output, factor * (answers[1].astype(np.float64) - zero), rtol=1e-6)
    done = inv("model.eval", quantize.MODEL, "--board=host", "--inputs", tmp_path, scale, "--json", tmp_path / "e.json")
    assert done.returncode == 0, done.stderr
    samples = json.loads((tmp_path / "e.json").read_text())["samples"]
    assert [each["prediction"] for each in samples] == [int(answer.argmax()) for answer in answers]


def test_a_scale_is_for_pictures_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", _PICTURE)
    code, printed, _ = _run(tmp_path, tmp_path / "x.npy", "--set=scale=0..1")
    assert code == 2
    assert "--set scale is for pictures" in printed
