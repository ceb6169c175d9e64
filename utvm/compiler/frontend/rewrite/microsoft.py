# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's quantised operators (domain com.microsoft): dequantise, the operator on floats, quantise.

The integer room makes integer operators of that. What they compute is written in ``docs/ContribOperators.md`` of
microsoft/onnxruntime.
"""

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported


def _real(graph: RuleGraph, node: RuleNode, first: int) -> str:
    """Dequantise the tensor whose scale and zero point are the two inputs behind it."""
    return graph.op("DequantizeLinear", *filter(None, (node.input(first + each) for each in range(3))), opset=13)


def _integer(graph: RuleGraph, node: RuleNode, value: str, scale: int) -> list[str]:
    """Quantise a result, by a scale and the zero point behind it."""
    if not node.input(scale + 1):
        raise Unsupported("a result without a zero point is not supported")
    return [graph.op("QuantizeLinear", value, node.inputs[scale], node.inputs[scale + 1], opset=13)]


def _binary(operator: str) -> Rule:
    def rule(graph: RuleGraph, node: RuleNode) -> list[str]:
        return _integer(graph, node, graph.op(operator, _real(graph, node, 0), _real(graph, node, 3)), 6)

    return rule


def _unary(operator: str, *kept: str) -> Rule:
    """Make the rule of an operator of one tensor, of whose attributes some are the float operator's."""

    def rule(graph: RuleGraph, node: RuleNode) -> list[str]:
        if node.attributes.get("channels_last", 0):
            raise Unsupported("channels last is not supported")
        attributes = {key: value for key, value in node.attributes.items() if key in kept}
        return _integer(graph, node, graph.op(operator, _real(graph, node, 0), **attributes), 3)

    return rule


def _concatenation(graph: RuleGraph, node: RuleNode) -> list[str]:
    pieces = [_real(graph, node, first) for first in range(2, len(node.inputs), 3)]
    return _integer(graph, node, graph.op("Concat", *pieces, axis=node.attributes["axis"]), 0)


_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

RULES: dict[str, Rule] = {
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool", *_WINDOW),
    "QLinearConcat": _concatenation,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax", "axis"),
}
