# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions, depthwise convolutions and dense layers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.choices import choose
from utvm.compiler.integer.goal import Goal
from utvm.compiler.integer.kernel import described, with_sum_in_place
from utvm.compiler.integer.quantities import Constants, Real, View
from utvm.compiler.integer.reader import Reader, operator_name
from utvm.compiler.integer.records import Convolution, Int32, Operator, Residual
from utvm.compiler.integer.unfit import Unfit
from utvm.compiler.integer.windows import distance
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import shape_of

_INT32 = np.iinfo(np.int32)
_UNROLLED = 32  # Steps of a filter's loops.
_BIAS_TOLERANCE = 1e-3  # A bias scale this near to input times weights is meant to be it.


def _recognise(reader: Reader, core: Any, goal: Goal, name: str) -> View | None:
    call = reader.call(core)
    if operator_name(call) != "relax.add":
        return _LINEAR[operator_name(call)](reader, call, None, goal, name)
    for product, bias in (call.args[:2], call.args[1::-1]):
        linear = _LINEAR.get(operator_name(reader.call(product)))
        if linear is not None:
            return linear(reader, reader.call(product), bias, goal, name)
    return None


def _convolution(reader: Reader, call: Any, bias: Any | None, goal: Goal, name: str) -> View:
    """Add the node of a ``relax.nn.conv2d``; return its result as the model has it.

    Args:
        bias: what is added to the convolution, or None.
    """
    real, weights = _operands(reader, call)
    attributes = call.attrs
    layout, kernel_layout = str(attributes.data_layout), str(attributes.kernel_layout)
    if sorted(layout) != sorted("NHWC") or str(attributes.out_layout) != layout:
        raise Unfit(f"the data layout {layout} is not supported in integers")
    data = reader.arranged(real.view, [layout.index(letter) for letter in "NHWC"])
    batch, height, width, channels = data.shape
    if batch != 1:
        raise Unfit("batches of more than one image are not supported in integers")
    kernel = weights.transposed([kernel_layout.index(letter) for letter in "OHWI"])
    groups = int(attributes.groups)
    if groups not in (1, channels):
        raise Unfit("convolutions in groups are supported in integers only as depthwise ones")
    scales = _scales(kernel)
    reals = np.float64(real.quantity.scale) * scales.astype(np.float64) / np.float64(goal.quantity.scale)
    top, left, bottom, right = (int(each) for each in attributes.padding)
    record = _record(
        (height, width, channels),
        kernel,
        _bias(reader, bias, real, scales, layout.index("C") - len(layout)),
        reals,
        real,
        goal,
        strides=_pair(attributes.strides),
        dilation=_pair(attributes.dilation),
        padding=(top, left, bottom, right),
        depthwise=groups > 1,
    )
    output = reader.add(record, [data], name, (1, *record.output_shape))
    order = tuple("NHWC".index(letter) for letter in layout)
    return View(output, None if layout == "NHWC" else order)


def _dense(reader: Reader, call: Any, bias: Any | None, goal: Goal, name: str) -> View:
    """Add the node of a ``relax.matmul`` by constant weights; return its result."""
    real, weights = _operands(reader, call)
    if weights.numbers.ndim != 2:
        raise Unfit("products with weights of more than two dimensions are not supported in integers")
    data = reader.arranged(real.view)
    inputs, outputs = weights.numbers.shape
    rows = int(np.prod(data.shape[:-1], dtype=np.int64))
    kernel = weights.transposed((1, 0)).reshaped((outputs, 1, 1, inputs))
    scales = _scales(kernel)
    if (scales == scales[0]).all():
        # TensorFlow Lite multiplies these two scales in single precision.
        product = np.float32(real.quantity.scale) * scales[:1]
    else:
        product = np.float64(real.quantity.scale) * scales.astype(np.float64)
    record = _record(
        (rows, 1, inputs),
        kernel,
        _bias(reader, bias, real, scales, -1),
        np.broadcast_to(product.astype(np.float64) / np.float64(goal.quantity.scale), (outputs,)),
        real,
        goal,
    )
    return View(reader.add(record, [data], name, (*data.shape[:-1], outputs)))


def _record(
    input_shape: tuple[int, int, int],
    kernel: Constants,
    bias: Int32,
    reals: npt.NDArray[np.float64],
    real: Real,
    goal: Goal,
    *,
    strides: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    depthwise: bool = False,
) -> Convolution:
    if kernel.numbers.min() < -128 or kernel.numbers.max() > 127:
        raise Unfit("weights whose zero point is not 0 (uint8: 128) do not fit int8")
    return Convolution(
        input_shape,
        np.ascontiguousarray(kernel.numbers.astype(np.int8)),
        bias,
        strides,
        dilation,
        padding,
        depthwise,
        real.quantity.zero,
        goal.quantity.zero,
        fixed_point.rescale(reals),
        goal.low,
        goal.high,
    )


def _operands(reader: Reader, call: Any) -> tuple[Real, Constants]:
    real, weights = reader.real(call.args[0]), reader.constants(call.args[1])
    if real is None:
        raise Unfit("its input is not a dequantised tensor with one scale")
    if weights is None:
        raise Unfit("its weights are not constant integers")
    return real, weights


def _scales(kernel: Constants) -> npt.NDArray[np.float32]:
    scales = kernel.scale_of_first()
    if scales is None:
        raise Unfit("its weights have scales that differ within an output channel")
    return scales


def _bias(reader: Reader, bias: Any | None, real: Real, scales: npt.NDArray[np.float32], axis: int) -> Int32:
    outputs = len(scales)
    unit = np.float64(real.quantity.scale) * scales.astype(np.float64)
    if bias is None:
        return np.zeros(outputs, np.int32)
    shape = shape_of(bias.ty)
    if int(np.prod(shape, dtype=np.int64)) != max([1, *shape[axis:][:1]]):
        raise Unfit("what is added to it is not one number per channel")
    constants = reader.constants(bias)
    if constants is not None:
        given = np.broadcast_to(constants.scales.ravel(), (outputs,))
        numbers = np.broadcast_to(constants.numbers.ravel(), (outputs,))
        if np.allclose(given, unit, rtol=_BIAS_TOLERANCE, atol=0):
            return np.asarray(numbers, np.int32)
        floats = numbers * given.astype(np.float64)
    else:
        array = reader.array(bias)
        if array is None:
            raise Unfit("what is added to it is not constant")
        floats = np.broadcast_to(array.astype(np.float64).ravel(), (outputs,))
    # A float bias is rounded to what the accumulator counts in.
    rounded = np.rint(floats / unit)
    if not (np.abs(rounded) <= _INT32.max).all():
        raise Unfit("its bias does not fit 32 bits")
    whole: Int32 = rounded.astype(np.int32)
    return whole


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    first, second = values
    return int(first), int(second)


def make(record: Convolution, target: Target) -> Operator:
    """Make the operator of a convolution.

    Its function takes the input, then, with a residual, the other operand in the output's shape, then the
    constants, then the output. All tensors are NHWC; the function may see them flat.

    Args:
        target: chooses the kernel, and the layout of the weights.
    """
    return choose(record, target) or _plain(record)


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
        total = accumulator[n, y, x, o] + bias[o]
        return narrowed(record, total, multipliers[o], shifts[o], lambda: other[n, y, x, o])

    output = te.compute((1, output_height, output_width, outputs), result, "output")
    inputs = [data] if record.residual is None else [data, other]
    function = te.create_prim_func([*inputs, weights, *per_channel, output])
    function = with_sum_in_place(function, _UNROLLED)
    # Element by element: the next channel reads the window again, the other operand is read where it is written.
    overlap = (distance(record, 1, reads_again=True), 0)[: len(inputs)]
    kind = "depthwise_conv2d_int8" if record.depthwise else "conv2d_int8"
    return Operator(
        described(function, kind, overlap, record.macs),
        (record.weights, record.bias, *channels_of(record)),
        overlap,
        record.macs,
    )


def narrowed(record: Convolution, total: Any, multiplier: Any, shift: Any, other: Callable[[], Any]) -> Any:
    """Return the int8 result of a sum of products and its bias.

    Args:
        multiplier, shift: of the output's channel.
        other: the element of a residual's other operand, where there is one.
    """
    value = _requantize(total, multiplier, shift)
    value = _clamp(value + record.output_zero, record.low, record.high)
    if record.residual is not None:
        value = _add(record.residual, value, other().astype("int32"))
    return value.astype("int8")


def channels_of(record: Convolution) -> tuple[Int32, Int32]:
    """Return the multiplier and the shift of each output channel."""
    outputs = len(record.bias)
    return (
        np.broadcast_to(record.rescale.multipliers, (outputs,)).astype(np.int32),
        np.broadcast_to(record.rescale.shifts, (outputs,)).astype(np.int32),
    )


def _requantize(value: Any, multiplier: Any, shift: Any) -> Any:
    return tirx.call_pure_extern("int32", "requantize", value, multiplier, shift)


def _clamp(value: Any, low: int, high: int) -> Any:
    return tirx.max(tirx.min(value, tirx.IntImm("int32", high)), tirx.IntImm("int32", low))


def _add(residual: Residual, result: Any, other: Any) -> Any:
    def scaled(value: Any, zero: int, rescale: Any) -> Any:
        return _requantize((value - zero) << 20, int(rescale.multipliers[0]), int(rescale.shifts[0]))

    total = scaled(result, residual.result_zero, residual.result) + scaled(
        other, residual.other_zero, residual.other
    )
    total = _requantize(total, int(residual.output.multipliers[0]), int(residual.output.shifts[0]))
    return _clamp(total + residual.output_zero, residual.low, residual.high)


_LINEAR = {"relax.nn.conv2d": _convolution, "relax.matmul": _dense}

OPERATOR = Int8Operator(Convolution, make, (*_LINEAR, "relax.add"), _recognise)
