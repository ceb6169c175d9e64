# SPDX-License-Identifier: Apache-2.0
"""Int8 convolutions, depthwise convolutions and dense layers; TensorFlow Lite's other types use sums.py."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import te

from utvm.compiler.kernels import Kernel, Unfit, arithmetic, cores, fixed_point, functions, sums
from utvm.compiler.kernels.functions import describe
from utvm.compiler.kernels.quantisation import round_steps
from utvm.compiler.kernels.quantities import Constants, Goal, Quantity, Real, View
from utvm.compiler.kernels.reader import Reader
from utvm.compiler.kernels.records import Computation, Convolution, Int32, Operator, Residual, distance
from utvm.compiler.kernels.use import Use, padding_before, scale_of, zero_of
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import operator_name, shape_of
from utvm.errors import CompileError

_INT32 = np.iinfo(np.int32)
_UNROLLED = 32  # Unrolled steps of a filter's loops.
_MOST_GROUPS = 4  # Kernels multiply by the zeros between groups: more of them take longer than separate products.
_BIAS_TOLERANCE = 1e-3  # A bias scale this close to input scale times weight scale is taken as equal to it.


@dataclass(frozen=True)
class DefinedConvolution(Computation):
    """A convolution by weights of 9 bits with ONNX's rounding: once, in float, halves to even.

    Attributes:
        layer: with int16 weights; its ``rescale`` is not used.
        factors: input scale times weight scale by output scale, in single precision, for each channel.
    """

    layer: Convolution
    factors: npt.NDArray[np.float32]


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
    real, weights = _operands(reader, call)
    attributes = call.attrs
    layout, kernel_layout = str(attributes.data_layout), str(attributes.kernel_layout)
    if sorted(layout) != sorted("NHWC") or str(attributes.out_layout) != layout:
        raise Unfit(f"the data layout {layout} is not supported in integers")
    data = reader.arrange(real.view, [layout.index(letter) for letter in "NHWC"])
    batch, height, width, channels = data.shape
    if batch != 1:
        raise Unfit("batches of more than one image are not supported in integers")
    kernel = weights.transpose([kernel_layout.index(letter) for letter in "OHWI"])
    groups = int(attributes.groups)
    numbers = kernel.numbers
    if groups not in (1, channels):
        if groups > _MOST_GROUPS:
            raise Unfit(
                f"convolutions in more than {_MOST_GROUPS} groups are supported in integers only as depthwise ones"
            )
        numbers = _without_groups(numbers, channels)
    scales = _scales(kernel)
    reals = np.float64(real.quantity.scale) * scales.astype(np.float64) / np.float64(goal.quantity.scale)
    top, left, bottom, right = (int(width) for width in attributes.padding)
    record = _record(
        (height, width, channels),
        numbers,
        _bias(reader, bias, real, scales, layout.index("C") - len(layout)),
        reals,
        real.quantity,
        goal,
        strides=_pair(attributes.strides),
        dilation=_pair(attributes.dilation),
        padding=(top, left, bottom, right),
        depthwise=groups == channels > 1,
        kind=np.int16 if weights.asymmetric else np.int8,
    )
    output = reader.add(_work(record, real, weights, scales, goal), [data], name, (1, *record.output_shape))
    order = tuple("NHWC".index(letter) for letter in layout)
    return View(output, None if layout == "NHWC" else order)


def _dense(reader: Reader, call: Any, bias: Any | None, goal: Goal, name: str) -> View:
    real, weights = _operands(reader, call)
    if weights.numbers.ndim != 2:
        raise Unfit("products with weights of more than two dimensions are not supported in integers")
    data = reader.arrange(real.view)
    inputs, outputs = weights.numbers.shape
    rows = int(np.prod(data.shape[:-1], dtype=np.int64))
    kernel = weights.transpose((1, 0)).reshape((outputs, 1, 1, inputs))
    scales = _scales(kernel)
    if (scales == scales[0]).all():
        # TensorFlow Lite multiplies these two scales in single precision.
        product = np.float32(real.quantity.scale) * scales[:1]
    else:
        product = np.float64(real.quantity.scale) * scales.astype(np.float64)
    record = _record(
        (rows, 1, inputs),
        kernel.numbers,
        _bias(reader, bias, real, scales, -1),
        np.broadcast_to(product.astype(np.float64) / np.float64(goal.quantity.scale), (outputs,)),
        real.quantity,
        goal,
        kind=np.int16 if weights.asymmetric else np.int8,
    )
    work = _work(record, real, weights, scales, goal)
    return View(reader.add(work, [data], name, (*data.shape[:-1], outputs)))


def _work(
    record: Convolution, real: Real, weights: Constants, scales: npt.NDArray[np.float32], goal: Goal
) -> Computation:
    if not weights.asymmetric:
        return record
    factors = np.float32(real.quantity.scale) * scales / np.float32(goal.quantity.scale)
    return DefinedConvolution(record, np.asarray(factors, np.float32))


def _record(
    input_shape: tuple[int, int, int],
    kernel: npt.NDArray[np.int32],
    bias: Int32,
    reals: npt.NDArray[np.float64],
    source: Quantity,
    goal: Goal,
    *,
    strides: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    depthwise: bool = False,
    kind: type[np.signedinteger[Any]] = np.int8,
) -> Convolution:
    if kernel.min() < np.iinfo(kind).min or kernel.max() > np.iinfo(kind).max:
        raise Unfit("weights whose zero point is not 0 do not fit int8")
    return Convolution(
        input_shape,
        np.ascontiguousarray(kernel.astype(kind)),
        bias,
        strides,
        dilation,
        padding,
        depthwise,
        source.zero,
        goal.quantity.zero,
        fixed_point.rescale(reals),
        goal.low,
        goal.high,
    )


def _without_groups(kernel: npt.NDArray[np.int32], channels: int) -> npt.NDArray[np.int32]:
    outputs, rows, columns, depth = kernel.shape
    groups = channels // depth
    whole = np.zeros((groups, outputs // groups, rows, columns, groups, depth), np.int32)
    for group in range(groups):
        whole[group, ..., group, :] = kernel.reshape(groups, -1, rows, columns, depth)[group]
    return whole.reshape(outputs, rows, columns, channels)


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
        raise Unfit("its bias is not one number per channel")
    constants = reader.constants(bias)
    if constants is not None:
        product_scales = np.broadcast_to(constants.scales.ravel(), (outputs,))
        numbers = np.broadcast_to(constants.numbers.ravel(), (outputs,))
        if np.allclose(product_scales, unit, rtol=_BIAS_TOLERANCE, atol=0):
            return np.asarray(numbers, np.int32)
        floats = numbers * product_scales.astype(np.float64)
    else:
        array = reader.array(bias)
        if array is None:
            raise Unfit("its bias is not constant")
        floats = np.broadcast_to(array.astype(np.float64).ravel(), (outputs,))
    # Round a float bias to the accumulator's unit.
    rounded = np.rint(floats / unit)
    if not (np.abs(rounded) <= _INT32.max).all():
        raise Unfit("its bias does not fit 32 bits")
    whole: Int32 = rounded.astype(np.int32)
    return whole


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    first, second = values
    return int(first), int(second)


def _tflite(use: Use, operands: list[Any]) -> Any:
    dense = use.operator.name == "FULLY_CONNECTED"
    record = _tflite_dense(use) if dense else _tflite_convolution(use)
    if record is None:
        return (sums.dense if dense else sums.convolution)(use, operands)
    shape = use.result.shape if dense else (1, *record.output_shape)

    def build(reader: Reader, arguments: Sequence[Any], name: str) -> View:
        data = reader.arrange(reader.view(arguments[0]))
        return View(reader.add(record, [data], name, use.result.shape))

    return use.layer(build, operands[:1], shape, record.weights)


def _tflite_convolution(use: Use) -> Convolution | None:
    data, weights, depthwise = use.input(0), use.input(1), use.operator.name == "DEPTHWISE_CONV_2D"
    array = _tflite_weights(use, 3 if depthwise else 0)
    channels = data.shape[-1]
    if array is None or data.shape[0] != 1 or (depthwise and weights.shape[3] % channels):
        return None
    if not depthwise and weights.shape[3] != channels:
        if channels > _MOST_GROUPS * weights.shape[3]:
            return None
        array = _without_groups(array, channels)
    options = use.options(tflite.DepthwiseConv2DOptions if depthwise else tflite.Conv2DOptions)
    strides = (options.StrideH(), options.StrideW())
    dilation = (options.DilationHFactor(), options.DilationWFactor())
    kernel = array.transpose(3, 1, 2, 0) if depthwise else array
    top, bottom, left, right = (
        width
        for axis in (1, 2)
        for width in padding_before(
            options.Padding(), data.shape[axis], kernel.shape[axis], strides[axis - 1], dilation[axis - 1],
            use.result.shape[axis],
        )
    )  # fmt: skip
    scales = np.broadcast_to(_scales_of(use), len(kernel)).astype(np.float64)
    height, width = data.shape[1:3]
    return _record(
        (height, width, channels),
        kernel,
        _tflite_bias(use, len(kernel)),
        np.float64(scale_of(data)) * scales / np.float64(scale_of(use.result)),
        Quantity(float(scale_of(data)), zero_of(data)),
        use.goal(options.FusedActivationFunction()),
        strides=strides,
        dilation=dilation,
        padding=(top, left, bottom, right),
        depthwise=depthwise and channels > 1,
    )


def _tflite_dense(use: Use) -> Convolution | None:
    data, array = use.input(0), _tflite_weights(use, 0)
    if array is None or array.ndim != 2 or zero_of(use.input(1)):
        return None
    outputs, inputs = array.shape
    rows = data.size // max(inputs, 1)
    if rows * inputs != data.size or rows * outputs != use.result.size:
        raise CompileError(f"{data.shape} inputs for {inputs} weights")
    scales = _scales_of(use)
    # TensorFlow Lite multiplies two scales in single precision, and several in double.
    product = np.float32(scale_of(data)) * scales if scales.size == 1 else np.float64(scale_of(data)) * scales
    return _record(
        (rows, 1, inputs),
        array.reshape(outputs, 1, 1, inputs),
        _tflite_bias(use, outputs),
        np.broadcast_to(product.astype(np.float64) / np.float64(scale_of(use.result)), (outputs,)),
        Quantity(float(scale_of(data)), zero_of(data)),
        use.goal(use.options(tflite.FullyConnectedOptions).FusedActivationFunction()),
    )


def _tflite_weights(use: Use, axis: int) -> npt.NDArray[np.int32] | None:
    weights, array = use.input(1), use.value(1)
    known = weights.quantisation
    if not use.is_all("int8") or weights.dtype != "int8" or known is None or array is None:
        return None
    if known.scales.size > 1 and known.axis != axis:
        return None
    centred: npt.NDArray[np.int32] = array.astype(np.int32) - np.int32(zero_of(weights))
    return centred


def _scales_of(use: Use) -> npt.NDArray[np.float32]:
    known = use.input(1).quantisation
    return np.ones(1, np.float32) if known is None else known.scales.astype(np.float32)


def _tflite_bias(use: Use, outputs: int) -> Int32:
    bias = use.constant(2) if use.has(2) else np.zeros(outputs, np.int32)
    if bias.shape != (outputs,) or bias.dtype.kind != "i" or (np.abs(bias.astype(np.int64)) > _INT32.max + 1).any():
        raise CompileError(f"its bias has the shape {bias.shape} of {bias.dtype}, for {outputs} channels")
    return np.asarray(bias, np.int32)


def make(record: Convolution, target: Target | None) -> Operator:
    """Make a target's operator of a convolution. All tensors are NHWC; the function may receive them flat."""
    return (target and cores.choose(record, target)) or _plain(record)


def _plain(record: Convolution, factors: npt.NDArray[np.float32] | None = None) -> Operator:
    channels, shape = record.input_shape[2], (1, *record.output_shape)
    outputs, rows, columns, depth = record.weights.shape
    data = te.placeholder((1, *record.input_shape), "int8", "data")
    other = te.placeholder(shape, "int8", "other")
    weights = te.placeholder(record.weights.shape, str(record.weights.dtype), "weights")
    tables = (record.bias, *channels_of(record)) if factors is None else (record.bias, factors)
    names = ("bias", "factors", "shifts")
    per_channel = [te.placeholder((outputs,), str(data.dtype), name) for data, name in zip(tables, names, strict=False)]
    bias, scale, *shifts = per_channel
    copies = outputs // channels

    def factor(o: Any, row: Any, column: Any, inner: Any) -> Any:
        return weights[o, row, column, inner].astype("int32")

    def channel(o: Any, inner: Any) -> Any:
        return te.indexdiv(o, copies) if record.depthwise else inner

    accumulator = sums.window_sums(
        data, shape, (rows, columns, depth), record.strides, record.dilation, record.padding[:2], factor, channel,
        lambda _: record.input_zero,
    )  # fmt: skip

    def result(n: Any, y: Any, x: Any, o: Any) -> Any:
        total = accumulator[n, y, x, o] + bias[o]
        if factors is not None:
            return round_steps(total.astype("float32") * scale[o], "rintf", record.output_zero, record.low, record.high)
        return narrow_sum(record, total, scale[o], shifts[0][o], lambda: other[n, y, x, o])

    output = te.compute(shape, result, "output")
    inputs = [data] if record.residual is None else [data, other]
    function = te.create_prim_func([*inputs, weights, *per_channel, output])
    function = functions.with_sum_in_place(function, _UNROLLED)
    # Element by element: the next channel reads the window again; the other operand is read at the index written.
    overlap = (distance(record, 1, reads_again=True), 0)[: len(inputs)]
    kind = f"{'depthwise_' if record.depthwise else ''}conv2d_{'int8' if factors is None else 'asymmetric'}"
    return Operator(describe(function, kind, overlap, record.macs), (record.weights, *tables))


def narrow_sum(record: Convolution, total: Any, multiplier: Any, shift: Any, other: Callable[[], Any]) -> Any:
    value = arithmetic.rescale_by(total, multiplier, shift) + record.output_zero
    if record.residual is None:
        return arithmetic.clamp_value(value, record.low, record.high)
    value = arithmetic.clamp_value(value, record.low, record.high, "int32")
    return _with_residual(record.residual, value, other().astype("int32"))


def channels_of(record: Convolution) -> tuple[Int32, Int32]:
    outputs = len(record.bias)
    return (
        np.broadcast_to(record.rescale.multipliers, (outputs,)).astype(np.int32),
        np.broadcast_to(record.rescale.shifts, (outputs,)).astype(np.int32),
    )


def _with_residual(residual: Residual, result: Any, other: Any) -> Any:
    first = arithmetic.rescale_value((result - residual.result_zero) << 20, residual.result)
    second = arithmetic.rescale_value((other - residual.other_zero) << 20, residual.other)
    total = arithmetic.rescale_value(first + second, residual.output) + residual.output_zero
    return arithmetic.clamp_value(total, residual.low, residual.high)


_LINEAR = {"relax.nn.conv2d": _convolution, "relax.matmul": _dense}

KERNEL = Kernel(
    {Convolution: make, DefinedConvolution: lambda record, _: _plain(record.layer, record.factors)},
    (*_LINEAR, "relax.add"),
    _recognise,
    dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _tflite),
)
