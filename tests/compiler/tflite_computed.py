# SPDX-License-Identifier: Apache-2.0
"""Random layers that compute: elementwise, sums of products, windows, reductions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tflite_draw import QUANTISED, Draw, Layer, Shape, Spec, int32


def draw_unary(draw: Draw, *, same: bool = False, rank: int = 0, **options: Any) -> Layer:
    data = draw.tensor(draw.shape(rank or draw.integer(1, 4)))
    result = draw.tensor(data.shape)
    if same:
        result = draw.like(data, data.shape)
    elif result.scale:
        result = replace(result, scale=data.scale * draw.random.uniform(0.3, 5.0))
    return Layer([data], [result], options)


def fixed_quantisation(scale8: float, zero8: int, **options: Any) -> Callable[[Draw], Layer]:
    def layer(draw: Draw) -> Layer:
        data = draw.tensor(draw.shape(draw.integer(1, 3), 9))
        return Layer([data], [draw.fixed(data, scale8, zero8)], options)

    return layer


def draw_softmax(draw: Draw, *, wide: bool = False) -> Layer:
    data = draw.tensor(draw.shape(draw.integer(1, 3), 9))
    result = draw.fixed(data, 1 / 256, -128)
    if wide:
        result = replace(result, dtype="int16", zero=-32768, scale=1 / 65536)
    return Layer([data], [result], {"beta": draw.pick(1.0, 1.0, 0.3, 2.0)})


def draw_positive(draw: Draw) -> Layer:
    """A layer with non-negative inputs, for roots."""
    data = draw.tensor(draw.shape(draw.integer(1, 3)))
    if data.scale:
        data = replace(data, zero=QUANTISED[data.dtype][0] if data.dtype != "int16" else 0)
    result = draw.tensor(data.shape)
    return Layer([data], [result])


def broadcast_pair(draw: Draw) -> tuple[Shape, Shape, Shape]:
    """Two shapes that broadcast, and the result's shape."""
    result = draw.shape(draw.integer(1, 4))
    kind = draw.integer(0, 4)
    if kind <= 1:
        return result, result, result
    other = tuple(1 if draw.integer(0, 1) else extent for extent in result)
    if kind == 2:
        other = other[draw.integer(0, len(other) - 1) :]
    pair = (result, other) if draw.integer(0, 1) else (other, result)
    return *pair, tuple(np.broadcast_shapes(*pair))


def draw_binary(draw: Draw, *, activation: bool = True, same: bool = False, result: str = "") -> Layer:
    a, b, result_shape = broadcast_pair(draw)
    first, second, out = draw.tensor(a), draw.tensor(b), draw.tensor(result_shape)
    if same:
        second, out = draw.like(first, b), draw.like(first, result_shape)
    if draw.integer(0, 3) == 0:
        second = replace(second, data=draw.values(b))
    if result:
        out = Spec(result_shape, result)
    kinds = ("NONE", "NONE", "RELU", "RELU6") if draw.dtype in ("float32", *QUANTISED) else ("NONE",)
    options = {"fused_activation_function": draw.pick(*kinds)} if activation else {}
    return Layer([first, second], [out], options)


def draw_scaled_binary(draw: Draw) -> Layer:
    layer = draw_binary(draw)
    first, second = layer.inputs
    (out,) = layer.outputs
    if out.scale and first is not None and second is not None:
        # As in a converter: the result's range is about that of the operands.
        out = replace(out, scale=max(first.scale, second.scale) * draw.random.uniform(0.5, 2.2))
    return Layer([first, second], [out], layer.options)


def draw_product(draw: Draw) -> Layer:
    layer = draw_binary(draw)
    first, second = layer.inputs
    (out,) = layer.outputs
    if out.scale and first is not None and second is not None:
        size = 127 if out.dtype != "int16" else 32767
        out = replace(out, scale=first.scale * second.scale * size * draw.random.uniform(0.2, 1.2))
    return Layer([first, second], [out], layer.options)


def draw_divide(draw: Draw) -> Layer:
    layer = draw_binary(draw)
    first, second = layer.inputs
    (out,) = layer.outputs
    assert second is not None
    data = draw.random.integers(1, 40, second.shape) * draw.random.choice([-1, 1], second.shape)
    if second.scale:
        low, high = QUANTISED[second.dtype]
        second = replace(second, zero=(low + high + 1) // 2)
        data = data + second.zero
        # For smaller quotients, the reference kernel shifts by more than the width of a number.
        assert first is not None
        out = replace(out, scale=first.scale / second.scale / draw.random.uniform(33, 60))
    if draw.dtype == "float32":
        data = data / 8
    return Layer([first, replace(second, data=data)], [out], layer.options)


def draw_integer_divide(draw: Draw) -> Layer:
    layer = draw_binary(draw, activation=False)
    first, second = layer.inputs
    assert second is not None
    data = draw.random.integers(1, 9, second.shape) * draw.random.choice([-1, 1], second.shape)
    return Layer([first, replace(second, data=data)], layer.outputs)


def _same_extent(extent: int, window: int, stride: int, padding: str, dilation: int = 1) -> int:
    if padding == "SAME":
        return -(-extent // stride)
    return (extent - (window - 1) * dilation - 1) // stride + 1


def _windows(draw: Draw, height: int, width: int, dilated: bool = False) -> dict[str, Any]:
    padding = draw.pick("SAME", "VALID")
    rows, columns = draw.integer(1, min(4, height)), draw.integer(1, min(4, width))
    dilation = (1, 1)
    if dilated and draw.integer(0, 2) == 0:
        dilation = (draw.integer(1, 2), draw.integer(1, 2))
        rows, columns = min(rows, (height - 1) // dilation[0] + 1), min(columns, (width - 1) // dilation[1] + 1)
    strides = (1, 1) if max(dilation) > 1 else (draw.integer(1, 3), draw.integer(1, 3))
    return {
        "padding": padding,
        "window": (rows, columns),
        "strides": strides,
        "dilation": dilation,
        "shape": (
            _same_extent(height, rows, strides[0], padding, dilation[0]),
            _same_extent(width, columns, strides[1], padding, dilation[1]),
        ),
    }


def _weights(draw: Draw, data: Spec, shape: Shape, axis: int, per_channel: bool = True) -> Spec:
    """Random weights; int8 ones are symmetric, with a scale per channel."""
    if data.dtype == "float32":
        return Spec(shape, "float32", data=draw.random.normal(0, 1, shape))
    if data.dtype == "uint8":
        zero = draw.integer(1, 255)
        return Spec(shape, "uint8", 0.01, zero, draw.random.integers(0, 256, shape))
    scale = draw.random.uniform(0.002, 0.02, shape[axis] if per_channel else 1).astype(np.float32)
    return Spec(shape, "int8", scale, 0, draw.random.integers(-127, 128, shape), axis if per_channel else 0)


def _bias(draw: Draw, data: Spec, weights: Spec, channels: int, *, wide: bool = False) -> Spec | None:
    kind = draw.integer(0, 3)
    if kind == 0:
        return None
    if data.dtype == "float32":
        return Spec((channels,), "float32", data=draw.random.normal(0, 1, channels))
    scale = np.asarray(weights.scale, np.float32) * np.float32(data.scale)
    dtype = draw.pick("int64", "int64", "int64" if wide else "int32") if data.dtype == "int16" else "int32"
    size = 4000 if data.dtype != "int16" else 4000000
    return Spec((channels,), dtype, scale, 0, draw.random.integers(-size, size, channels))


def _sum_scale(draw: Draw, data: Spec, weights: Spec, terms: int, shape: Sequence[int]) -> Spec:
    """A result tensor of a sum of products with a scale that some numbers exceed."""
    out = draw.tensor(shape)
    if not out.scale:
        return out
    size, range_of = (74, 128) if data.dtype != "int16" else (19000, 32768)
    magnitude = float(np.mean(weights.scale)) * data.scale * math.sqrt(terms) * 73 * size
    return replace(out, scale=magnitude * draw.random.uniform(1.0, 3.0) / range_of)


def draw_convolution(draw: Draw) -> Layer:
    batch, height, width, channels = draw.pick(1, 1, 1, 2), *draw.shape(3, 8)
    outputs = draw.integer(1, 9)
    windows = _windows(draw, height, width, dilated=True)
    data = draw.tensor((batch, height, width, channels))
    shape = (outputs, *windows["window"], channels)
    if channels % 2 == 0 and outputs % 2 == 0 and draw.integer(0, 5) == 0:
        shape = (outputs, *windows["window"], channels // 2)
    weights = _weights(draw, data, shape, 0)
    result = _sum_scale(draw, data, weights, math.prod(shape[1:]), (batch, *windows["shape"], outputs))
    return Layer(
        [data, weights, _bias(draw, data, weights, outputs)],
        [result],
        {
            "padding": windows["padding"],
            "stride_h": windows["strides"][0],
            "stride_w": windows["strides"][1],
            "dilation_h_factor": windows["dilation"][0],
            "dilation_w_factor": windows["dilation"][1],
            "fused_activation_function": draw.pick("NONE", "RELU", "RELU6"),
        },
    )


def draw_depthwise(draw: Draw) -> Layer:
    batch, height, width, channels = draw.pick(1, 1, 1, 2), *draw.shape(3, 8)
    multiplier = draw.pick(1, 1, 1, 2, 3)
    windows = _windows(draw, height, width, dilated=True)
    data = draw.tensor((batch, height, width, channels))
    weights = _weights(draw, data, (1, *windows["window"], channels * multiplier), 3)
    result = _sum_scale(
        draw, data, weights, math.prod(windows["window"]), (batch, *windows["shape"], channels * multiplier)
    )
    return Layer(
        [data, weights, _bias(draw, data, weights, channels * multiplier, wide=True)],
        [result],
        {
            "padding": windows["padding"],
            "stride_h": windows["strides"][0],
            "stride_w": windows["strides"][1],
            "dilation_h_factor": windows["dilation"][0],
            "dilation_w_factor": windows["dilation"][1],
            "depth_multiplier": multiplier,
            "fused_activation_function": draw.pick("NONE", "RELU", "RELU6"),
        },
    )


def draw_transposed(draw: Draw) -> Layer:
    _, height, width, channels = draw.shape(4, 5)
    outputs = draw.integer(1, 5)
    rows, columns, row_stride, column_stride = (draw.integer(1, 3) for _ in range(4))
    padding = draw.pick("SAME", "VALID")
    if padding == "SAME":
        shape = (1, height * row_stride, width * column_stride, outputs)
    else:
        shape = (1, (height - 1) * row_stride + rows, (width - 1) * column_stride + columns, outputs)
        shape = (1, max(shape[1], height * row_stride), max(shape[2], width * column_stride), outputs)
        rows, columns = max(rows, row_stride), max(columns, column_stride)
        shape = (1, (height - 1) * row_stride + rows, (width - 1) * column_stride + columns, outputs)
    data = draw.tensor((1, height, width, channels))
    weights = _weights(draw, data, (outputs, rows, columns, channels), 0)
    result = _sum_scale(draw, data, weights, rows * columns * channels, shape)
    output_shape = int32(shape)
    inputs: list[Spec | None] = [output_shape, weights, data]
    if (bias := _bias(draw, data, weights, outputs, wide=True)) is not None:
        inputs.append(bias)
    activation = draw.pick("NONE", "RELU", "RELU_N1_TO_1")
    return Layer(
        inputs,
        [result],
        {
            "padding": padding,
            "stride_h": row_stride,
            "stride_w": column_stride,
            "fused_activation_function": activation,
        },
    )


def draw_dense(draw: Draw) -> Layer:
    inputs, outputs = draw.integer(1, 20), draw.integer(1, 9)
    keep_dims = draw.integer(0, 2) == 0
    batch = draw.pick(1, 1, 3)
    shape = (batch, inputs) if not keep_dims else (batch, draw.integer(1, 4), inputs)
    data = draw.tensor(shape)
    weights = _weights(draw, data, (outputs, inputs), 0, per_channel=draw.integer(0, 1) == 0)
    result = _sum_scale(draw, data, weights, inputs, (*shape[:-1], outputs))
    options = {"fused_activation_function": draw.pick("NONE", "RELU", "RELU6"), "keep_num_dims": keep_dims}
    return Layer([data, weights, _bias(draw, data, weights, outputs)], [result], options)


def hybrid(make: Callable[[Draw], Layer]) -> Callable[[Draw], Layer]:
    """Replace float weights with int8: the second operand, and other constants with several axes."""

    def quantise(draw: Draw, spec: Spec) -> Spec:
        scale = draw.random.uniform(0.005, 0.02)
        return Spec(spec.shape, "int8", scale, 0, draw.random.integers(-127, 128, spec.shape))

    def layer(draw: Draw) -> Layer:
        base = make(draw)
        inputs = [
            quantise(draw, operand)
            if operand and (index == 1 or (operand.data is not None and len(operand.shape) > 1))
            else operand
            for index, operand in enumerate(base.inputs)
        ]
        asymmetric = {} if base.options.get("padding") else {"asymmetric_quantize_inputs": draw.pick(True, False)}
        return Layer(inputs, base.outputs, base.options | asymmetric)

    return layer


def narrow(make: Callable[[Draw], Layer]) -> Callable[[Draw], Layer]:
    """Replace weights with 4-bit ones."""

    def layer(draw: Draw) -> Layer:
        base = make(draw)
        data, weights, bias = base.inputs
        assert weights is not None
        numbers = draw.random.integers(-7, 8, weights.shape)
        return Layer([data, replace(weights, dtype="int4", data=numbers), bias], base.outputs, base.options)

    return layer


def draw_pool(draw: Draw) -> Layer:
    batch, height, width, channels = draw.integer(1, 2), *draw.shape(3, 8)
    windows = _windows(draw, height, width)
    data = draw.tensor((batch, height, width, channels))
    return Layer(
        [data],
        [draw.like(data, (batch, *windows["shape"], channels))],
        {
            "padding": windows["padding"],
            "stride_h": windows["strides"][0],
            "stride_w": windows["strides"][1],
            "filter_height": windows["window"][0],
            "filter_width": windows["window"][1],
            "fused_activation_function": draw.pick("NONE", "NONE", "RELU", "RELU6"),
        },
    )


def draw_reduce(draw: Draw, *, same: bool = False) -> Layer:
    shape = draw.shape(draw.integer(2, 4))
    if draw.integer(0, 1) and len(shape) == 4:
        axes = [1, 2]
    else:
        axes = sorted({draw.integer(0, len(shape) - 1) for _ in range(draw.integer(1, 3))})
    keep_dims = draw.integer(0, 1) == 1
    data = draw.tensor(shape)
    result = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape) if keep_dims or axis not in axes)
    out = draw.like(data, result) if same or draw.integer(0, 2) == 0 else draw.tensor(result)
    signed = [axis - len(shape) if draw.integer(0, 3) == 0 else axis for axis in axes]
    if not same and draw.integer(0, 3) == 0:
        signed.append(axes[0])
    return Layer([data, int32(signed)], [out], {"keep_dims": keep_dims})


def draw_arg(draw: Draw) -> Layer:
    shape = draw.shape(draw.integer(1, 4))
    axis = draw.integer(0, len(shape) - 1)
    data = draw.tensor(shape)
    result = tuple(extent for number, extent in enumerate(shape) if number != axis)
    return Layer([data, int32(axis)], [Spec(result, "int32")], {"output_type": 2})


def draw_compare(draw: Draw) -> Layer:
    return draw_binary(draw, activation=False, result="bool")


def batch_subset(draw: Draw, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Batch dimensions that broadcast to the given ones."""
    shorter = batch[draw.pick(0, 0, len(batch)) :]
    return tuple(draw.pick(1, extent, extent) for extent in shorter)


def draw_matmul(draw: Draw) -> Layer:
    batch = draw.shape(draw.integer(0, 2), 3)
    n, k, m = draw.shape(3, 7)
    x, y = draw.integer(0, 1) == 1, draw.integer(0, 1) == 1
    first = draw.tensor((*batch_subset(draw, batch), *((k, n) if x else (n, k))))
    second = draw.tensor((*batch_subset(draw, batch), *((m, k) if y else (k, m))))
    batch = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
    if first.scale and first.dtype == "int16":
        second = replace(second, zero=0)
    out = draw.tensor((*batch, n, m))
    if out.scale:
        size = 74 if out.dtype != "int16" else 19000
        out = replace(out, scale=first.scale * second.scale * size * math.sqrt(k) * draw.random.uniform(0.5, 2))
    return Layer([first, second], [out], {"adj_x": x, "adj_y": y})
