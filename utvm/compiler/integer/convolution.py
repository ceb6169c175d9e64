"""Making the operators for int8 convolutions, depthwise convolutions and dense layers."""

from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from utvm.compiler.integer.convolution_dsp import make_with_dsp
from utvm.compiler.integer.depthwise_dsp import make_depthwise_with_dsp
from utvm.compiler.integer.kernel import described, with_sum_in_place
from utvm.compiler.integer.records import Convolution, Operator, Residual
from utvm.compiler.integer.windows import distance
from utvm.compiler.target import Target

_UNROLLED = 32  # Steps of a filter's loops.


def make(record: Convolution, target: Target) -> Operator:
    """Make the operator of a convolution.

    Its function takes the input, then, with a residual, the other operand in the output's shape, then the
    constants, then the output. All tensors are NHWC; the function may see them flat.

    Args:
        target: ``dsp`` chooses kernels and weight layouts made for it.
    """
    if "dsp" in target.extensions:
        operator = make_depthwise_with_dsp(record) if record.depthwise else make_with_dsp(record)
        if operator is not None:
            return operator
    return _plain(record)


def _plain(record: Convolution) -> Operator:
    height, width, channels = record.input_shape
    output_height, output_width, outputs = record.output_shape
    _, rows, columns, _ = record.weights.shape
    top, left, _, _ = record.padding
    data = te.placeholder((1, height, width, channels), "int8", "data")
    other = te.placeholder((1, output_height, output_width, outputs), "int8", "other")
    weights = te.placeholder(record.weights.shape, "int8", "weights")
    per_channel = [te.placeholder((outputs,), "int32", name) for name in ("bias", "multipliers", "shifts")]
    bias, multipliers, shifts = per_channel
    row, column = te.reduce_axis((0, rows), "row"), te.reduce_axis((0, columns), "column")
    depth = te.reduce_axis((0, 1 if record.depthwise else channels), "depth")
    copies = outputs // channels if record.depthwise else 1

    def padded(y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        value = data[0, y, x, c].astype("int32") - record.input_zero
        return tirx.if_then_else(inside, value, tirx.IntImm("int32", 0)) if any(record.padding) else value

    accumulator = te.compute(
        (1, output_height, output_width, outputs),
        lambda n, y, x, o: te.sum(
            padded(
                y * record.strides[0] + row * record.dilation[0] - top,
                x * record.strides[1] + column * record.dilation[1] - left,
                te.indexdiv(o, copies) if record.depthwise else depth,
            )
            * weights[o, row, column, depth].astype("int32"),
            axis=[row, column, depth],
        ),
        "accumulator",
    )

    def result(n: Any, y: Any, x: Any, o: Any) -> Any:
        value = _requantize(accumulator[n, y, x, o] + bias[o], multipliers[o], shifts[o])
        value = _clamp(value + record.output_zero, record.low, record.high)
        if record.residual is not None:
            value = _add(record.residual, value, other[n, y, x, o].astype("int32"))
        return value.astype("int8")

    output = te.compute((1, output_height, output_width, outputs), result, "output")
    inputs = [data] if record.residual is None else [data, other]
    function = te.create_prim_func([*inputs, weights, *per_channel, output])
    function = with_sum_in_place(function, _UNROLLED)
    # Element by element: the next channel reads the window again, the other operand is read where it is written.
    overlap = (distance(record, 1, reads_again=True), 0)[: len(inputs)]
    kind = "depthwise_conv2d_int8" if record.depthwise else "conv2d_int8"
    return Operator(
        described(function, kind, overlap, record.macs),
        (
            record.weights,
            record.bias,
            np.broadcast_to(record.rescale.multipliers, (outputs,)).astype(np.int32),
            np.broadcast_to(record.rescale.shifts, (outputs,)).astype(np.int32),
        ),
        overlap,
        record.macs,
    )


def _requantize(value: Any, multiplier: Any, shift: Any) -> Any:
    return tirx.call_pure_extern("int32", "requantize", value, multiplier, shift)


def _clamp(value: Any, low: int, high: int) -> Any:
    return tvm.tirx.max(tvm.tirx.min(value, tirx.IntImm("int32", high)), tirx.IntImm("int32", low))


def _add(residual: Residual, result: Any, other: Any) -> Any:
    def scaled(value: Any, zero: int, rescale: Any) -> Any:
        return _requantize((value - zero) << 20, int(rescale.multipliers[0]), int(rescale.shifts[0]))

    total = scaled(result, residual.result_zero, residual.result) + scaled(
        other, residual.other_zero, residual.other
    )
    total = _requantize(total, int(residual.output.multipliers[0]), int(residual.output.shifts[0]))
    return _clamp(total + residual.output_zero, residual.low, residual.high)
