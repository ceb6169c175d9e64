# SPDX-License-Identifier: Apache-2.0
"""A library's interface: several inputs and outputs, aliases, constants, names, sizes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from host_library import HostLibrary
from onnx import TensorProto, helper, numpy_helper

from utvm.compiler import Library, Tensor, compile_model, from_onnx, load
from utvm.compiler.library import from_json, to_json

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
FLOAT = TensorProto.FLOAT


def compile_graph(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, ...]],
    outputs: dict[str, tuple[int, ...]],
    stored: dict[str, np.ndarray[Any, Any]],
) -> Library:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return compile_model(from_onnx(proto.SerializeToString(), "m"))


@pytest.mark.parametrize(("axis", "shape", "copied"), [(1, (1, 4, 3), False), (2, (1, 2, 6), True)])
def test_concatenation_of_adjacent_tensors_has_no_copy(
    axis: int, shape: tuple[int, ...], copied: bool, tmp_path: Path
) -> None:
    library = compile_graph(
        [
            helper.make_node("Sqrt", ["x"], ["a"]),
            helper.make_node("Abs", ["y"], ["b"]),
            helper.make_node("Concat", ["a", "b"], ["joined"], axis=axis),
            helper.make_node("Neg", ["joined"], ["z"]),
        ],
        {"x": (1, 2, 3), "y": (1, 2, 3)},
        {"z": shape},
        {},
    )
    x, y = np.arange(6, dtype=np.float32).reshape(1, 2, 3), -np.ones((1, 2, 3), np.float32)
    (z,) = HostLibrary(library, tmp_path)(x, y)
    np.testing.assert_allclose(z, -np.concatenate([np.sqrt(x), np.abs(y)], axis), rtol=1e-6)
    assert "memcpy" not in library.operators
    assert any("concat" in operator for operator in library.operators) == copied


def test_outputs_may_be_inputs_constants_or_aliases(tmp_path: Path) -> None:
    constant = np.array([5, 6, 7, 8], np.float32)
    library = compile_graph(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Reshape", ["r", "shape"], ["flat"]),
            helper.make_node("Add", ["r", "r"], ["sum"]),
            helper.make_node("Identity", ["x"], ["same"]),
            helper.make_node("Reshape", ["x", "shape"], ["bent"]),
            helper.make_node("Identity", ["k"], ["fixed"]),
            helper.make_node("Identity", ["r"], ["again"]),
        ],
        {"x": (2, 2), "unused": (3,)},
        {"r": (2, 2), "flat": (4,), "sum": (2, 2), "same": (2, 2), "bent": (4,), "fixed": (4,), "again": (2, 2)},
        {"shape": np.array([4]), "k": constant},
    )
    x = np.array([[-1, 2], [3, -4]], np.float32)
    relu = np.maximum(x, 0)
    expected_outputs = [relu, relu.ravel(), relu * 2, x, x.ravel(), constant, relu]
    for output, expected in zip(
        HostLibrary(library, tmp_path)(x, np.ones(3, np.float32)), expected_outputs, strict=True
    ):
        np.testing.assert_array_equal(output, expected)
    assert [tensor.name for tensor in library.inputs] == ["x", "unused"]
    assert [tensor.name for tensor in library.outputs] == ["r", "flat", "sum", "same", "bent", "fixed", "again"]


def test_names_invalid_in_c_are_changed(tmp_path: Path) -> None:
    library = compile_graph(
        [helper.make_node("Mul", ["int", "*/ #error"], ["for\n"])],
        {"int": (2,), "*/ #error": (2,)},
        {"for\n": (2,)},
        {},
    )
    two = np.array([2, 3], np.float32)
    np.testing.assert_array_equal(HostLibrary(library, tmp_path)(two, two)[0], two * two)


def test_digits_library_has_its_sizes() -> None:
    library = compile_model(load(DIGITS))
    assert library.inputs == (Tensor("image", (1, 1, 8, 8), "float32"),)
    assert library.outputs == (Tensor("logits", (1, 10), "float32"),)
    assert library.outputs[0].size_bytes == 40
    assert library.weights_bytes == 6090 * 4
    assert f"#define DIGITS_ARENA_BYTES {library.arena_bytes}\n" in library.sources["digits.h"]
    assert len(library.operators) == 5
    for text in library.sources.values():
        assert "malloc" not in text


@pytest.mark.parametrize("field", ["name", "arenas", "sources"])
def test_digest_covers_all_fields(field: str) -> None:
    library = compile_model(load(DIGITS))
    assert from_json(to_json(library)) == library
    changed = {"name": "other", "arenas": (), "sources": {"digits.h": ""}}[field]
    assert Library(**{**library.__dict__, field: changed}).digest != library.digest


@pytest.mark.slow
def test_damaged_cache_entry_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library = compile_model(load(DIGITS))
    (entry,) = (tmp_path / "utvm" / "libraries").iterdir()
    (entry / "library.json").write_text("{")
    assert compile_model(load(DIGITS)) == library
    assert from_json((entry / "library.json").read_text()) == library
