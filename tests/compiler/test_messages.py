# SPDX-License-Identifier: Apache-2.0
"""Refusals of mutated models are in this project's words and name the node or tensor."""

import re

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from test_fuzz import altered, damaged, few

from utvm.compiler import from_onnx
from utvm.compiler.build import build_library
from utvm.errors import UtvmError

FOREIGN = re.compile(
    r"tvm|\bTIR|relax\.|topi|\bT\.|check failed|InferenceError|op_type|\bField\b|gcc|Traceback|has no attribute"
    r"|0x[0-9a-f]{5}|std::|protobuf|C printer|intrinsic|DataType|GraphProto|ir_version:",
    re.IGNORECASE,
)
LOCATED = re.compile(
    r"UTF-8"
    r"|node '|constant '|input '|output '|tensor '|two nodes|\(at |operator set|IR version|ONNX file|the graph"
)


def _refusal(content: bytes) -> str:
    """Message of a refusal; empty if the model compiles."""
    try:
        build_library(from_onnx(content, "mutated"), "mutated")
    except UtvmError as error:
        return error.message
    return ""


def _check(content: bytes) -> None:
    message = _refusal(content)
    if message:
        assert not FOREIGN.search(message), message
        assert message.startswith("ONNX model mutated"), message
        assert LOCATED.search(message), message


@pytest.mark.slow
@few
@given(st.one_of(damaged("small"), altered()))
def test_refusal_names_a_location_in_own_words(content: bytes) -> None:
    _check(content)


@pytest.mark.nightly
@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(damaged("small"), damaged("digits"), altered()))
def test_refusals_name_locations_at_length(content: bytes) -> None:
    _check(content)


def _value(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [helper.make_node("Relu", ["x"], ["h"], name="first"), helper.make_node("MatMul", ["h", "h"], ["y"])],
            r"node 'y' \(MatMul\): does not take float32\[2, 3\], float32\[2, 3\]",
        ),
        ([helper.make_node("Relu", ["x", "x"], ["y"])], r"node 'y' \(Relu\): does not have the inputs, outputs"),
        ([helper.make_node("Relu", ["x"], ["y"], slope=2)], r"node 'y' \(Relu\): does not have the inputs, outputs"),
        ([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])], "two nodes produce 'y'"),
        ([helper.make_node("Concat", ["x", "x"], ["y"], axis=5)], r"node 'y' \(Concat\): does not take float32"),
    ],
)
def test_broken_rule_names_node_and_tensors(nodes: list[onnx.NodeProto], reason: str) -> None:
    graph = helper.make_graph(nodes, "g", [_value("x", [2, 3])], [_value("y", [2, 3])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    assert re.search(reason, _refusal(proto.SerializeToString()))


def test_input_without_a_type_is_named() -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [_value("x", [2])], [_value("y", [2])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    proto.graph.input[0].ClearField("type")
    assert "input 'x': is not a tensor" in _refusal(proto.SerializeToString())
    proto.graph.input[0].CopyFrom(_value("x", [2]))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert _refusal(proto.SerializeToString()) == ""
