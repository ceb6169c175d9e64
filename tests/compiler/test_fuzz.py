# SPDX-License-Identifier: Apache-2.0
"""Damaged ONNX files raise only errors of this project."""

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utvm.compiler import from_onnx
from utvm.compiler.build import build_library
from utvm.errors import UtvmError

DIGITS = (Path(__file__).parents[2] / "models" / "digits" / "digits.onnx").read_bytes()


def small_model() -> bytes:
    """A valid model of 1 kB, so that damage is in its structure and not in its weights."""
    helper = onnx.helper
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3], group=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["c", "shape"], ["d"]),
        helper.make_node("Gemm", ["d", "v"], ["e"], transB=1, alpha=0.5),
        helper.make_node("Transpose", ["e"], ["f"], perm=[1, 0]),
        helper.make_node("Concat", ["f", "f"], ["g"], axis=1),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    stored = {"w": np.ones((2, 1, 3, 3), np.float32), "v": np.ones((3, 8), np.float32), "shape": np.array([1, 8])}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 2])],
        [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


SMALL = small_model()


def compile_or_refuse(content: bytes) -> None:
    with contextlib.suppress(UtvmError):
        build_library(from_onnx(content, "damaged"), "damaged")


def test_undamaged_models_compile() -> None:
    for content in (SMALL, DIGITS):
        assert build_library(from_onnx(content, "whole"), "whole").operators


MODELS = {"small": SMALL, "digits": DIGITS}


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """Change, remove, repeat or insert bytes at some offsets."""
    result = bytearray(MODELS[name])
    for _ in range(draw(st.integers(1, 4))):
        if not result:
            break
        offset = draw(st.integers(0, len(result) - 1))
        length = draw(st.integers(1, 8))
        match draw(st.sampled_from(["flip", "set", "remove", "repeat", "insert", "cut"])):
            case "flip":
                result[offset] ^= 1 << draw(st.integers(0, 7))
            case "set":
                result[offset] = draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
            case "remove":
                del result[offset : offset + length]
            case "repeat":
                result[offset:offset] = result[offset : offset + length]
            case "insert":
                result[offset:offset] = draw(st.binary(min_size=1, max_size=length))
            case "cut":
                del result[max(offset, 1) :]
    return bytes(result)


ENDS = st.sampled_from([-(1 << 63), -2, -1, 0, 1, 2, 3, 5, 7, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1])


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """Change numbers and names in a well-formed model: shapes, attributes, constants, edges."""
    proto = onnx.load_from_string(SMALL)
    graph = proto.graph
    names = [name for node in graph.node for name in (*node.input, *node.output)]
    for _ in range(draw(st.integers(1, 3))):
        node = draw(st.sampled_from(list(graph.node)))
        match draw(st.sampled_from(["attribute", "edge", "operator", "shape", "constant", "type", "opset"])):
            case "attribute" if node.attribute:
                attribute = draw(st.sampled_from(list(node.attribute)))
                if attribute.ints:
                    attribute.ints[draw(st.integers(0, len(attribute.ints) - 1))] = draw(ENDS)
                else:
                    attribute.i = draw(ENDS)
            case "edge" if node.input:
                node.input[draw(st.integers(0, len(node.input) - 1))] = draw(st.sampled_from(names))
            case "operator":
                node.op_type = draw(st.sampled_from(sorted({item.name for item in onnx.defs.get_all_schemas()})))
            case "shape":
                shape = draw(st.sampled_from([graph.input[0], graph.output[0]])).type.tensor_type.shape
                shape.dim[draw(st.integers(0, len(shape.dim) - 1))].dim_value = draw(ENDS)
            case "constant":
                numbers = draw(st.lists(ENDS, min_size=1, max_size=4))
                stored = onnx.numpy_helper.from_array(np.array(numbers), "shape")
                graph.initializer[2].CopyFrom(stored)
            case "type":
                graph.input[0].type.tensor_type.elem_type = draw(st.integers(0, 24))
            case "opset":
                proto.opset_import[0].version = draw(st.integers(0, 30))
    content: bytes = proto.SerializeToString()
    return content


few = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
many = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@few
@given(damaged("small"))
def test_damaged_bytes_are_refused(content: bytes) -> None:
    compile_or_refuse(content)


@pytest.mark.slow
@few
@given(altered())
def test_altered_models_are_refused(content: bytes) -> None:
    compile_or_refuse(content)


@pytest.mark.nightly
@many
@given(st.one_of(damaged("small"), damaged("digits"), altered()))
def test_damage_is_refused_at_length(content: bytes) -> None:
    compile_or_refuse(content)
