# SPDX-License-Identifier: Apache-2.0
"""Normalisations in forms that the importer does not support."""

import math

import numpy as np

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported, window_table


def _layer_norm(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value = node.inputs[0]
    shape = graph.shape(value)
    first = node.attributes.get("axis", -1) % len(shape)
    spread = any(graph.shape(value) != shape[first:] for value in node.inputs[1:] if value)
    if not (spread or node.wants(1) or node.wants(2)):
        return None
    axes = list(range(first, len(shape)))
    mean = graph.op("ReduceMean", value, graph.constant(axes, np.int64), keepdims=1)
    centred = graph.op("Sub", value, mean)
    variance = graph.op("ReduceMean", graph.op("Mul", centred, centred), graph.constant(axes, np.int64), keepdims=1)
    epsilon = graph.like(node.attributes.get("epsilon", 1e-5), value)
    deviation = graph.op("Reciprocal", graph.op("Sqrt", graph.op("Add", variance, epsilon)))
    result = graph.op("Mul", graph.op("Mul", centred, deviation), node.inputs[1])
    return [graph.op("Add", result, node.input(2)) if node.input(2) else result, mean, deviation][: len(node.outputs)]


def _response_norm(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value, size = node.inputs[0], node.attributes["size"]
    shape = graph.shape(value)
    if size % 2 and len(shape) == 4:
        return None
    channels = np.arange(shape[1])
    ahead = channels[None, :] - channels[:, None]
    near = (ahead >= -((size - 1) // 2)) & (ahead <= size // 2)
    summed = graph.multiply(graph.op("Mul", value, value), 1, near.astype(np.float64))
    scaled = graph.op("Mul", summed, graph.like(node.attributes.get("alpha", 1e-4) / size, value))
    whole = graph.op("Add", scaled, graph.like(node.attributes.get("bias", 1.0), value))
    return [graph.op("Div", value, graph.op("Pow", whole, graph.like(node.attributes.get("beta", 0.75), value)))]


def _rms_norm(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    axis = node.attributes.get("axis", -1) % len(graph.shape(node.inputs[0]))
    return graph.body_of(node) if axis == 0 else None


def _batch_norm(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if node.opset < 7 and not node.attributes.get("is_test", 0) and any(map(node.wants, range(1, 5))):
        raise Unsupported("training mode of an operator set before 7 is not supported")
    if not node.attributes.get("training_mode", 0):
        if any(map(node.wants, range(1, 5))):
            raise Unsupported("running means and variances belong to training mode")
        return None
    value, scale, bias, mean, variance = node.inputs
    rank = len(graph.shape(value))
    axes = graph.constant([axis for axis in range(rank) if axis != 1], np.int64)
    current_mean = graph.op("ReduceMean", value, axes, keepdims=1)
    centred = graph.op("Sub", value, current_mean)
    spread = graph.op("ReduceMean", graph.op("Mul", centred, centred), axes, keepdims=1)
    epsilon = graph.like(node.attributes.get("epsilon", 1e-5), value)
    deviation = graph.op("Sqrt", graph.op("Add", spread, epsilon))
    channels = (1, -1, *[1] * (rank - 2))
    scaled = graph.op("Mul", graph.op("Div", centred, deviation), graph.reshape(scale, channels))
    momentum = node.attributes.get("momentum", 0.9)

    def running(before: str, now: str) -> str:
        settings = graph.op("Mul", before, graph.like(momentum, before))
        new = graph.cast(graph.reshape(now, graph.shape(before)), graph.dtype(before))
        return graph.op("Add", settings, graph.op("Mul", new, graph.like(1 - momentum, before)))

    result = graph.op("Add", scaled, graph.reshape(bias, channels))
    return [result, running(mean, current_mean), running(variance, spread)]


def _lp_norm(graph: RuleGraph, node: RuleNode) -> list[str]:
    value, axis = node.inputs[0], node.attributes.get("axis", -1)
    power = node.attributes.get("p", 2)
    length = graph.op(f"ReduceL{power}", value, graph.constant([axis], np.int64), keepdims=1)
    zero = graph.like(0, value)
    nothing = graph.op("Equal", length, zero)
    divided = graph.op("Div", value, graph.op("Where", nothing, graph.like(1, value), length))
    return [divided]


def _pool(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value = node.inputs[0]
    shape = graph.shape(value)
    if not node.wants(1):
        return _pad(graph, node)
    windows = _windows(graph, node, shape[2:])
    cells = math.prod(shape[2:])
    flat = graph.reshape(value, (*shape[:2], cells))
    # One extra element, not greater than any other, represents the padding.
    kind = graph.dtype(value)
    lowest = -np.inf if kind.kind == "f" else np.iinfo(kind).min
    padding = graph.constant(np.full((*shape[:2], 1), lowest), kind)
    table, extents = windows
    whole = graph.op("Concat", flat, padding, axis=2)
    gathered = graph.op("Gather", whole, graph.constant(np.where(table < 0, cells, table)), axis=2)
    best = graph.op("ReduceMax", gathered, graph.constant([3], np.int64), keepdims=0)
    # Take the first of equal elements, never the padding.
    which = graph.op("ArgMax", gathered, axis=3, keepdims=1)
    numbers = table
    if node.attributes.get("storage_order", 0):
        at = np.unravel_index(np.maximum(table, 0), shape[2:])
        numbers = np.where(table < 0, -1, np.ravel_multi_index(at, shape[2:], order="F").astype(np.int64))
    every = graph.constant(np.broadcast_to(numbers, (*shape[:2], *numbers.shape)).copy())
    places = graph.op("GatherElements", every, which, axis=3)
    first = np.arange(math.prod(shape[:2])).reshape(*shape[:2], 1) * cells
    places = graph.op("Add", graph.reshape(places, (*shape[:2], len(table))), graph.constant(first, np.int64))
    result = (*shape[:2], *extents)
    return [graph.reshape(best, result), graph.reshape(places, result)]


def _pad(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if not node.attributes.get("auto_pad", "NOTSET").startswith("SAME"):
        return None
    settings = {key: value for key, value in node.attributes.items() if key != "auto_pad"}
    pads = _pads(graph, node, graph.shape(node.inputs[0])[2:])
    return [graph.raw_op(node.operator, node.inputs[0], opset=node.opset, **{**settings, "pads": pads})]


def _pads(graph: RuleGraph, node: RuleNode, shape: tuple[int, ...]) -> list[int]:
    rank = len(shape)
    automatic = node.attributes.get("auto_pad", "NOTSET")
    if not automatic.startswith("SAME"):
        return list(node.attributes.get("pads", [0] * 2 * rank))
    kernel, ones = node.attributes["kernel_shape"], [1] * rank
    dilations, strides = (node.attributes.get(item, ones) for item in ("dilations", "strides"))
    total = [
        max((count - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        for count, stride, size, dilation, extent in zip(
            graph.shape(node.outputs[0])[2:], strides, kernel, dilations, shape, strict=True
        )
    ]
    before = [item // 2 if automatic == "SAME_UPPER" else item - item // 2 for item in total]
    return [*before, *(item - first for item, first in zip(total, before, strict=True))]


def _windows(graph: RuleGraph, node: RuleNode, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    rank = len(shape)
    kernel = node.attributes["kernel_shape"]
    strides = node.attributes.get("strides", [1] * rank)
    dilations = node.attributes.get("dilations", [1] * rank)
    extents = graph.shape(node.outputs[0])[2:]
    begins = _pads(graph, node, shape)[:rank]
    places = [
        np.arange(count)[:, None] * stride - begin + np.arange(size) * dilation
        for count, stride, begin, size, dilation in zip(extents, strides, begins, kernel, dilations, strict=True)
    ]
    return window_table(places, shape), extents


RULES: dict[str, Rule] = {
    "AveragePool": _pad,
    "BatchNormalization": _batch_norm,
    "LRN": _response_norm,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "LpPool": _pad,
    "MaxPool": _pool,
    "RMSNormalization": _rms_norm,
}
