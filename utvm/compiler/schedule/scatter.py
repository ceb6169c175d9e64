# SPDX-License-Identifier: Apache-2.0
"""Indices of which TVM makes others, that are in range of a tensor when those of the input were not.

Scattering joins the indices of one element to a place, which may be another element's: so an index that its own
dimension does not have becomes one that no dimension has, before they are joined. Taking from a whole tensor takes
an index apart, and only its remainder is looked at: so it is taken as one of the only dimension.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi


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
            int(one) == other
            for at, (one, other) in enumerate(zip(indices.shape, extents, strict=True))
            if at != axis
        ):
            return topi.scatter_elements(data, known, updates, axis, reduction)
        # TVM looks for the elements as if the indices had the tensor's extents: so there is one dimension only.
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
        found = tirx.const(0, "int64")
        for number, extent in enumerate(extents):
            found = found * extent + (beside if number == axis else at[number].astype("int64"))
        return tirx.Select(beside < 0, tirx.const(-2 * math.prod(extents), "int64"), found)

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
    # Without an axis there is one dimension: Relax takes no other tensor then.
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
    return builder.call_te(topi.take, *call.args, axis, mode=str(call.attrs.mode))


def _bound_along(axis: int, indices: Any, extents: Sequence[int]) -> Any:
    # Negative ones count from the end.
    return _bound(indices, extents, lambda _: tirx.const(extents[axis], "int64"), -extents[axis])


def _bound(indices: Any, extents: Sequence[int], extent_of: Callable[[Any], Any], lowest: int) -> Any:
    outside = tirx.const(-2 * math.prod(extents), "int64")

    def known(*at: Any) -> Any:
        index = indices[at].astype("int64")
        inside = tirx.all(index >= tirx.const(lowest, "int64"), index < extent_of(at))
        return tirx.Select(inside, index, outside)

    return te.compute(indices.shape, known, "known")


def _choose(number: Any, extents: Sequence[int]) -> Any:
    chosen = tirx.const(extents[-1], "int64")
    for place, extent in enumerate(extents[:-1]):
        chosen = tirx.Select(number == tirx.const(place, "int32"), tirx.const(extent, "int64"), chosen)
    return chosen


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "relax.scatter_nd": _legalize_by_rows,
    "relax.scatter_elements": _legalize_by_elements,
    "relax.index_put": _legalize_by_dimensions,
    "relax.take": _legalize_take,
}
