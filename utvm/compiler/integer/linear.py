"""From float convolutions and dense layers of dequantised tensors to records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.quantities import Constants, Quantity, Real, View
from utvm.compiler.integer.reader import Reader
from utvm.compiler.integer.records import Convolution, Int32
from utvm.compiler.integer.unfit import Unfit
from utvm.compiler.tvm_types import shape_of

_INT32 = np.iinfo(np.int32)
_BIAS_TOLERANCE = 1e-3  # A bias scale this near to input times weights is meant to be it.


@dataclass(frozen=True)
class Goal:
    """Into what a float result is quantised.

    Attributes:
        quantity: of the int8 numbers.
        low, high: clamp that activations in between make.
    """

    quantity: Quantity
    low: int
    high: int


def convolution(reader: Reader, call: Any, bias: Any | None, target: Goal, name: str) -> View:
    """Add the node of a ``relax.nn.conv2d``; return its result as the model has it.

    Args:
        bias: what is added to the convolution, or None.

    Raises:
        Unfit: it has no integer form here.
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
    reals = np.float64(real.quantity.scale) * scales.astype(np.float64) / np.float64(target.quantity.scale)
    top, left, bottom, right = (int(each) for each in attributes.padding)
    record = _record(
        (height, width, channels),
        kernel,
        _bias(reader, bias, real, scales, layout.index("C") - len(layout)),
        reals,
        real,
        target,
        strides=_pair(attributes.strides),
        dilation=_pair(attributes.dilation),
        padding=(top, left, bottom, right),
        depthwise=groups > 1,
    )
    output = reader.add(record, [data], name, (1, *record.output_shape))
    order = tuple("NHWC".index(letter) for letter in layout)
    return View(output, None if layout == "NHWC" else order)


def dense(reader: Reader, call: Any, bias: Any | None, target: Goal, name: str) -> View:
    """Add the node of a ``relax.matmul`` by constant weights; return its result.

    Raises:
        Unfit: it has no integer form here.
    """
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
        np.broadcast_to(product.astype(np.float64) / np.float64(target.quantity.scale), (outputs,)),
        real,
        target,
    )
    return View(reader.add(record, [data], name, (*data.shape[:-1], outputs)))


def _record(
    input_shape: tuple[int, int, int],
    kernel: Constants,
    bias: Int32,
    reals: npt.NDArray[np.float64],
    real: Real,
    target: Goal,
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
        target.quantity.zero,
        fixed_point.rescale(reals),
        target.low,
        target.high,
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
