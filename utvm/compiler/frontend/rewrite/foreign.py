# SPDX-License-Identifier: Apache-2.0
"""ai.onnx.ml (trees, level by level) and com.microsoft (``docs/ContribOperators.md`` of onnxruntime)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported

Array = npt.NDArray[Any]

_COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}
_LEAF = "LEAF"


@dataclass(frozen=True)
class _Forest:
    """Trees as tables over their nodes, leaves first; ``numbers`` maps the file's (tree, node) to an index."""

    numbers: dict[tuple[int, int], int]
    roots: Array
    leaves: int
    depth: int
    comparison: str
    features: Array
    thresholds: Array
    when_true: Array
    when_false: Array


def _forest(node: RuleNode) -> _Forest:
    columns = [
        list(node.attributes.get(f"nodes_{name}", ()))
        for name in ("treeids", "nodeids", "featureids", "values", "truenodeids", "falsenodeids")
    ]
    modes = list(node.attributes.get("nodes_modes", ()))
    if not modes or any(len(column) != len(modes) for column in columns):
        raise Unsupported("its trees are incomplete, or in double precision")
    if any(node.attributes.get("nodes_missing_value_tracks_true", ())):
        raise Unsupported("a branch of its own for missing values is not supported")
    kinds = set(modes) - {_LEAF}
    if len(kinds) > 1 or not kinds <= _COMPARISONS.keys():
        raise Unsupported(f"branches of the kinds {', '.join(sorted(kinds))} are not supported")
    keys = list(zip(columns[0], columns[1], strict=True))
    order = sorted(range(len(keys)), key=lambda place: modes[place] != _LEAF)
    numbers = {keys[place]: number for number, place in enumerate(order)}
    tables = np.zeros((4, len(keys)), np.float64)
    for number, place in enumerate(order):
        tree, _ = keys[place]
        branch = modes[place] != _LEAF
        onward = [numbers.get((tree, columns[side][place]), -1) if branch else number for side in (4, 5)]
        if -1 in onward or len(numbers) != len(keys):
            raise Unsupported("its trees are not whole")
        feature, threshold = (columns[side][place] if branch else 0 for side in (2, 3))
        tables[:, number] = (feature, threshold, *onward)
    features, thresholds, when_true, when_false = tables
    whole = [item.astype(np.int64) for item in (features, when_true, when_false)]
    leaves = sum(mode == _LEAF for mode in modes)
    inner = {int(item) for side in whole[1:] for item in side[leaves:]}
    roots = [numbers[key] for key in keys if numbers[key] not in inner]
    if len(roots) != len(set(columns[0])):
        raise Unsupported("its trees have no roots, or several")
    comparison = _COMPARISONS[kinds.pop()] if kinds else "LessOrEqual"
    return _Forest(
        numbers, np.array(roots), leaves, _depth(roots, whole[1], whole[2], leaves), comparison, whole[0],
        thresholds.astype(np.float32), whole[1], whole[2],
    )  # fmt: skip


def _depth(roots: Sequence[int], when_true: Array, when_false: Array, leaves: int) -> int:
    level, depth = {number for number in roots if number >= leaves}, 0
    while level:
        depth += 1
        if depth > len(when_true):
            raise Unsupported("its trees have cycles")
        onward = {int(side[number]) for number in level for side in (when_true, when_false)}
        level = {number for number in onward if number >= leaves}
    return depth


def _rows(graph: RuleGraph, value: str) -> str:
    if len(graph.shape(value)) != 2:
        raise Unsupported("an input that is not rows of features is not supported")
    if graph.dtype(value) == np.float64:
        raise Unsupported("an input of double precision is not supported: convert with FloatTensorType")
    return graph.cast(value, np.float32)


def _leaf_weights(node: RuleNode, forest: _Forest, kind: str, count: int) -> Array:
    weights = np.zeros((forest.leaves, count), np.float64)
    parts = [node.attributes.get(f"{kind}_{name}", ()) for name in ("treeids", "nodeids", "ids", "weights")]
    if len({len(part) for part in parts}) != 1 or not len(parts[0]):
        raise Unsupported("its leaves are incomplete, or in double precision")
    for tree, own, result, weight in zip(*parts, strict=True):
        number = forest.numbers.get((tree, own), forest.leaves)
        if number >= forest.leaves or not 0 <= result < count:
            raise Unsupported("its leaves are not whole")
        weights[number, result] += weight
    return weights.astype(np.float32)


def _walk(graph: RuleGraph, node: RuleNode, forest: _Forest, weights: Array, base: Sequence[float]) -> str:
    rows = _rows(graph, node.inputs[0])
    count, width = graph.shape(rows)
    if int(forest.features.max()) >= width:
        raise Unsupported(f"it uses feature {int(forest.features.max())} of {width}")
    small = np.int16 if len(forest.features) < 1 << 15 and width < 1 << 15 else np.int32
    tables = [graph.constant(item, small) for item in (forest.features, forest.when_true, forest.when_false)]
    thresholds = graph.constant(forest.thresholds)
    place = graph.constant(np.broadcast_to(forest.roots, (count, len(forest.roots))), np.int32)
    for _ in range(forest.depth):
        modes_of = graph.cast(graph.op("Gather", tables[0], place), np.int32)
        value = graph.op("GatherElements", rows, modes_of, axis=1)
        matches = graph.op(forest.comparison, value, graph.op("Gather", thresholds, place))
        onward = [graph.op("Gather", table, place) for table in tables[1:]]
        place = graph.cast(graph.op("Where", matches, *onward), np.int32)
    leaves = graph.op("Gather", graph.constant(weights), place)
    total = graph.op("ReduceSum", leaves, graph.constant([1], np.int64), keepdims=0)
    if not len(base):
        return total
    if len(base) != weights.shape[1]:
        raise Unsupported(f"{len(base)} base values for {weights.shape[1]} results are not supported")
    return graph.op("Add", total, graph.constant(base, np.float32))


def _transform(graph: RuleGraph, node: RuleNode, scores: str) -> str:
    transform = node.attributes.get("post_transform", "NONE")
    if transform == "SOFTMAX":
        return graph.op("Softmax", scores, axis=1)
    if transform == "LOGISTIC":
        return graph.op("Sigmoid", scores)
    if transform != "NONE":
        raise Unsupported(f"the transformation {transform} is not supported")
    return scores


def _labels(node: RuleNode, name: str) -> Array:
    labels = node.attributes.get(name, ())
    if not len(labels):
        raise Unsupported("labels that are strings are not supported: train on numbers")
    return np.array(labels, np.int64)


def _tree_regressor(graph: RuleGraph, node: RuleNode) -> list[str]:
    forest, count = _forest(node), int(node.attributes.get("n_targets", 1))
    aggregate = node.attributes.get("aggregate_function", "SUM")
    if aggregate not in ("SUM", "AVERAGE"):
        raise Unsupported(f"the aggregate function {aggregate} is not supported")
    weights = _leaf_weights(node, forest, "target", count)
    if aggregate == "AVERAGE":
        weights = weights / np.float32(len(forest.roots))
    total = _walk(graph, node, forest, weights, node.attributes.get("base_values", ()))
    return [_transform(graph, node, total)]


def _tree_classifier(graph: RuleGraph, node: RuleNode) -> list[str]:
    forest, labels = _forest(node), _labels(node, "classlabels_int64s")
    base = node.attributes.get("base_values", ())
    ids = sorted(set(node.attributes.get("class_ids", ())))
    weights = _leaf_weights(node, forest, "class", len(labels))
    if len(labels) == 2 and len(ids) == 1:
        scores = _walk(graph, node, forest, weights[:, ids[0] : ids[0] + 1], base)
        return _two_classes(graph, node, scores, labels, bool(np.all(weights >= 0)))
    if len(labels) == len(base) == 2:
        # ONNX's own evaluator adds both; onnxruntime adds the second and negates it for the first.
        raise Unsupported("base values of both of two classes are not supported")
    scores = _walk(graph, node, forest, weights, base)
    return [_best(graph, scores, labels), _transform(graph, node, scores)]


def _two_classes(graph: RuleGraph, node: RuleNode, score: str, labels: Array, shares: bool) -> list[str]:
    """Return label and scores of two classes if the trees have scores for one only."""
    transform = node.attributes.get("post_transform", "NONE")
    if transform not in ("NONE", "LOGISTIC"):
        raise Unsupported(f"the transformation {transform} of one score is not supported")
    if shares:
        other = graph.op("Sub", graph.constant([1], np.float32), score)
        pair = graph.op("Concat", other, score, axis=1)
    else:
        pair = graph.op("Concat", graph.op("Neg", score), score, axis=1)
        pair = graph.op("Sigmoid", pair) if transform == "LOGISTIC" else pair
    second_class = graph.op("Greater", score, graph.constant([0.5 if shares else 0.0], np.float32))
    label = graph.op("Where", second_class, *(graph.constant([label], np.int64) for label in labels[::-1]))
    return [graph.reshape(label, (graph.shape(score)[0],)), pair]


def _best(graph: RuleGraph, scores: str, labels: Array) -> str:
    best = graph.op("ArgMax", scores, axis=1, keepdims=0)
    return best if labels.tolist() == list(range(len(labels))) else graph.op("Gather", graph.constant(labels), best)


def _product(graph: RuleGraph, node: RuleNode, count: int) -> str:
    rows = _rows(graph, node.inputs[0])
    width = graph.shape(rows)[1]
    coefficients = np.array(node.attributes["coefficients"], np.float32)
    intercepts = np.array(node.attributes.get("intercepts", ()), np.float32)
    if coefficients.size != count * width or intercepts.size not in (0, count):
        raise Unsupported(f"{coefficients.size} coefficients for {width} features and {count} results")
    product = graph.op("MatMul", rows, graph.constant(coefficients.reshape(count, width).T))
    return graph.op("Add", product, graph.constant(intercepts)) if intercepts.size else product


def _linear_classifier(graph: RuleGraph, node: RuleNode) -> list[str]:
    labels = _labels(node, "classlabels_ints")
    scores = _product(graph, node, len(labels))
    return [_best(graph, scores, labels), _transform(graph, node, scores)]


def _scaler(graph: RuleGraph, node: RuleNode) -> list[str]:
    rows = _rows(graph, node.inputs[0])
    offset, scale = (graph.constant(node.attributes[name], np.float32) for name in ("offset", "scale"))
    return [graph.op("Mul", graph.op("Sub", rows, offset), scale)]


def _normalizer(graph: RuleGraph, node: RuleNode) -> list[str]:
    rows, norm = _rows(graph, node.inputs[0]), node.attributes.get("norm", "MAX")
    # For MAX, some divide by the largest value and others by the largest magnitude.
    operators = {"L1": "ReduceL1", "L2": "ReduceL2"}
    if norm not in operators:
        raise Unsupported(f"the norm {norm} is not supported")
    size = graph.op(operators[norm], rows, graph.constant([1], np.int64), keepdims=1)
    empty = graph.op("Equal", size, graph.constant([0], np.float32))
    return [graph.op("Div", rows, graph.op("Where", empty, graph.constant([1], np.float32), size))]


LEARNED: dict[str, Rule] = {
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": lambda graph, node: [
        _transform(graph, node, _product(graph, node, int(node.attributes.get("targets", 1))))
    ],
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
}


def _real(graph: RuleGraph, node: RuleNode, first: int, axis: int = 1) -> str:
    operands = filter(None, (node.input(first + place) for place in range(3)))
    return graph.op("DequantizeLinear", *operands, opset=13, axis=axis)


def _integer(graph: RuleGraph, node: RuleNode, value: str, scale: int) -> list[str]:
    zero = node.input(scale + 1) or graph.like(0, node.inputs[2 if node.operator == "QLinearConcat" else 0])
    return [graph.op("QuantizeLinear", value, node.inputs[scale], zero, opset=13)]


def _binary(operator: str) -> Rule:
    def rule(graph: RuleGraph, node: RuleNode) -> list[str]:
        return _integer(graph, node, graph.op(operator, _real(graph, node, 0), _real(graph, node, 3)), 6)

    return rule


def _unary(operator: str, *names: str) -> Rule:
    def rule(graph: RuleGraph, node: RuleNode) -> list[str]:
        if node.attributes.get("channels_last", 0):
            raise Unsupported("channels last is not supported")
        attributes = {key: value for key, value in node.attributes.items() if key in names}
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

MICROSOFT_RULES: dict[str, Rule] = {
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
