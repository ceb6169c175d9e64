# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements: by constant tables if possible, by checked indices otherwise."""

import math

import numpy as np

from utvm.compiler.frontend.rewrite.graph import Rule, RuleGraph, RuleNode, Unsupported, window_table


def _one_hot(graph: RuleGraph, node: RuleNode) -> list[str]:
    indices, depth, values = node.inputs
    count = int(graph.require(depth, "its depth").reshape(-1)[0])
    shape = graph.shape(indices)
    axis = node.attributes.get("axis", -1) % (len(shape) + 1)
    form = [1] * (len(shape) + 1)
    form[axis] = count
    spread = graph.op("Unsqueeze", indices, graph.constant([axis], np.int64))
    numbers = np.arange(count).reshape(form)
    kind = graph.dtype(indices)
    hot = graph.op("Equal", spread, graph.constant(numbers, kind))
    if kind.kind != "u":
        # Numbers from -depth to -1 count from the end; others out of range select nothing.
        hot = graph.op("Or", hot, graph.op("Equal", spread, graph.constant(numbers - count, kind)))
    off, on = (graph.reshape(graph.slice(values, 0, item, item + 1), ()) for item in (0, 1))
    return [graph.op("Where", hot, on, off)]


def _reverse_sequence(graph: RuleGraph, node: RuleNode) -> list[str]:
    value = node.inputs[0]
    time, batch = node.attributes.get("time_axis", 0), node.attributes.get("batch_axis", 1)
    lengths = graph.require(node.inputs[1], "its sequence lengths").reshape(-1)
    shape = graph.shape(value)
    steps = np.arange(shape[time])
    places = np.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    form = [1] * len(shape)
    form[time], form[batch] = shape[time], shape[batch]
    table = (places if batch < time else places.T).reshape(form)
    return [_pick(graph, value, table, time)]


def _pick(graph: RuleGraph, value: str, table: np.ndarray, axis: int) -> str:
    shape = list(graph.shape(value))
    shape[axis] = table.shape[axis]
    flat = np.broadcast_to(table, shape)
    grid = list(np.indices(shape))
    grid[axis] = flat
    numbers = np.ravel_multi_index(grid, graph.shape(value))
    return graph.op("Gather", graph.reshape(value, (-1,)), graph.constant(numbers, np.int64), axis=0)


def _compress(graph: RuleGraph, node: RuleNode) -> list[str]:
    positions = np.flatnonzero(graph.require(node.inputs[1], "its condition"))
    if not positions.size:
        raise Unsupported("a result without elements is not supported")
    axis = node.attributes.get("axis")
    value = graph.reshape(node.inputs[0], (-1,)) if axis is None else node.inputs[0]
    return [graph.op("Gather", value, graph.constant(positions, np.int64), axis=axis or 0)]


def _space_to_depth(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if node.attributes.get("mode", "DCR") != "CRD":
        return None
    size = node.attributes["blocksize"]
    batch, channels, height, width = graph.shape(node.inputs[0])
    cut = graph.reshape(node.inputs[0], (batch, channels, height // size, size, width // size, size))
    moved = graph.op("Transpose", cut, perm=[0, 1, 3, 5, 2, 4])
    return [graph.reshape(moved, (batch, channels * size * size, height // size, width // size))]


def _column_to_image(graph: RuleGraph, node: RuleNode) -> list[str]:
    """Sum the columns: each element of the image is a sum of a fixed set of them."""
    image = [int(item) for item in graph.require(node.inputs[1], "its image shape")]
    block = [int(item) for item in graph.require(node.inputs[2], "its block shape")]
    rank = len(image)
    strides = node.attributes.get("strides", [1] * rank)
    dilations = node.attributes.get("dilations", [1] * rank)
    pads = node.attributes.get("pads", [0] * 2 * rank)
    batch, rows, columns = graph.shape(node.inputs[0])
    channels = rows // math.prod(block)
    places = []
    for axis in range(rank):
        reach = dilations[axis] * (block[axis] - 1) + 1
        count = (image[axis] + pads[axis] + pads[rank + axis] - reach) // strides[axis] + 1
        places.append(np.arange(block[axis])[:, None] * dilations[axis] + np.arange(count) * strides[axis] - pads[axis])
    goes = window_table(places, image).ravel()
    cells = math.prod(image)
    sources: list[list[int]] = [[] for _ in range(cells)]
    for source, cell in enumerate(goes):
        if cell >= 0:
            sources[cell].append(source)
    most = max(1, *map(len, sources))
    size = math.prod(block) * columns
    table = np.array([source + [size] * (most - len(source)) for source in sources])
    flat = graph.reshape(node.inputs[0], (batch, channels, size))
    padding = graph.constant(np.zeros((batch, channels, 1)), graph.dtype(flat))
    whole = graph.op("Concat", flat, padding, axis=2)
    picked = graph.op("Gather", whole, graph.constant(table, np.int64), axis=2)
    summed = graph.op("ReduceSum", picked, graph.constant([3], np.int64), keepdims=0)
    return [graph.reshape(summed, (batch, channels, *image))]


def _transposed_convolution(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    wished = node.attributes.get("output_shape")
    if not wished:
        return None
    shape, weights = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    rank = len(shape) - 2
    strides = node.attributes.get("strides", [1] * rank)
    dilations = node.attributes.get("dilations", [1] * rank)
    extra = node.attributes.get("output_padding", [0] * rank)
    begins, ends, extras = [], [], []
    for axis, extent in enumerate(wished[-rank:]):
        reach = (weights[2 + axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (shape[2 + axis] - 1) + extra[axis] + reach - extent
        # Elements beyond the sums are padding of the result.
        extras.append(extra[axis] + max(0, -total))
        total = max(0, total)
        upper = node.attributes.get("auto_pad", "NOTSET") == "SAME_UPPER"
        first = total // 2 if upper else total - total // 2
        begins.append(first)
        ends.append(total - first)
    settings = {key: value for key, value in node.attributes.items() if key in ("dilations", "group", "strides")}
    settings |= {"pads": [*begins, *ends], "output_padding": extras, "kernel_shape": list(weights[2:])}
    return [graph.op("ConvTranspose", *node.inputs, opset=11, **settings)]


def _tensor_scatter(graph: RuleGraph, node: RuleNode) -> list[str]:
    cache, update = node.inputs[:2]
    shape, extents = graph.shape(cache), graph.shape(update)
    axis = node.attributes.get("axis", -2) % len(shape)
    steps = np.arange(extents[axis])
    form = [1] * len(shape)
    form[axis] = len(steps)
    begin = node.input(2) or graph.constant(np.zeros(shape[0]), np.int64)
    begins = graph.reshape(begin, (shape[0], *[1] * (len(shape) - 1)))
    places = graph.op("Add", begins, graph.constant(steps.reshape(form), np.int64))
    if node.attributes.get("mode", "linear") == "circular":
        places = graph.op("Mod", places, graph.constant(shape[axis], np.int64))
    spread = graph.op("Expand", places, graph.constant(extents, np.int64))
    return [graph.op("ScatterElements", cache, spread, update, axis=axis)]


def _roi_align(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if node.attributes.get("mode", "avg") == "max":
        raise Unsupported("the mode max is not supported")
    scale = node.attributes.get("spatial_scale", 1.0)
    middle = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    if scale == 1 or node.attributes.get("coordinate_transformation_mode", middle) != "half_pixel":
        return None
    # The importer subtracts half an element before scaling the corners, ONNX afterwards.
    corners = graph.op("Add", node.inputs[1], graph.like(0.5 - 0.5 / scale, node.inputs[1]))
    attributes = {**node.attributes, "coordinate_transformation_mode": "half_pixel"}
    return [graph.raw_op("RoiAlign", node.inputs[0], corners, node.inputs[2], opset=16, **attributes)]


def _pad(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    value, number = node.inputs[0], node.input(2)
    if node.attributes.get("mode", "constant") != "constant" or not number or graph.value(number) is not None:
        return None
    ones = graph.constant(np.ones(graph.shape(value), np.int32))
    rest = (node.inputs[1], "", node.input(3))
    inside = graph.cast(graph.op("Pad", ones, *rest, opset=node.opset), np.bool_)
    padded = graph.op("Pad", value, *rest, opset=node.opset)
    return [graph.op("Where", inside, padded, graph.reshape(number, ()))]


def _slice(graph: RuleGraph, node: RuleNode) -> list[str] | None:
    if node.opset >= 10:
        return None
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    axes = node.attributes.get("axes", range(len(starts)))
    bounds = (graph.constant(list(item), np.int64) for item in (starts, ends, axes))
    return [graph.op("Slice", node.inputs[0], *bounds)]


def _dynamic(what: str) -> Rule:
    def refuse(graph: RuleGraph, node: RuleNode) -> list[str] | None:
        raise Unsupported(f"{what}, so that its shape is known only while the model runs")

    return refuse


RULES: dict[str, Rule] = {
    # TVM's converter of this name is for com.microsoft's operator.
    "Attention": RuleGraph.body_of,
    "Col2Im": _column_to_image,
    "Compress": _compress,
    "ConvTranspose": _transposed_convolution,
    "NonMaxSuppression": _dynamic("the number of its boxes depends on the data"),
    "NonZero": _dynamic("the size of its result depends on the data"),
    "OneHot": _one_hot,
    "Pad": _pad,
    "ReverseSequence": _reverse_sequence,
    "RoiAlign": _roi_align,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "TensorScatter": _tensor_scatter,
    "Unique": _dynamic("the number of its unique elements depends on the data"),
}
