# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements, to indices known at compile time or given by another input."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite
from tvm import relax, te, tirx

from utvm.compiler.kernels import Kernel
from utvm.compiler.kernels.arithmetic import clamp_value, number, rescale_value
from utvm.compiler.kernels.functions import add_checked_function, add_elementwise, add_function
from utvm.compiler.kernels.use import Use, limits, scale_of, zero_of
from utvm.errors import CompileError

Array = npt.NDArray[Any]

_CUMSUM_SHIFT = 20  # Fractional bits of an 8-bit running sum; sums wrap around, as the kernel's do.


def _gather_along(use: Use, operand: Any, places: dict[int, Array]) -> Any:
    tables = [np.asarray(table, np.int32) for table in places.values()]
    axes = list(places)

    def compute(data: Any, *read: Any) -> Any:
        def at(*index: Any) -> Any:
            moved = list(index)
            for axis, table in zip(axes, read, strict=True):
                moved[axis] = table[index[axis]]
            return data[tuple(moved)]

        return te.compute(use.result.shape, at, "output")

    return add_function(use.builder, use.operator.name.lower(), [operand, *tables], compute)


def _mirror(use: Use, operands: list[Any]) -> Any:
    pads = np.asarray(use.constant(1)).reshape(-1, 2)
    skipped = 1 if use.options(tflite.MirrorPadOptions).Mode() == tflite.MirrorPadMode.REFLECT else 0
    places = {}
    for axis, (before, after) in enumerate(pads.tolist()):
        extent = use.input(0).shape[axis]
        if before or after:
            if max(before, after) > extent - skipped:
                raise CompileError(f"it pads {max(before, after)} of {extent} numbers")
            inner = np.arange(-before, extent + after)
            inner = np.where(inner < 0, -inner - 1 + skipped, inner)
            places[axis] = np.where(inner >= extent, 2 * extent - 1 - skipped - inner, inner)
    return _gather_along(use, operands[0], places)


def _nearest(use: Use, operands: list[Any]) -> Any:
    """Add a RESIZE_NEAREST_NEIGHBOR; indices are computed in single precision."""
    options = use.options(tflite.ResizeNearestNeighborOptions)
    corners, half = options.AlignCorners(), options.HalfPixelCenters()
    places = {}
    for axis in (1, 2):
        extent, size = use.input(0).shape[axis], use.result.shape[axis]
        scale = (
            np.float32(extent - 1) / np.float32(size - 1)
            if corners and size > 1
            else np.float32(extent) / np.float32(size)
        )
        reals = (np.arange(size, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
        whole = np.floor(reals + np.float32(0.5)) if corners else np.floor(reals)
        places[axis] = np.clip(whole.astype(np.int64), 0, extent - 1)
    return _gather_along(use, operands[0], places)


def _interpolation_tables(extent: int, size: int, corners: bool, half: bool) -> tuple[Array, Array, Array]:
    if corners and size > 1:
        scale = ((1 << 10) * (extent - 1) + (size - 1) // 2) // (size - 1)
    else:
        scale = ((1 << 10) * extent + size // 2) // size
    places = np.arange(size, dtype=np.int64) * scale + (scale // 2 - (1 << 9) if half else 0)
    low = np.maximum(np.trunc(places / 1024).astype(np.int64), 0)
    high = np.minimum(np.trunc((places + 1023) / 1024).astype(np.int64), extent - 1)
    return low, high, places - low * 1024


def _bilinear_of_floats(use: Use, operands: list[Any], options: Any) -> Any:
    """Add a float RESIZE_BILINEAR; uint8 is computed in float, too, as in TensorFlow Lite."""
    dtype = use.result.dtype
    single, tables = np.float32, []
    for axis in (1, 2):
        extent, size = use.input(0).shape[axis], use.result.shape[axis]
        corners = options.AlignCorners() and size > 1
        scale = single(extent - 1) / single(size - 1) if corners else single(extent) / single(size)
        places = np.arange(size, dtype=single)
        places = (places + single(0.5)) * scale - single(0.5) if options.HalfPixelCenters() else places * scale
        low = np.maximum(np.floor(places), single(0))
        high = np.minimum(np.ceil(places), single(extent - 1))
        tables += [low.astype(np.int32), high.astype(np.int32), (places - low).astype(single)]

    def compute(image: Any, *read: Any) -> Any:
        top, bottom, down, left, right, across = read
        one = tirx.FloatImm("float32", 1.0)

        def at(n: Any, y: Any, x: Any, c: Any) -> Any:
            below, beside = down[y], across[x]

            def part(line: Any, column: Any) -> Any:
                return image[n, line[y], column[x], c].astype("float32")

            value = (
                part(top, left) * (one - below) * (one - beside)
                + part(bottom, left) * below * (one - beside)
                + part(top, right) * (one - below) * beside
                + part(bottom, right) * below * beside
            )
            if dtype == "float32":
                return value
            return tirx.call_pure_extern(dtype, "fitting_uint8", value + tirx.FloatImm("float32", 0.5))

        return te.compute(use.result.shape, at, "output")

    return add_function(use.builder, f"resize_bilinear_{dtype}", [operands[0], *tables], compute)


def _bilinear(use: Use, operands: list[Any]) -> Any:
    """Add a RESIZE_BILINEAR; int8 in fixed point with 10 bits, int16 as in TensorFlow Lite."""
    options = use.options(tflite.ResizeBilinearOptions)
    dtype = use.result.dtype
    if dtype in ("float32", "uint8"):
        return _bilinear_of_floats(use, operands, options)
    if dtype not in ("int8", "int16"):
        return None
    tables = [
        table.astype(np.int32)
        for axis in (1, 2)
        for table in _interpolation_tables(
            use.input(0).shape[axis], use.result.shape[axis], options.AlignCorners(), options.HalfPixelCenters()
        )
    ]

    def compute(image: Any, *read: Any) -> Any:
        top, bottom, down, left, right, across = read
        one = number(1 << 10)

        def total(n: Any, y: Any, x: Any, c: Any) -> Any:
            def part(line: Any, column: Any, high: Any, wide: Any) -> Any:
                value = image[n, line[y], column[x], c].astype("int64")
                return value * (high * wide).astype("int64")

            below, beside = down[y], across[x]
            return (
                part(top, left, one - below, one - beside)
                + part(bottom, left, below, one - beside)
                + part(top, right, one - below, beside)
                + part(bottom, right, below, beside)
            )

        sums = te.compute(use.result.shape, total, "total")

        def round_sum(*at: Any) -> Any:
            half = number(1 << 19, "int64")
            value = tirx.Select(sums[at] > number(0, "int64"), sums[at] + half, sums[at] - half)
            return tirx.truncdiv(value, number(1 << 20, "int64")).astype(dtype)

        return te.compute(use.result.shape, round_sum, "output")

    return add_function(use.builder, f"resize_bilinear_{dtype}", [operands[0], *tables], compute)


def _spatial(use: Use) -> tuple[list[int], Array]:
    blocks = [int(item) for item in np.ravel(use.constant(1))]
    edges = np.asarray(use.constant(2)).reshape(-1, 2)
    if len(edges) != len(blocks) or len(blocks) > len(use.input(0).shape) - 1:
        raise CompileError(f"{len(blocks)} blocks and {len(edges)} edges for {use.input(0).shape}")
    return blocks, edges


def _space_to_batch(use: Use, operands: list[Any]) -> Any:
    blocks, pads = _spatial(use)
    data = use.input(0)
    fill = tirx.const(zero_of(use.result), data.dtype)

    def compute(image: Any) -> Any:
        def at(*index: Any) -> Any:
            shift, place = tirx.floordiv(index[0], data.shape[0]), [tirx.floormod(index[0], data.shape[0])]
            inside = []
            for axis in range(len(blocks)):
                rest = math.prod(blocks[axis + 1 :])
                own = tirx.floormod(tirx.floordiv(shift, rest), blocks[axis])
                where = index[1 + axis] * blocks[axis] + own - int(pads[axis][0])
                inside += [where >= 0, where < data.shape[1 + axis]]
                place.append(where)
            value = image(*place, *index[1 + len(blocks) :])
            return tirx.if_then_else(tirx.all(*inside), value, fill)

        return te.compute(use.result.shape, at, "output")

    return add_function(use.builder, "space_to_batch", operands[:1], compute)


def _batch_to_space(use: Use, operands: list[Any]) -> Any:
    blocks, crops = _spatial(use)
    batch = use.result.shape[0]

    def compute(image: Any) -> Any:
        def at(*index: Any) -> Any:
            own, place = number(0), []
            for axis, block in enumerate(blocks):
                where = index[1 + axis] + int(crops[axis][0])
                own = own * block + tirx.floormod(where, block)
                place.append(tirx.floordiv(where, block))
            return image(own * batch + index[0], *place, *index[1 + len(blocks) :])

        return te.compute(use.result.shape, at, "output")

    return add_function(use.builder, "batch_to_space", operands[:1], compute)


def _gather(use: Use, operands: list[Any]) -> Any:
    options, rank, places = use.options(tflite.GatherOptions), len(use.input(0).shape), use.input(1)
    batches, axis = options.BatchDims(), options.Axis() % max(rank, 1)
    if batches == 0 or batches > axis:
        return None
    inner = len(places.shape) - batches

    def compute(data: Any, indices: Any) -> Any:
        def at(*index: Any) -> Any:
            position = indices(*index[:batches], *index[axis : axis + inner])
            return data(*index[:axis], position, *index[axis + inner :])

        return te.compute(use.result.shape, at, "output")

    return add_checked_function(use.builder, "gather", operands[:2], compute)


def _gather_nd(use: Use, operands: list[Any]) -> Any:
    places = use.input(1)
    depth, outer = places.shape[-1], len(places.shape) - 1
    if places.dtype not in ("int32", "int64"):
        raise CompileError(f"indices of type {places.dtype} are not supported")

    def compute(data: Any, indices: Any) -> Any:
        def at(*index: Any) -> Any:
            position = [indices(*index[:outer], number(axis)) for axis in range(depth)]
            return data(*position, *index[outer:])

        return te.compute(use.result.shape, at, "output")

    return add_checked_function(use.builder, "gather_nd", operands[:2], compute)


def _lookup(use: Use, operands: list[Any]) -> Any:
    table = use.input(1)
    real = table.dtype != use.result.dtype
    if real and (table.dtype, use.result.dtype) != ("int8", "float32"):
        raise CompileError(f"rows of {table.dtype} as {use.result.dtype} are not supported")

    def compute(indices: Any, rows: Any) -> Any:
        def at(row: Any, *rest: Any) -> Any:
            value = rows(indices[row], *rest)
            if not real:
                return value
            return value.astype("float32") * tirx.FloatImm("float32", float(scale_of(table)))

        return te.compute(use.result.shape, at, "output")

    return add_checked_function(use.builder, "embedding_lookup", operands, compute)


def _update(use: Use, operands: list[Any]) -> Any:
    """Add a DYNAMIC_UPDATE_SLICE; starts out of range are clamped, as its definition says."""
    whole, part = use.input(0).shape, use.input(1).shape
    kind = use.dtype(2)

    def compute(data: Any, update: Any, start: Any) -> Any:
        def at(*index: Any) -> Any:
            inside, place = [], []
            for axis, (extent, size) in enumerate(zip(whole, part, strict=True)):
                first = tirx.max(tirx.min(start[number(axis)], number(extent - size, kind)), number(0, kind))
                where = index[axis] - first.astype("int32")
                inside += [where >= 0, where < size]
                place.append(tirx.max(tirx.min(where, number(size - 1)), number(0)))
            return tirx.if_then_else(tirx.all(*inside), update[tuple(place)], data[index])

        return te.compute(use.result.shape, at, "output")

    if not whole:
        return operands[1]
    return add_checked_function(use.builder, "dynamic_update_slice", operands, compute)


def _cumsum(use: Use, operands: list[Any]) -> Any:
    data, result = use.input(0), use.result
    if data.dtype not in ("float32", "int8", "int32", "int64"):
        raise CompileError(f"elements of type {data.dtype} are not supported")
    options = use.options(tflite.CumsumOptions)
    rank = len(data.shape)
    axis = int(np.ravel(use.constant(1))[0]) % rank
    quantised = data.dtype == "int8"
    value = operands[0]

    def term(element: Any) -> Any:
        return rescale_value(tirx.shift_left(element.astype("int32") - zero_of(data), number(_CUMSUM_SHIFT)), 0.5)

    if quantised:
        value = add_elementwise(use.builder, "cumsum_terms", [value], data.shape, term, in_place=False)
    if options.Exclusive():
        # Exclusive: each sum ends before its own term, so a zero is inserted first and the last term dropped.
        begin = 1 if options.Reverse() else 0
        pads = [0] * (2 * rank)
        pads[2 * axis + begin] = 1
        longer = relax.op.nn.pad(value, pads)
        shifted = relax.op.strided_slice(longer, axes=[axis], begin=[begin], end=[begin + data.shape[axis]])
        value = use.builder.emit(shifted)
    if options.Reverse():
        value = relax.op.flip(relax.op.cumsum(relax.op.flip(value, axis), axis), axis)
    else:
        value = relax.op.cumsum(value, axis)
    if not quantised:
        return value
    sums = use.builder.emit(value)
    real = float(2 * np.float64(scale_of(data)) / (np.float64(1 << _CUMSUM_SHIFT) * np.float64(scale_of(result))))

    # The kernel's sums begin with the value of a zero term, and wrap around. TVM takes that of int32 as undefined.
    start, middle = -zero_of(data) << (_CUMSUM_SHIFT - 1), 1 << 31

    def ending(total: Any) -> Any:
        above = total.astype("int64") + number(start + middle, "int64")
        whole = tirx.bitwise_and(above, number(2 * middle - 1, "int64")) - number(middle, "int64")
        return clamp_value(rescale_value(whole.astype("int32"), real) + zero_of(result), *limits(0, result))

    return add_elementwise(use.builder, "cumsum_int8", [sums], result.shape, ending, in_place=False)


def _fill(use: Use, operands: list[Any]) -> Any:
    shape = use.result.shape
    return relax.op.broadcast_to(relax.op.reshape(operands[1], ()), shape) if shape else operands[1]


def _broadcast_args(use: Use, operands: list[Any]) -> Any:
    """Add the broadcast shape of two shapes: where one has 1, the other's extent counts."""
    (count,) = use.result.shape
    kind = use.result.dtype

    def compute(*shapes: Any) -> Any:
        def at(place: Any) -> Any:
            extents = []
            for shape in shapes:
                missing = count - int(shape.shape[0])
                own = tirx.max(place - missing, number(0))
                extents.append(tirx.Select(place >= missing, shape[own], number(1, kind)))
            return tirx.Select(extents[0] == number(1, kind), extents[1], extents[0])

        return te.compute((count,), at, "output")

    return add_function(use.builder, "broadcast_args", operands, compute)


KERNEL = Kernel(
    tflite={
        "MIRROR_PAD": _mirror,
        "RESIZE_NEAREST_NEIGHBOR": _nearest,
        "RESIZE_BILINEAR": _bilinear,
        "SPACE_TO_BATCH_ND": _space_to_batch,
        "BATCH_TO_SPACE_ND": _batch_to_space,
        "GATHER": _gather,
        "GATHER_ND": _gather_nd,
        "EMBEDDING_LOOKUP": _lookup,
        "DYNAMIC_UPDATE_SLICE": _update,
        "CUMSUM": _cumsum,
        "FILL": _fill,
        "SHAPE": lambda use, _: relax.const(np.array(use.input(0).shape, use.result.dtype), use.result.dtype),
        "BROADCAST_ARGS": _broadcast_args,
        "BROADCAST_TO": lambda use, operands: relax.op.broadcast_to(operands[0], use.result.shape),
        "CAST": lambda use, operands: relax.op.astype(operands[0], use.result.dtype),
    }
)
