# SPDX-License-Identifier: Apache-2.0
"""--set signature: runs one of several functions of a TensorFlow Lite file."""

from pathlib import Path

import numpy as np
import pytest

from models.tflite_writer import Builder
from tests.cli.running import inv
from utvm import compiler
from utvm.errors import ConfigError


def _graph(operator: str, size: int) -> Builder:
    builder = Builder()
    for name in ("x", "y"):
        builder.tensor(name, (size,), "float32")
    builder.operator(operator, ["x"], ["y"])
    return builder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three functions: absolute values, negatives and squares."""
    path = tmp_path / "three.tflite"
    others = [(_graph(operator, size), ["x"], ["y"]) for operator, size in (("NEG", 3), ("SQUARE", 4))]
    signatures = ("serving_default", "encode", "decode")
    path.write_bytes(_graph("ABS", 2).finish(["x"], ["y"], others=others, signatures=signatures))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [("", [-1, 2], [1, 2]), ("encode", [-1, 2, 3], [1, -2, -3]), ("decode", [1, -2, 3, 4], [1, 4, 9, 16])],
)
def test_first_or_named_function_runs(
    model: Path, name: str, values: list[float], expected: list[float], tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array(values, np.float32))
    files = ["--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy"]
    setting = ["--set", f"signature={name}"] if name else []
    completed = inv("model.run", model, "--board", "host", *files, *setting)
    assert completed.returncode == 0, completed.stderr
    assert np.load(tmp_path / "y.npy").tolist() == expected


def test_error_about_an_unknown_name_lists_the_known(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"three.tflite: has no signature 'encodes'") as caught:
        compiler.load(model, signature="encodes")
    assert caught.value.hint == "did you mean encode? signatures: serving_default, encode, decode"
    plain = tmp_path / "plain.tflite"
    plain.write_bytes(_graph("ABS", 2).finish(["x"], ["y"]))
    with pytest.raises(ConfigError, match="has no signature 'encode'\n  hint: signatures: none"):
        compiler.load(plain, signature="encode")
