# SPDX-License-Identifier: Apache-2.0
"""The largest and the smallest float of two, along axes or in windows, also where some are no numbers or infinite.

TVM begins with the lowest or the highest finite number, which is its result for a row of infinities. What is no
number makes a result that is none, as in numpy, but in windows: there, as in TensorFlow Lite, it does not count.

ArgMax and ArgMin give the index of an element, whatever the elements are. TVM begins with the element type's
extreme at index -1, which is its result where no element is better: for a row of -128 in int8, say.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax, te, tirx, topi

from utvm.compiler.tvm_types import dtype_of, shape_of

_INDEX = "int64"


def _legalize_pool(usual: Callable[..., Any], rank: int, builder: Any, call: Any) -> Any:
    """Begin a float's window with the lowest number that there is, not with the lowest finite one."""
    attributes, source = call.attrs, call.args[0]
    if attributes.out_layout != attributes.layout:
        return call
    dtype, result = dtype_of(source.ty), f"max_pool{rank}d"

    def pooled(tensor: Any) -> Any:
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
        return builder.call_te(pooled, source, primfunc_name_hint=result)
    # Relax counts in 64 bits, and fuses only what does so, too.
    tensor = te.placeholder([tirx.IntImm("int64", extent) for extent in shape_of(source.ty)], dtype, "x")
    function = te.create_prim_func([tensor, pooled(tensor)]).without_attr("global_symbol")
    lowest = float(np.finfo(dtype).min)

    def infinite(node: Any) -> Any:
        return tirx.const(float("-inf"), dtype) if float(node.value) == lowest else node

    body = tvm_ffi.structural_map(function.body, [(tirx.FloatImm, infinite)], order="post")
    return relax.call_tir(builder.add_func(function.with_body(body), result), [source], call.ty)


def _larger(one: Any, other: Any) -> Any:
    return tirx.Select(tirx.isnan(one), one, tirx.max(other, one))


def _smaller(one: Any, other: Any) -> Any:
    return tirx.Select(tirx.isnan(one), one, tirx.min(other, one))


def _legalize_pair(usual: Callable[..., Any], combine: Callable[[Any, Any], Any], builder: Any, call: Any) -> Any:
    """Look at the second operand, too: the first that is no number stays as C is written."""
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
    return [
        0 if int(extent) == 1 else item
        for extent, item in zip(tensor.shape, place[len(place) - rank :], strict=True)
    ]


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

    shape = [
        1 if axis in loops else extent for axis, extent in enumerate(extents) if keepdims or axis not in loops
    ]
    return te.compute(shape, element, name=source.op.name)


def _spread(place: tuple[Any, ...], axes: list[int], rank: int) -> list[Any]:
    kept = iter(place)
    return [None if axis in axes else next(kept) for axis in range(rank)]


def _legalize_index(name: str, better: Callable[[Any, Any], Any], builder: Any, call: Any) -> Any:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    keepdims = bool(call.attrs.keepdims)
    return builder.call_te(
        lambda source: _search(source, axis, keepdims, better), call.args[0], primfunc_name_hint=name
    )


def _search(source: Any, axis: int | None, keepdims: bool, better: Callable[[Any, Any], Any]) -> Any:
    """The index, along an axis or into all elements in row-major order, of the first of the best."""
    extents = [int(extent) for extent in source.shape]
    axes = list(range(len(extents))) if axis is None else [axis % len(extents)]
    remaining = [number for number in range(len(extents)) if number not in axes]

    # The loops run upwards, so the first of equal elements stays.
    def choose(best: Any, new: Any) -> Any:
        take = tirx.any(best[0] < 0, better(new[1], best[1]))
        return tuple(tirx.Select(take, item, held) for held, item in zip(best, new, strict=True))

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


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "relax.argmax": functools.partial(_legalize_index, "argmax", lambda one, other: one > other),
    "relax.argmin": functools.partial(_legalize_index, "argmin", lambda one, other: one < other),
    "relax.max": functools.partial(_legalize, topi.max, _larger, float("-inf")),
    "relax.min": functools.partial(_legalize, topi.min, _smaller, float("inf")),
    "relax.maximum": functools.partial(_legalize_pair, topi.maximum, tirx.max),
    "relax.minimum": functools.partial(_legalize_pair, topi.minimum, tirx.min),
    **{
        f"relax.nn.max_pool{rank}d": functools.partial(_legalize_pool, getattr(topi.nn, f"pool{rank}d"), rank)
        for rank in (1, 2, 3)
    },
}
