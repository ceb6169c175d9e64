# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's quantised operators (domain com.microsoft): dequantise, the operator on floats, quantise.

The integer room makes integer operators of that. What they compute is written in ``docs/ContribOperators.md`` of
microsoft/onnxruntime.
"""

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported


def _real(graph: RuleGraph, node: RuleNode, first: int, axis: int = 1) -> str:
    given = filter(None, (node.input(first + place) for place in range(3)))
    return graph.op("DequantizeLinear", *given, opset=13, axis=axis)


def _integer(graph: RuleGraph, node: RuleNode, value: str, scale: int) -> list[str]:
    zero = node.input(scale + 1) or graph.like(0, node.inputs[2 if node.operator == "QLinearConcat" else 0])
    return [graph.op("QuantizeLinear", value, node.inputs[scale], zero, opset=13)]


def _binary(operator: str) -> Rule:
    def rule(graph: RuleGraph, node: RuleNode) -> list[str]:
        return _integer(graph, node, graph.op(operator, _real(graph, node, 0), _real(graph, node, 3)), 6)

    return rule


def _unary(operator: str, *kept: str) -> Rule:
    def rule(graph: RuleGraph, node: RuleNode) -> list[str]:
        if node.attributes.get("channels_last", 0):
            raise Unsupported("channels last is not supported")
        attributes = {key: value for key, value in node.attributes.items() if key in kept}
        return _integer(graph, node, graph.op(operator, _real(graph, node, 0), **attributes), 3)

    return rule


def _concatenation(graph: RuleGraph, node: RuleNode) -> list[str]:
    pieces = [_real(graph, node, first) for first in range(2, len(node.inputs), 3)]
    return _integer(graph, node, graph.op("Concat", *pieces, axis=node.attributes["axis"]), 0)


def _dense(graph: RuleGraph, node: RuleNode) -> list[str]:
    transposed = {key: value for key, value in node.attributes.items() if key in ("transA", "transB", "alpha")}
    names = [_real(graph, node, 0), _real(graph, node, 3, 1 - node.attributes.get("transB", 0))]
    if node.input(6):
        if node.attributes.get("alpha", 1.0) != 1:
            raise Unsupported("alpha beside a bias is not supported")
        sums = graph.op("Mul", node.inputs[1], node.inputs[4])
        names.append(graph.op("DequantizeLinear", node.inputs[6], sums, opset=13, axis=0))
    product = graph.op("Gemm", *names, opset=13, **transposed)
    return _integer(graph, node, product, 7) if node.input(7) else [product]


def _softmax(graph: RuleGraph, node: RuleNode) -> list[str]:
    axis, opset = node.attributes.get("axis", -1), node.attributes.get("opset", 13)
    return _integer(graph, node, graph.op("Softmax", _real(graph, node, 0), opset=opset, axis=axis), 3)


_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

RULES: dict[str, Rule] = {
    "QGemm": _dense,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool", *_WINDOW),
    "QLinearConcat": _concatenation,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
}
