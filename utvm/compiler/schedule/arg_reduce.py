# SPDX-License-Identifier: Apache-2.0
"""ArgMax and ArgMin whose result is the index of an element, whatever the elements are.

TVM begins the search with the element type's extreme at index -1, and that is its result where no element is
better: for a row of -128 in int8, say, or of minus infinity.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx, topi

_INDEX = "int64"


def legalizations() -> dict[str, Callable[[Any, Any], Any]]:
    """How Relax's operators become TIRx: operator to function, as ``LegalizeOps`` takes them."""
    return {
        "relax.argmax": functools.partial(_legalize, "argmax", lambda one, other: one > other),
        "relax.argmin": functools.partial(_legalize, "argmin", lambda one, other: one < other),
    }


def _legalize(name: str, better: Callable[[Any, Any], Any], builder: Any, call: Any) -> Any:
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
