# SPDX-License-Identifier: Apache-2.0
"""TFLite models that cannot be compiled have one clear message each, without TVM."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_tflite
from utvm.errors import CompileError, ConfigError, UtvmError


def chain(operators: Sequence[tuple[str, list[str | None], list[str]]], **tensors: dict[str, Any]) -> bytes:
    """A model from ``x`` to ``y``; tensors are float32 of shape (1, 4) by default."""
    builder = Builder()
    names = {"x", "y", *(name for _, reads, writes in operators for name in [*reads, *writes] if name)}
    for name in sorted(names):
        options = {"shape": (1, 4), "dtype": "float32", **tensors.get(name, {})}
        builder.tensor(name, options.pop("shape"), options.pop("dtype"), options.pop("data", None), **options)
    for operator, reads, writes in operators:
        builder.operator(operator, reads, writes)
    return builder.finish(["x"], ["y"])


RELU: tuple[str, list[str | None], list[str]] = ("RELU", ["x"], ["y"])


def refusal(content: bytes) -> str:
    with pytest.raises(CompileError) as caught:
        from_tflite(content, "bad")
    return str(caught.value)


def test_good_model_is_accepted() -> None:
    assert from_tflite(chain([RELU]), "good").format == "tflite"


def test_unsupported_operators_are_named_with_tensors() -> None:
    text = refusal(
        chain([("Frobnicate", ["x"], ["a"]), ("RELU", ["a"], ["b"]), ("RANK", ["b"], ["c"]), ("LSTM", ["c"], ["y"])])
    )
    assert "operators that are not supported: Frobnicate (at a), RANK (at c), LSTM (at y)" in text


def test_reasons_of_a_file_are_lines() -> None:
    weights = {"shape": (4, 4), "dtype": "uint8", "data": 1, "scale": 0.5}
    operators = [("Frobnicate", ["x"], ["a"]), ("BATCH_MATMUL", ["a", "w"], ["b"]), ("RELU", ["b"], ["y"])]
    first, *lines, hint = refusal(chain(operators, w=weights, b={"dtype": "complex64"})).splitlines()
    assert first.endswith("cannot be compiled, for 3 reasons:")
    assert [line.strip() for line in lines] == [
        "operators that are not supported: Frobnicate (at a)",
        "operators with quantised weights and float activations: BATCH_MATMUL (at b)",
        "tensor 'b': has elements of type complex64, which is not supported",
    ]
    assert "quantise the model fully" in hint and "supported are" in hint


def test_reasons_of_the_importer_are_lines() -> None:
    operators = [("RELU", ["x"], ["a"]), ("TANH", ["x"], ["b"]), ("ABS", ["x"], ["c"]), ("RELU", ["x"], ["y"])]
    wrong = {"a": {"shape": (1, 9)}, "b": {"dtype": "int32"}, "c": {"shape": (3, 3)}}
    with pytest.raises(CompileError) as caught:
        compile_model(from_tflite(chain(operators, **wrong), "bad"))
    first, *lines = caught.value.message.splitlines()
    assert first.endswith("cannot be compiled, for 3 reasons:")
    assert [line.strip().partition(": ")[0] for line in lines] == ["RELU (at a)", "TANH (at b)", "ABS (at c)"]
    assert "makes elements of type float32, but the file declares int32" in lines[1]


def test_quantised_weights_with_float_activations_are_refused() -> None:
    weights = {"shape": (4, 4), "dtype": "uint8", "data": 1, "scale": 0.5}
    text = refusal(chain([("BATCH_MATMUL", ["x", "w"], ["y"])], w=weights))
    assert "quantised weights and float activations: BATCH_MATMUL (at y)" in text


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"shape": (1, 0)}, "input 'x': has no elements: shape (1, 0)"),
        ({"shape": (1 << 20, 1 << 20)}, "tensor 'x': is too large: shape (1048576, 1048576), 4398046511104 bytes"),
        ({"shape": (2, -1)}, "tensor 'x': has a negative dimension: (2, -1)"),
        ({"shape": (1,) * 9}, "tensor 'x': has 9 dimensions; 8 are supported"),
        ({"signature": (1, -1)}, "input 'x': has a dimension without fixed size: (1, -1)"),
        ({"dtype": "float16"}, "tensor 'x': has elements of type float16, which is not supported"),
        ({"dtype": "complex64"}, "tensor 'x': has elements of type complex64, which is not supported"),
        ({"data": 1}, "input 'x': is a constant"),
        ({"dtype": "int8", "scale": float("nan")}, "tensor 'x': has a scale that is not a positive number"),
        ({"dtype": "int8", "scale": 1.0, "zero_point": 200}, "tensor 'x': has a zero point that int8 cannot hold"),
        ({"dtype": "int8", "scale": [1.0, 2.0], "axis": 1}, "has 2 scales along dimension 1 of shape (1, 4)"),
    ],
)
def test_invalid_tensor_is_refused(tensor: dict[str, Any], message: str) -> None:
    assert message in refusal(chain([RELU], x=tensor))


def test_dynamic_batch_is_one() -> None:
    assert from_tflite(chain([RELU], x={"signature": (-1, 4)}), "batch").name == "batch"


def test_cycle_is_named() -> None:
    text = refusal(chain([("ADD", ["x", "b"], ["a"]), ("RELU", ["a"], ["b"]), ("RELU", ["b"], ["y"])]))
    assert "the graph has a cycle through ADD (at a)" in text


def test_operators_out_of_order_are_named() -> None:
    text = refusal(chain([("RELU", ["a"], ["y"]), ("RELU", ["x"], ["a"])]))
    assert "RELU (at y) comes before RELU (at a), whose result it reads" in text


def test_dangling_input_is_named() -> None:
    assert "nothing produces 'nowhere', which RELU (at y) reads" in refusal(chain([("RELU", ["nowhere"], ["y"])]))


def test_dangling_output_is_named() -> None:
    assert "nothing produces the output 'y'" in refusal(chain([("RELU", ["x"], ["a"])]))


def test_tensor_written_twice_is_named() -> None:
    assert "tensor 'y' is written more than once" in refusal(chain([RELU, RELU]))


def test_empty_graph_is_refused() -> None:
    assert "the graph is empty" in refusal(chain([]))


def test_missing_graph_of_call_once_is_named() -> None:
    builder = Builder()
    for name in ("x", "y"):
        builder.tensor(name, (1,), "float32")
    builder.operator("CALL_ONCE", [], [], init_subgraph_index=3)
    builder.operator("RELU", ["x"], ["y"])
    assert "CALL_ONCE calls graph 3 of 1" in refusal(builder.finish(["x"], ["y"]))


@pytest.mark.parametrize("stride", [0, -1, 1 << 20])
def test_stride_out_of_range_is_named(stride: int) -> None:
    builder = Builder()
    builder.tensor("x", (1, 4, 4, 1), "float32")
    builder.tensor("y", (1, 4, 4, 1), "float32")
    builder.operator("MAX_POOL_2D", ["x"], ["y"], stride_w=stride)
    assert f"its stride_w is {stride}, which is out of range" in refusal(builder.finish(["x"], ["y"]))


def test_constant_of_another_size_is_refused() -> None:
    content = chain([("ADD", ["x", "k"], ["y"])], k={"data": np.arange(4)})
    # The constant's vector starts with its length; its first element is 0.0, its second 1.0.
    offset = content.index(np.array([0, 1, 2, 3], np.float32).tobytes()) - 4
    assert content[offset : offset + 4] == (16).to_bytes(4, "little")
    damaged = content[:offset] + (12).to_bytes(4, "little") + content[offset + 4 :]
    assert "tensor 'k': holds 12 bytes where its shape needs 16" in refusal(damaged)


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_truncated_file_is_refused(fraction: float) -> None:
    content = chain([RELU, ("TANH", ["y"], ["z"])])
    with pytest.raises(UtvmError, match="only a part of a file"):
        from_tflite(content[: int(len(content) * fraction)], "bad")


def test_huge_length_is_refused() -> None:
    content = bytearray(chain([RELU]))
    for offset in range(8, len(content) - 4, 4):
        damaged = bytes(content[:offset]) + b"\xff\xff\xff\x7f" + bytes(content[offset + 4 :])
        try:
            from_tflite(damaged, "bad")
        except (CompileError, ConfigError) as error:
            assert error.message.startswith("TFLite model bad: ")
