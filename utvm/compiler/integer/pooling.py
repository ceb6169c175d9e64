"""From Relax's poolings and reductions of dequantised tensors to records."""

from typing import Any

import numpy as np
from tvm import relax

from utvm.compiler.integer import fixed_point
from utvm.compiler.integer.nodes import Native
from utvm.compiler.integer.pool import Pool, Reduction
from utvm.compiler.integer.quantities import Quantity, Real, View
from utvm.compiler.integer.reader import Reader
from utvm.compiler.integer.records import Rescale
from utvm.compiler.integer.unfit import Unfit


def pool(reader: Reader, call: Any, view: View, shape: tuple[int, ...], name: str) -> View:
    """Add the node of a ``max_pool2d`` or ``avg_pool2d``; return its result as the model has it.

    Args:
        view: what is pooled.
        shape: of the result, as the model has it.

    Raises:
        Unfit: it has no integer form here.
    """
    attributes = call.attrs
    layout = str(attributes.layout)
    if sorted(layout) != sorted("NHWC") or str(attributes.out_layout) != layout:
        raise Unfit(f"the data layout {layout} is not supported in integers")
    data = reader.arranged(view, [layout.index(letter) for letter in "NHWC"])
    batch, height, width, channels = data.shape
    average = str(call.op.name) == "relax.nn.avg_pool2d"
    padding = [int(each) for each in attributes.padding]
    if average and any(padding) and bool(attributes.count_include_pad):
        raise Unfit("an average that counts what is padded is not supported in integers")
    top, left, bottom, right = padding
    rows, columns = (int(each) for each in attributes.pool_size)
    down, across = (int(each) for each in attributes.strides)
    record = Pool((height, width, channels), (rows, columns), (down, across), (top, left, bottom, right), average)
    order = tuple("NHWC".index(letter) for letter in layout)
    output_shape = (1, *record.output_shape)
    if (
        batch != 1
        or any(int(each) != 1 for each in attributes.dilation)
        or shape != tuple(output_shape[axis] for axis in order)
    ):
        raise Unfit("pooling of several images, with gaps, or beyond the image is not supported in integers")
    return View(reader.add(record, [data], name, output_shape), None if layout == "NHWC" else order)


def reduction(reader: Reader, call: Any, real: Real, target: Quantity, shape: tuple[int, ...], name: str) -> View:
    """Add the nodes of a ``mean`` or ``sum``; return its result as the model has it."""
    rank = len(real.view.shape)
    axes = range(rank) if call.attrs.axis is None else sorted({int(axis) % rank for axis in call.attrs.axis})
    return _reduced(reader, list(axes), str(call.op.name) == "relax.mean", real, target, shape, name)


def global_average(
    reader: Reader, call: Any, real: Real, target: Quantity, shape: tuple[int, ...], name: str
) -> View:
    """Add the nodes of an average over the whole image; return its result as the model has it.

    Raises:
        Unfit: the averages are of parts of the image.
    """
    layout = str(call.attrs.layout)
    axes = sorted(layout.index(letter) for letter in "HW")
    if any(shape[axis] != 1 for axis in axes):
        raise Unfit("adaptive pooling is supported in integers for a single result only")
    return _reduced(reader, axes, True, real, target, shape, name)


def _reduced(
    reader: Reader,
    axes: list[int],
    mean: bool,
    real: Real,
    target: Quantity,
    shape: tuple[int, ...],
    name: str,
) -> View:
    order = real.view.order
    base = real.view.base
    own = tuple(sorted(axes if order is None else (order[axis] for axis in axes)))
    count = int(np.prod([base.shape[axis] for axis in own], dtype=np.int64))
    multiplier, shift = fixed_point.quantize_multiplier(real.quantity.scale / target.scale)
    if mean:
        # One over the count becomes part of the multiplier, with as many bits as there is room for.
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << extra) // count, shift - extra
    factor = Rescale(np.array([multiplier], np.int32), np.array([shift], np.int32))
    record = Reduction(base.shape, own, -real.quantity.zero * count, factor, target.zero)
    view = View(reader.add(record, [base], name, record.output_shape), order)
    if view.shape == shape:
        return view
    flat = Native(lambda inputs: relax.op.reshape(inputs[0], shape), "relax.reshape")
    return View(reader.native(flat, [reader.arranged(view)], name, shape))
