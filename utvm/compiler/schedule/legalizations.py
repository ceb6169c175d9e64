# SPDX-License-Identifier: Apache-2.0
"""Legalisations of Relax operators for which TVM has none, or one that is wrong at the edges.

- Maximum and minimum: NaN makes a NaN, except in pooling windows, and infinities count. ArgMax finds an index
  always.
- Running sums and products, and the best of a row, by ranks: no sort, and no more memory than a row.
- Scatter and take: an index out of range stays out of range when indices are joined to one offset.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as building

from utvm.compiler.tvm_types import dtype_of, element_type, shape_of

_INDEX = "int64"


def _legalize_pool(usual: Callable[..., Any], rank: int, builder: Any, call: Any) -> Any:
    """Start a float window from minus infinity, not from the lowest finite number."""
    attributes, source = call.attrs, call.args[0]
    if attributes.out_layout != attributes.layout:
        return call
    dtype, result = dtype_of(source.ty), f"max_pool{rank}d"

    def pool(tensor: Any) -> Any:
        return usual(
            tensor,
            kernel=attributes.pool_size,
            stride=attributes.strides,
            dilation=attributes.dilation,
            padding=attributes.padding,
            pool_type="max",
            ceil_mode=attributes.ceil_mode,
            layout=attributes.layout,
        )

    if not dtype.startswith("float"):
        return builder.call_te(pool, source, primfunc_name_hint=result)
    # Relax uses 64-bit indices, and fuses only functions that do so, too.
    tensor = te.placeholder([tirx.IntImm("int64", extent) for extent in shape_of(source.ty)], dtype, "x")
    function = te.create_prim_func([tensor, pool(tensor)]).without_attr("global_symbol")
    lowest = float(np.finfo(dtype).min)

    def infinite(node: Any) -> Any:
        return tirx.const(float("-inf"), dtype) if float(node.value) == lowest else node

    body = tvm_ffi.structural_map(function.body, [(tirx.FloatImm, infinite)], order="post")
    return relax.call_tir(builder.add_func(function.with_body(body), result), [source], call.ty)


def _extreme(of_numbers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: tirx.Select(tirx.isnan(one), one, of_numbers(other, one))


def _legalize_pair(usual: Callable[..., Any], combine: Callable[[Any, Any], Any], builder: Any, call: Any) -> Any:
    """Propagate NaN from the second operand, too; the C helpers propagate the first."""
    one, other = call.args
    if not dtype_of(call.ty).startswith("float") or isinstance(other, ir.GenericConst):
        return builder.call_te(usual, one, other)

    def pair(left: Any, right: Any) -> Any:
        def element(*place: Any) -> Any:
            a, b = (item(*_spread_along(item, place)) for item in (left, right))
            return tirx.Select(tirx.isnan(b), b, combine(a, b))

        return te.compute(list(call.ty.shape), element, name="extreme")

    return builder.call_te(pair, one, other, primfunc_name_hint=usual.__name__)


def _spread_along(tensor: Any, place: tuple[Any, ...]) -> list[Any]:
    rank = len(tensor.shape)
    return [0 if int(size) == 1 else item for size, item in zip(tensor.shape, place[len(place) - rank :], strict=True)]


def _legalize(
    usual: Callable[..., Any], combine: Callable[[Any, Any], Any], start: float, builder: Any, call: Any
) -> Any:
    source, attributes = call.args[0], call.attrs
    if not dtype_of(source.ty).startswith("float"):
        return builder.call_te(usual, source, attributes.axis, attributes.keepdims)
    rank = len(shape_of(source.ty))
    axes = range(rank) if attributes.axis is None else [int(axis) % rank for axis in attributes.axis]
    reducer = te.comm_reducer(combine, lambda kind: tirx.const(start, kind))
    return builder.call_te(
        lambda tensor: _reduce(tensor, sorted(axes), bool(attributes.keepdims), reducer),
        source,
        primfunc_name_hint=usual.__name__,
    )


def _reduce(source: Any, axes: list[int], keepdims: bool, reducer: Any) -> Any:
    extents = [int(extent) for extent in source.shape]
    loops = {axis: te.reduce_axis((0, extents[axis]), f"k{axis}") for axis in axes}

    def element(*place: Any) -> Any:
        places = list(place) if keepdims else _spread(place, axes, len(extents))
        return reducer(
            source(*(loops[axis].var if axis in loops else places[axis] for axis in range(len(extents)))),
            axis=list(loops.values()),
        )

    shape = [1 if axis in loops else extent for axis, extent in enumerate(extents) if keepdims or axis not in loops]
    return te.compute(shape, element, name=source.op.name)


def _spread(place: tuple[Any, ...], axes: list[int], rank: int) -> list[Any]:
    indices = iter(place)
    return [None if axis in axes else next(indices) for axis in range(rank)]


def _legalize_index(name: str, better: Callable[[Any, Any], Any], builder: Any, call: Any) -> Any:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    keepdims = bool(call.attrs.keepdims)
    return builder.call_te(
        lambda source: _search(source, axis, keepdims, better), call.args[0], primfunc_name_hint=name
    )


def _search(source: Any, axis: int | None, keepdims: bool, better: Callable[[Any, Any], Any]) -> Any:
    """Return the index of the first best element, along an axis or in the flattened tensor."""
    extents = [int(extent) for extent in source.shape]
    axes = list(range(len(extents))) if axis is None else [axis % len(extents)]
    remaining = [number for number in range(len(extents)) if number not in axes]

    # Loops run upwards: keep the first of equal elements.
    def choose(best: Any, new: Any) -> Any:
        take = tirx.any(best[0] < 0, better(new[1], best[1]))
        return tuple(tirx.Select(take, item, old) for old, item in zip(best, new, strict=True))

    reducer = te.comm_reducer(choose, lambda index, element: (tirx.const(-1, index), tirx.const(0, element)))
    loops = {number: te.reduce_axis((0, extents[number]), f"k{number}") for number in axes}

    def element(*places: Any) -> Any:
        place = dict(zip(remaining, places, strict=True)) | {number: loop.var for number, loop in loops.items()}
        index: Any = tirx.const(0, _INDEX)
        for position, number in enumerate(axes):
            stride = math.prod(extents[axis] for axis in axes[position + 1 :])
            index = index + place[number].astype(_INDEX) * stride
        return reducer((index, source(*(place[number] for number in range(len(extents))))), list(loops.values()))

    indices, _ = te.compute(
        [extents[number] for number in remaining] or [1], element if remaining else lambda _: element()
    )
    shape = [1 if number in axes else extent for number, extent in enumerate(extents)]
    return topi.reshape(indices, shape if keepdims else [extents[number] for number in remaining])


_Combine = Callable[[Any, Any], Any]


def _legalize_scan(name: str, combine: _Combine, neutral: int, builder: Any, call: Any) -> Any:
    axis, exclusive = int(call.attrs.axis), bool(call.attrs.exclusive)
    return builder.call_te(
        lambda source: _scan(source, name, combine, neutral, axis, exclusive), call.args[0], primfunc_name_hint=name
    )


def _scan(source: Any, name: str, combine: _Combine, neutral: int, axis: int, exclusive: bool) -> Any:
    extents = [int(extent) for extent in source.shape]
    axis %= len(extents)
    before, length, behind = 1, extents[axis], 1
    for number, extent in enumerate(extents):
        before, behind = before * (extent if number < axis else 1), behind * (extent if number > axis else 1)

    def body(operand: Any, result: Any) -> Any:
        with IRBuilder() as ir:
            read, target = building.buffer_proxy(operand), building.buffer_proxy(result)
            with building.serial(0, before) as outer, building.serial(0, behind) as inner:
                first = outer * (length * behind) + inner
                target[first] = tirx.const(neutral, kind) if exclusive else read[first]
                with building.serial(0, length - 1) as step:
                    place = first + step * behind
                    target[place + behind] = combine(target[place], read[place if exclusive else place + behind])
            return ir.get()

    kind = str(getattr(source.dtype, "dtype", source.dtype))
    return te.extern(
        [source.shape], [source], lambda operand, results: body(operand[0], results[0]), dtype=kind, name=name
    )


def _legalize_best(builder: Any, call: Any) -> Any:
    attributes = call.attrs
    rank = len(call.args[0].ty.shape)
    axis, count, kind = int(attributes.axis) % rank, int(attributes.k), str(attributes.dtype)
    largest, result_kind = bool(attributes.largest), str(attributes.ret_type)

    def make(source: Any) -> Any:
        best = _best(source, axis, count, largest, kind)
        return best if result_kind == "both" else best[0 if result_kind == "values" else 1]

    return builder.call_te(make, call.args[0], primfunc_name_hint="topk")


def _best(source: Any, axis: int, count: int, largest: bool, kind: str) -> list[Any]:
    extents = [int(extent) for extent in source.shape]
    count = count if count > 0 else extents[axis]
    other = te.reduce_axis((0, extents[axis]), "other")

    def at(place: tuple[Any, ...], index: Any) -> Any:
        return source(*place[:axis], index, *place[axis + 1 :])

    def comes_before(*place: Any) -> Any:
        mine, its = at(place, place[axis]), at(place, other.var)
        better = its > mine if largest else its < mine
        same = its == mine
        if element_type(mine).startswith("float"):
            # NaN is greater than all numbers.
            my_nan, its_nan = tirx.isnan(mine), tirx.isnan(its)
            greater = tirx.all(its_nan, tirx.Not(my_nan)) if largest else tirx.all(my_nan, tirx.Not(its_nan))
            better = tirx.any(better, greater)
            same = tirx.any(same, tirx.all(its_nan, my_nan))
        first = tirx.any(better, tirx.all(same, other.var < place[axis]))
        return te.sum(tirx.Select(first, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=other)

    ranks = te.compute(extents, comes_before, name="ranks")
    candidate = te.reduce_axis((0, extents[axis]), "found")
    shape = [count if number == axis else extent for number, extent in enumerate(extents)]

    def which(*place: Any) -> Any:
        mine = ranks(*place[:axis], candidate.var, *place[axis + 1 :])
        here = tirx.Select(mine == place[axis], candidate.var, tirx.const(0, "int32"))
        return te.sum(here, axis=candidate)

    places = te.compute(shape, which, name="places")
    values = te.compute(shape, lambda *place: at(place, places(*place)), name="best")
    return [values, te.compute(shape, lambda *place: places(*place).astype(kind), name="indices")]


def _legalize_by_rows(builder: Any, call: Any) -> Any:
    reduction = str(call.attrs.reduction)

    def scatter_nd(data: Any, indices: Any, updates: Any) -> Any:
        last = len(indices.shape) - 1
        extents = [int(extent) for extent in data.shape]
        known = _bound(indices, extents, lambda at: _choose(at[last], extents[: int(indices.shape[last])]), 0)
        return topi.scatter_nd(data, topi.transpose(known, [last, *range(last)]), updates, reduction)

    return builder.call_te(scatter_nd, *call.args)


def _legalize_by_elements(builder: Any, call: Any) -> Any:
    reduction = str(call.attrs.reduction)

    def scatter_elements(data: Any, indices: Any, updates: Any) -> Any:
        extents = [int(extent) for extent in data.shape]
        axis = int(call.attrs.axis) % len(extents)
        known = _bound_along(axis, indices, extents)
        if all(
            int(one) == other for at, (one, other) in enumerate(zip(indices.shape, extents, strict=True)) if at != axis
        ):
            return topi.scatter_elements(data, known, updates, axis, reduction)
        # TVM indexes the elements with the indices' extents, so flatten them to one dimension.
        flat = [
            topi.reshape(item, (math.prod(map(int, item.shape)),))
            for item in (data, _places(axis, known, extents), updates)
        ]
        return topi.reshape(topi.scatter_elements(*flat, 0, reduction), data.shape)

    return builder.call_te(scatter_elements, *call.args)


def _places(axis: int, indices: Any, extents: Sequence[int]) -> Any:
    def place(*at: Any) -> Any:
        index = indices[at]
        beside = index + tirx.Select(index < 0, tirx.const(extents[axis], "int64"), tirx.const(0, "int64"))
        position = tirx.const(0, "int64")
        for number, extent in enumerate(extents):
            position = position * extent + (beside if number == axis else at[number].astype("int64"))
        return tirx.Select(beside < 0, tirx.const(-2 * math.prod(extents), "int64"), position)

    return te.compute(indices.shape, place, "place")


def _legalize_by_dimensions(builder: Any, call: Any) -> Any:
    def index_put(data: Any, indices: Any, values: Any) -> Any:
        extents = [int(extent) for extent in data.shape]
        known = [_bound_along(axis, index, extents) for axis, index in enumerate(indices)]
        return topi.index_put(data, known, values, bool(call.attrs.accumulate))

    data, indices, values = call.args
    several = list(indices.fields) if isinstance(indices, relax.Tuple) else [indices]
    return builder.call_te(index_put, data, several, values)


def _legalize_take(builder: Any, call: Any) -> Any:
    # Without an axis there is one dimension: Relax accepts no other tensor then.
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return builder.call_te(topi.take, *call.args, axis, mode=str(call.attrs.mode))


def _bound_along(axis: int, indices: Any, extents: Sequence[int]) -> Any:
    # Negative indices count from the end.
    return _bound(indices, extents, lambda _: tirx.const(extents[axis], "int64"), -extents[axis])


def _bound(indices: Any, extents: Sequence[int], extent_of: Callable[[Any], Any], lowest: int) -> Any:
    outside = tirx.const(-2 * math.prod(extents), "int64")

    def place(*at: Any) -> Any:
        index = indices[at].astype("int64")
        inside = tirx.all(index >= tirx.const(lowest, "int64"), index < extent_of(at))
        return tirx.Select(inside, index, outside)

    return te.compute(indices.shape, place, "known")


def _choose(number: Any, extents: Sequence[int]) -> Any:
    extent_at = tirx.const(extents[-1], "int64")
    for place, extent in enumerate(extents[:-1]):
        extent_at = tirx.Select(number == tirx.const(place, "int32"), tirx.const(extent, "int64"), extent_at)
    return extent_at


LEGALIZATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.argmax": functools.partial(_legalize_index, "argmax", lambda one, other: one > other),
    "relax.argmin": functools.partial(_legalize_index, "argmin", lambda one, other: one < other),
    "relax.max": functools.partial(_legalize, topi.max, _extreme(tirx.max), float("-inf")),
    "relax.min": functools.partial(_legalize, topi.min, _extreme(tirx.min), float("inf")),
    "relax.maximum": functools.partial(_legalize_pair, topi.maximum, tirx.max),
    "relax.minimum": functools.partial(_legalize_pair, topi.minimum, tirx.min),
    **{
        f"relax.nn.max_pool{rank}d": functools.partial(_legalize_pool, getattr(topi.nn, f"pool{rank}d"), rank)
        for rank in (1, 2, 3)
    },
    "relax.cumsum": functools.partial(_legalize_scan, "cumsum", lambda one, other: one + other, 0),
    "relax.cumprod": functools.partial(_legalize_scan, "cumprod", lambda one, other: one * other, 1),
    "relax.topk": _legalize_best,
    "relax.scatter_nd": _legalize_by_rows,
    "relax.scatter_elements": _legalize_by_elements,
    "relax.index_put": _legalize_by_dimensions,
    "relax.take": _legalize_take,
}
"""Relax operators legalised by functions of this module."""
