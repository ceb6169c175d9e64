# SPDX-License-Identifier: Apache-2.0
"""Running sums and products, and the best of a row: what TVM leaves to its runtime.

No sorting is needed for the best few of a row: the place of each element is the number of those that come before
it, which takes as many steps as a row has pairs, but no more memory than a row.
"""

import functools
from collections.abc import Callable
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as building

from utvm.compiler.tvm_types import element_type

_Combine = Callable[[Any, Any], Any]


def _legalize_scan(name: str, combine: _Combine, neutral: int, builder: Any, call: Any) -> Any:
    axis, exclusive = int(call.attrs.axis), bool(call.attrs.exclusive)
    return builder.call_te(
        lambda source: _scan(source, name, combine, neutral, axis, exclusive),
        call.args[0],
        primfunc_name_hint=name,
    )


def _scan(source: Any, name: str, combine: _Combine, neutral: int, axis: int, exclusive: bool) -> Any:
    extents = [int(extent) for extent in source.shape]
    axis %= len(extents)
    before, length, behind = 1, extents[axis], 1
    for number, extent in enumerate(extents):
        before, behind = before * (extent if number < axis else 1), behind * (extent if number > axis else 1)

    def body(given: Any, result: Any) -> Any:
        with IRBuilder() as ir:
            read, written = building.buffer_proxy(given), building.buffer_proxy(result)
            with building.serial(0, before) as outer, building.serial(0, behind) as inner:
                first = outer * (length * behind) + inner
                written[first] = (
                    tirx.const(neutral, str(getattr(source.dtype, "dtype", source.dtype)))
                    if exclusive
                    else read[first]
                )
                with building.serial(0, length - 1) as step:
                    place = first + step * behind
                    written[place + behind] = combine(written[place], read[place if exclusive else place + behind])
            return ir.get()

    kind = str(getattr(source.dtype, "dtype", source.dtype))
    return te.extern(
        [source.shape], [source], lambda given, results: body(given[0], results[0]), dtype=kind, name=name
    )


def _legalize_best(builder: Any, call: Any) -> Any:
    attributes = call.attrs
    rank = len(call.args[0].ty.shape)
    axis, count, kind = int(attributes.axis) % rank, int(attributes.k), str(attributes.dtype)
    largest, wanted = bool(attributes.largest), str(attributes.ret_type)

    def make(source: Any) -> Any:
        best = _best(source, axis, count, largest, kind)
        return best if wanted == "both" else best[0 if wanted == "values" else 1]

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
            # What is no number is greater than all numbers.
            my_nan, its_nan = tirx.isnan(mine), tirx.isnan(its)
            greater = tirx.all(its_nan, tirx.Not(my_nan)) if largest else tirx.all(my_nan, tirx.Not(its_nan))
            better = tirx.any(better, greater)
            same = tirx.any(same, tirx.all(its_nan, my_nan))
        first = tirx.any(better, tirx.all(same, other.var < place[axis]))
        return te.sum(tirx.Select(first, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=other)

    ranks = te.compute(extents, comes_before, name="ranks")
    found = te.reduce_axis((0, extents[axis]), "found")
    shape = [count if number == axis else extent for number, extent in enumerate(extents)]

    def which(*place: Any) -> Any:
        mine = ranks(*place[:axis], found.var, *place[axis + 1 :])
        here = tirx.Select(mine == place[axis], found.var, tirx.const(0, "int32"))
        return te.sum(here, axis=found)

    places = te.compute(shape, which, name="places")
    values = te.compute(shape, lambda *place: at(place, places(*place)), name="best")
    return [values, te.compute(shape, lambda *place: places(*place).astype(kind), name="indices")]


RULES: dict[str, Callable[[Any, Any], Any]] = {
    "relax.cumsum": functools.partial(_legalize_scan, "cumsum", lambda one, other: one + other, 0),
    "relax.cumprod": functools.partial(_legalize_scan, "cumprod", lambda one, other: one * other, 1),
    "relax.topk": _legalize_best,
}
