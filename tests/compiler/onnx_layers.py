# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of layers: convolutions, pools, normalisations, recurrent and attention layers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx_computed import Drawing, axes_of
from onnx_draw import Draw


def windows(draw: Draw, extents: Sequence[int], kernel: Sequence[int], dilates: bool = True) -> dict[str, Any]:
    """Draw strides, dilations and padding of a window that fits."""
    rank = len(kernel)
    changes: dict[str, Any] = {"strides": [draw.integer(1, 3) for _ in kernel] if draw.chance() else None}
    dilations = [1] * rank
    if dilates and draw.chance(3):
        dilations = [draw.integer(1, 2) for _ in kernel]
        changes["dilations"] = dilations
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    automatic = draw.pick("", "", "", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if automatic:
        changes["auto_pad"] = automatic
    if automatic.startswith("SAME"):
        # If a stride skips elements, padding would have to be negative, and readers differ.
        changes["strides"] = [
            min(stride, size) for stride, size in zip(changes["strides"] or [1] * rank, reach, strict=True)
        ]
    if automatic in ("", "NOTSET") and (draw.chance() or any(a > b for a, b in zip(reach, extents, strict=True))):
        pads = [[draw.integer(0, size_of_kernel - 1) for size_of_kernel in kernel] for _ in range(2)]
        for axis, (need, have) in enumerate(zip(reach, extents, strict=True)):
            pads[0][axis] += max(0, need - have - pads[0][axis] - pads[1][axis])
        changes["pads"] = [*pads[0], *pads[1]]
    return changes


def extents_of(draw: Draw) -> tuple[tuple[int, ...], list[int]]:
    """Extents of an image of one to three dimensions, and of a window in it."""
    rank = draw.pick(1, 2, 2, 2, 3)
    limit = 9 if rank < 3 else 5
    extents = tuple(draw.integer(3, limit) for _ in range(rank))
    return extents, [draw.integer(1, min(4 if rank < 3 else 3, extent)) for extent in extents]


def _fits(extents: Sequence[int], kernel: Sequence[int], changes: dict[str, Any]) -> bool:
    dilations, pads = changes.get("dilations", [1] * len(kernel)), changes.get("pads", [0] * 2 * len(kernel))
    return all(
        (window - 1) * dilation + 1 <= extent + pads[axis] + pads[axis + len(kernel)]
        for axis, (extent, window, dilation) in enumerate(zip(extents, kernel, dilations, strict=True))
    )


def fitting(draw: Draw, extents: Sequence[int], kernel: Sequence[int], dilates: bool = True) -> dict[str, Any]:
    """Draw a window until it fits with the drawn padding."""
    changes = windows(draw, extents, kernel, dilates)
    while not _fits(extents, kernel, changes):
        changes = windows(draw, extents, kernel, dilates)
    return changes


def draw_convolution(draw: Draw) -> None:
    extents, kernel = extents_of(draw)
    groups = draw.pick(1, 1, 1, 2, 3)
    inside, outside = draw.integer(1, 3), draw.integer(1, 3)
    if draw.chance(5):
        inside = 1
    data = draw.array((draw.integer(1, 2), groups * inside, *extents))
    names = [draw.input(data), draw.either(draw.array((groups * outside, inside, *kernel)), 2)]
    names.append(draw.either(draw.array((groups * outside,)), 2) if draw.chance() else "")
    changes = fitting(draw, extents, kernel)
    group = groups if groups > 1 or draw.chance(3) else None
    draw.output(*draw.node("Conv", names, kernel_shape=draw.pick(None, kernel), group=group, **changes))


def draw_transposed_convolution(draw: Draw) -> None:
    extents, kernel = extents_of(draw)
    groups = draw.pick(1, 1, 1, 2, 3)
    inside, outside = draw.integer(1, 3), draw.integer(1, 3)
    data = draw.array((draw.integer(1, 2), groups * inside, *extents))
    names = [draw.input(data), draw.either(draw.array((groups * inside, outside, *kernel)), 2)]
    names.append(draw.either(draw.array((groups * outside,)), 2) if draw.chance() else "")
    strides = [draw.integer(1, 3) for _ in kernel]
    dilations = [draw.integer(1, 2) if draw.chance(3) else 1 for _ in kernel]
    added = [
        draw.integer(0, max(stride, dilation) - 1) if draw.chance(3) else 0
        for stride, dilation in zip(strides, dilations, strict=True)
    ]
    changes: dict[str, Any] = {}
    padding_kind = draw.integer(0, 4)
    if padding_kind == 0:
        changes["auto_pad"] = draw.pick("VALID", "NOTSET", "SAME_UPPER", "SAME_LOWER")
    elif padding_kind == 1:
        changes["output_shape"] = [
            stride * (extent - 1) + (size - 1) * dilation + 1 - draw.integer(0, 1)
            for stride, extent, size, dilation in zip(strides, extents, kernel, dilations, strict=True)
        ]
        changes["auto_pad"] = draw.pick(None, "SAME_UPPER", "SAME_LOWER")
    elif padding_kind > 2:
        changes["pads"] = [draw.integer(0, (size - 1) // 2) for _ in range(2) for size in kernel]
    if padding_kind != 1 and any(added):
        changes["output_padding"] = added
    draw.output(
        *draw.node(
            "ConvTranspose",
            names,
            kernel_shape=draw.pick(None, kernel),
            strides=strides,
            dilations=dilations if max(dilations) > 1 else None,
            group=groups if groups > 1 else None,
            **changes,
        )
    )


def limit_padding(changes: dict[str, Any], kernel: Sequence[int], dilations: Sequence[int]) -> None:
    """Keep padding smaller than the window, as some readers require."""
    if "pads" in changes:
        changes["pads"] = [min(pad, kernel[axis % len(kernel)] - 1) for axis, pad in enumerate(changes["pads"])]


def pooling(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        extents, kernel = extents_of(draw)
        dtype = draw.dtype_for(operator)
        since = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[operator]
        changes = fitting(draw, extents, kernel, draw.opset >= since)
        limit_padding(changes, kernel, changes.get("dilations", kernel))
        if not _fits(extents, kernel, changes):
            return pooling(operator)(draw)
        if operator == "LpPool":
            changes["p"] = draw.pick(None, 1, 2, 3)
        if operator == "AveragePool":
            changes["count_include_pad"] = draw.pick(None, 0, 1)
        if draw.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[operator] and "auto_pad" not in changes:
            changes["ceil_mode"] = draw.pick(None, None, 0, 1)
        data = draw.array((draw.integer(1, 2), draw.integer(1, 3), *extents), dtype)
        count = 2 if operator == "MaxPool" and draw.opset >= 8 and draw.chance(3) else 1
        if count == 2:
            changes["storage_order"] = draw.pick(None, 0, 1)
            draw.misread = str(changes.get("auto_pad", "")).startswith("SAME")
        draw.output(*draw.node(operator, [draw.input(data)], count, kernel_shape=kernel, **changes))
        return None

    return drawing


def global_pooling(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        extents, _ = extents_of(draw)
        data = draw.array((draw.integer(1, 2), draw.integer(1, 3), *extents))
        changes = {"p": draw.pick(None, 1, 2, 3)} if operator == "GlobalLpPool" else {}
        draw.output(*draw.node(operator, [draw.input(data)], **changes))

    return drawing


def draw_batch_normalisation(draw: Draw) -> None:
    data = draw.array((draw.integer(1, 2), draw.integer(1, 4), *draw.shape(draw.integer(0, 3), 4)))
    draw.misread = draw.opset < 14  # The evaluator computes the batch's mean for these versions.
    rows = [draw.array((data.shape[1],)) for _ in range(3)]
    names = [
        draw.input(data),
        *(draw.either(row, 2) for row in (*rows, np.abs(draw.array((data.shape[1],))) + np.float32(0.1))),
    ]
    draw.output(*draw.node("BatchNormalization", names, epsilon=draw.pick(None, 1e-3), momentum=draw.pick(None, 0.5)))


def draw_instance_normalisation(draw: Draw) -> None:
    data = draw.array((draw.integer(1, 2), draw.integer(1, 4), *draw.shape(draw.integer(1, 3), 5)))
    rows = [draw.either(draw.array((data.shape[1],)), 2) for _ in range(2)]
    draw.output(*draw.node("InstanceNormalization", [draw.input(data), *rows], epsilon=draw.pick(None, 1e-2)))


def draw_layer_normalisation(draw: Draw) -> None:
    data = draw.array(draw.extents(1))
    axis = draw.integer(-data.ndim, data.ndim - 1)
    shape = data.shape[axis % data.ndim :]
    shape = draw.pick(shape, shape, shape[-1:])
    names = [
        draw.input(data),
        draw.either(draw.array(shape), 2),
        draw.either(draw.array(shape)) if draw.chance() else "",
    ]
    count = draw.pick(1, 1, 3)
    draw.output(*draw.node("LayerNormalization", names, count, axis=axis, epsilon=draw.pick(None, 1e-2)))


def draw_group_normalisation(draw: Draw) -> None:
    groups = draw.integer(1, 3)
    data = draw.array((draw.integer(1, 2), groups * draw.integer(1, 3), *draw.shape(draw.integer(1, 2), 4)))
    size = groups if draw.opset < 21 else data.shape[1]
    rows = [draw.either(draw.array((size,)), 2) for _ in range(2)]
    draw.output(
        *draw.node("GroupNormalization", [draw.input(data), *rows], num_groups=groups, epsilon=draw.pick(None, 1e-2))
    )


def draw_rms_normalisation(draw: Draw) -> None:
    data = draw.array(draw.extents(1))
    axis = draw.integer(-data.ndim, data.ndim - 1)
    scale = draw.either(draw.array(data.shape[axis % data.ndim :]), 2)
    draw.output(*draw.node("RMSNormalization", [draw.input(data), scale], axis=axis, epsilon=draw.pick(None, 1e-2)))


def draw_lrn(draw: Draw) -> None:
    data = draw.array((draw.integer(1, 2), draw.integer(1, 7), *draw.shape(draw.integer(1, 2), 4)))
    numbers = {"alpha": draw.pick(None, 0.3), "beta": draw.pick(None, 0.5), "bias": draw.pick(None, 2.0)}
    draw.misread = data.shape[0] != data.shape[1]  # The evaluator exchanges the two.
    draw.output(*draw.node("LRN", [draw.input(data)], size=draw.integer(1, 5), **numbers))


def draw_lp_normalisation(draw: Draw) -> None:
    data = draw.array(draw.extents(1)) + np.float32(0.1)
    axis = draw.pick(None, draw.integer(-data.ndim, data.ndim - 1))
    power = draw.pick(None, 1, 2)
    draw.misread = power == 1  # The evaluator does not take absolute values.
    draw.output(*draw.node("LpNormalization", [draw.input(data)], axis=axis, p=power))


def draw_mean_variance_normalisation(draw: Draw) -> None:
    data = draw.array(draw.shape(4, 4))
    axes = draw.pick(None, axes_of(draw, 4, 1))
    draw.output(*draw.node("MeanVarianceNormalization", [draw.input(data)], axes=axes))


_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(operator: str) -> Drawing:
    def drawing(draw: Draw) -> None:
        gates = _GATES[operator]
        steps, batch, size, hidden = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 4)
        direction = draw.pick("forward", "reverse", "bidirectional")
        directions = 2 if direction == "bidirectional" else 1
        layout = draw.integer(0, 1) if draw.opset >= 14 and draw.chance(4) else 0
        data = draw.array((batch, steps, size) if layout else (steps, batch, size))
        state = (batch, directions, hidden) if layout else (directions, batch, hidden)
        small = np.float32(0.3)
        names = [draw.input(data)]
        names += [draw.constant(draw.array((directions, gates * hidden, width)) * small) for width in (size, hidden)]
        names.append(draw.maybe(draw.array((directions, 2 * gates * hidden)) * small))
        names.append(
            draw.constant(draw.random.integers(1, steps + 1, batch).astype(np.int32)) if draw.chance(4) else ""
        )
        names.append(draw.either(draw.array(state)) if draw.chance() else "")
        if operator == "LSTM":
            names.append(draw.either(draw.array(state)) if draw.chance() else "")
            names.append(draw.constant(draw.array((directions, 3 * hidden)) * small) if draw.chance(3) else "")
        changes: dict[str, Any] = {
            "direction": direction if directions == 2 or direction == "reverse" or draw.chance() else None
        }
        changes["layout"] = layout if layout else None
        curves = {"RNN": 1, "GRU": 2, "LSTM": 3}[operator] * directions
        if draw.chance(4):
            changes["activations"] = [draw.pick("Relu", "Tanh", "Sigmoid") for _ in range(curves)]
        if draw.chance(6) and not (operator == "LSTM" and names[6]):
            # ONNX's text and its runtime differ on clipping the cell's state before it is read.
            changes["clip"] = 0.8
        if operator == "GRU":
            changes["linear_before_reset"] = draw.pick(None, 0, 1)
        if operator == "LSTM" and draw.chance(8):
            changes["input_forget"] = 1
        # The evaluator supports neither of them, nor a batch in the first dimension.
        draw.misread = bool(names[4] or layout or {"clip", "activations", "input_forget"} & changes.keys())
        outputs = draw.node(
            operator, names, draw.integer(1, 3 if operator == "LSTM" else 2), hidden_size=hidden, **changes
        )
        draw.output(*outputs)

    return drawing


def draw_attention(draw: Draw) -> None:
    batch, heads, size = draw.integer(1, 2), draw.integer(1, 3), 2 * draw.integer(1, 2)
    shared = draw.pick(1, 1, 2)
    queries, keys = draw.integer(1, 4), draw.integer(1, 4)
    shapes = [(batch, heads * shared, queries, size), (batch, heads, keys, size), (batch, heads, keys, size)]
    changes: dict[str, Any] = {
        "is_causal": draw.pick(None, 0, 1),
        "scale": draw.pick(None, 0.3),
        "softcap": draw.pick(None, 0.9),
    }
    if draw.chance(3):
        shapes = [(batch, shape[2], shape[1] * size) for shape in shapes]
        changes |= {"q_num_heads": heads * shared, "kv_num_heads": heads}
    names = [draw.input(draw.array(input_shape)) for input_shape in shapes]
    if draw.chance(3):
        names.append(draw.either(draw.array((queries, keys), draw.pick("float32", "bool"))))
    draw.output(*draw.node("Attention", names, **changes))


def draw_rotary_embedding(draw: Draw) -> None:
    batch, heads, steps, size = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 4), 2 * draw.integer(1, 3)
    tables = [draw.array((batch, steps, size // 2)) for _ in range(2)]
    names = [draw.input(draw.array((batch, heads, steps, size))), *(draw.either(table) for table in tables)]
    draw.output(*draw.node("RotaryEmbedding", names, interleaved=draw.pick(None, 0, 1)))


LAYERS: dict[str, Drawing] = {
    **{operator: pooling(operator) for operator in ("AveragePool", "LpPool", "MaxPool")},
    **{operator: global_pooling(operator) for operator in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")},
    **{operator: recurrent(operator) for operator in ("GRU", "LSTM", "RNN")},
    "Attention": draw_attention,
    "BatchNormalization": draw_batch_normalisation,
    "Conv": draw_convolution,
    "ConvTranspose": draw_transposed_convolution,
    "GroupNormalization": draw_group_normalisation,
    "InstanceNormalization": draw_instance_normalisation,
    "LRN": draw_lrn,
    "LayerNormalization": draw_layer_normalisation,
    "LpNormalization": draw_lp_normalisation,
    "MeanVarianceNormalization": draw_mean_variance_normalisation,
    "RMSNormalization": draw_rms_normalisation,
    "RotaryEmbedding": draw_rotary_embedding,
}
