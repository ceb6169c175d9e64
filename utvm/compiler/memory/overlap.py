# SPDX-License-Identifier: Apache-2.0
"""Which inputs a function's output may lie over, because each element is read before its place is written."""

from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from utvm.compiler.kernels.functions import OPERATOR, OVERLAP
from utvm.compiler.library import item_bytes
from utvm.compiler.tvm_types import element_type


def with_overlaps(function: Any) -> Any:
    """Add the attribute to a lowered function of one output, where whoever made it did not.

    Element by element in place, which is a distance of 0, is found for functions that are one nest of loops around
    one assignment, each element being assigned once, from inputs' elements of the same size and number.
    """
    if function.attrs and OVERLAP in function.attrs:
        return function
    return function.with_attr(OVERLAP, _in_place(function))


def overlaps_of(function: Any) -> tuple[int | None, ...]:
    """Read the attribute."""
    distances = [int(distance) for distance in function.attrs[OVERLAP]]
    return tuple(None if distance < 0 else distance for distance in distances)


def _in_place(function: Any) -> list[int]:
    *inputs, output = function.params
    nowhere = [-1] * len(inputs)
    if function.attrs and OPERATOR in function.attrs:
        return nowhere  # Its C helpers read through pointers.
    loops, store = _single_store(function.body)
    if store is None or not store.buffer.same_as(output) or not _visits_once(store.indices[0], loops):
        return nowhere
    wanted = hash(output)
    distances = []
    loads: list[Any] = []
    tvm_ffi.structural_walk(function.body, (ir.TensorLoad, loads.append), order="pre")
    if any(hash(load.source) == wanted for load in loads):
        return nowhere
    for parameter in inputs:
        indices = [load.indices[0] for load in loads if hash(load.source) == hash(parameter)]
        same = all(tvm_ffi.structural_equal(index, store.indices[0], map_free_vars=False) for index in indices)
        alike = item_bytes(element_type(parameter)) == item_bytes(element_type(output))
        distances.append(0 if indices and same and alike else -1)
    return distances


def _single_store(body: Any) -> tuple[list[Any], Any]:
    loops = []
    while True:
        kind = type(body).__name__
        if kind == "For":
            loops.append(body)
            body = body.body
        elif kind == "AttrStmt":
            body = body.body
        elif kind == "SeqStmt" and all(type(item).__name__ == "Bind" for item in list(body.seq)[:-1]):
            body = list(body.seq)[-1]
        else:
            return loops, body if kind == "BufferStore" else None


def _visits_once(index: Any, loops: list[Any]) -> bool:
    variables = [loop.loop_var for loop in loops]
    factors = _linear(index, variables)
    if factors is None:
        return False
    reach = 0
    for factor, loop in sorted(zip(factors, loops, strict=True), key=lambda item: item[0]):
        if not isinstance(loop.extent, tirx.IntImm) or not isinstance(loop.min, tirx.IntImm):
            return False
        if int(loop.extent) == 1:
            continue
        if factor <= reach:
            return False
        reach += factor * (int(loop.extent) - 1)
    return True


def _linear(index: Any, variables: list[Any]) -> list[int] | None:
    terms = list(sym.detect_linear_equation(index, variables))
    if not terms or not all(isinstance(term, tirx.IntImm) for term in terms):
        return None
    return [int(term) for term in terms[:-1]]
