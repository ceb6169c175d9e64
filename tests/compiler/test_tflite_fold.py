# SPDX-License-Identifier: Apache-2.0
"""TFLite models with computed shapes and an open batch."""

from pathlib import Path

import numpy as np
import pytest

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite, load, reference
from utvm.errors import CompileError, ConfigError


def test_range_of_constants_is_folded() -> None:
    builder = Builder()
    builder.tensor("x", (1, 5), "float32")
    for name, number in (("start", 1.5), ("limit", 4.0), ("delta", 0.5)):
        builder.tensor(name, (), "float32", number)
    builder.tensor("r", (5,), "float32")
    builder.tensor("y", (1, 5), "float32")
    builder.operator("RANGE", ["start", "limit", "delta"], ["r"])
    builder.operator("MUL", ["x", "r"], ["y"])
    x = np.arange(5, dtype=np.float32).reshape(1, 5)
    (result,) = reference(from_tflite(builder.finish(["x"], ["y"]), "m"))([x])
    assert result.tolist() == [[0, 2, 5, 9, 14]]


def test_chain_of_shapes_is_folded() -> None:
    """FILL with a computed shape: (rows of x, 2 * columns of x - 1)."""
    builder = Builder()
    builder.tensor("x", (3, 4), "float32")
    constants = {"zero": [0], "one": [1], "two": [2], "both": [2]}
    for name, numbers in constants.items():
        builder.tensor(name, (1,), "int32", numbers)
    builder.tensor("half", (), "float32", 0.5)
    builder.tensor("shape", (2,), "int32")
    for name in ("rows", "columns", "columns2", "width"):
        builder.tensor(name, () if name == "rows" else (1,), "int32")
    builder.tensor("width0", (), "int32")
    builder.tensor("size", (2,), "int32")
    builder.tensor("filled", (3, 7), "float32")
    builder.tensor("axis", (), "int32", 0)
    builder.tensor("summed", (3, 1), "float32")
    builder.tensor("last", (1,), "int32", [1])
    builder.tensor("y", (3, 7), "float32")
    builder.operator("SHAPE", ["x"], ["shape"])
    builder.operator("STRIDED_SLICE", ["shape", "zero", "one", "one"], ["rows"], shrink_axis_mask=1)
    builder.operator("STRIDED_SLICE", ["shape", "one", "two", "one"], ["columns"])
    builder.operator("MUL", ["columns", "both"], ["columns2"])
    builder.operator("SUB", ["columns2", "one"], ["width"])
    builder.operator("REDUCE_PROD", ["width", "zero"], ["width0"])
    builder.operator("PACK", ["rows", "width0"], ["size"], values_count=2)
    builder.operator("FILL", ["size", "half"], ["filled"])
    builder.operator("SUM", ["x", "last"], ["summed"], keep_dims=True)
    builder.operator("ADD", ["filled", "summed"], ["y"])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (result,) = reference(from_tflite(builder.finish(["x"], ["y"]), "m"))([x])
    assert (result == x.sum(1, keepdims=True) + np.full((3, 7), 0.5)).all()


def test_range_from_an_input_is_refused() -> None:
    builder = Builder()
    builder.tensor("x", (), "int32")
    builder.tensor("zero", (), "int32", 0)
    builder.tensor("one", (), "int32", 1)
    builder.tensor("y", (5,), "int32")
    builder.operator("RANGE", ["zero", "x", "one"], ["y"])
    with pytest.raises(CompileError, match=r"operators that are not supported: RANGE \(at y\)"):
        compile_model(from_tflite(builder.finish(["x"], ["y"]), "m"))


def _open_batch(width: int = 4) -> bytes:
    """A model that reshapes rows with an open first dimension, and back."""
    builder = Builder()
    builder.tensor("x", (1, width, 2), "float32", signature=(-1, 4, 2))
    builder.tensor("to", (2,), "int32", [-1, 2])
    builder.tensor("flat", (width, 2), "float32", signature=(-1, 2))
    builder.tensor("w", (3, 2), "float32", [[1, 2], [3, 4], [5, 6]])
    builder.tensor("dense", (width, 3), "float32", signature=(-1, 3))
    builder.tensor("y", (1, width, 3), "float32", signature=(-1, 4, 3))
    builder.tensor("back", (3,), "int32", [-1, 4, 3])
    builder.operator("RESHAPE", ["x", "to"], ["flat"])
    builder.operator("FULLY_CONNECTED", ["flat", "w", None], ["dense"])
    builder.operator("RESHAPE", ["dense", "back"], ["y"])
    return builder.finish(["x"], ["y"])


def test_batch_is_set(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(_open_batch())
    model = load(tmp_path / "m.tflite", shapes={"x": (5, 4, 2)})
    x = np.arange(40, dtype=np.float32).reshape(5, 4, 2)
    (result,) = reference(model)([x])
    assert (result == x @ np.array([[1, 2], [3, 4], [5, 6]], np.float32).T).all()
    assert compile_model(load(tmp_path / "m.tflite", shapes={"x": (1, 4, 2)})).inputs[0].shape == (1, 4, 2)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (5, 4, 3)}, r"input x is \['\?', 4, 2\], which \[5, 4, 3\] does not fit"),
        ({"x": (5, 8)}, "does not fit"),
        ({"image": (5, 4, 2)}, "has no input 'image'\n  hint: inputs: x"),
    ],
)
def test_mismatched_shape_is_refused(shapes: dict[str, tuple[int, ...]], message: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(_open_batch())
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / "m.tflite", shapes=shapes)
