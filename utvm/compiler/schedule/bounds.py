# SPDX-License-Identifier: Apache-2.0
"""Indices that come from a model's inputs: each is looked at before anything is read or written by it.

A loop's index is in range because the loop says so. An index that depends on a tensor's elements is in range only
if whoever made the input took care; so ``x[i]`` becomes ``x[within(i, extent)]``, which is an element of ``x``
whatever ``i`` is, and the operator says afterwards that there was one out of range. Where the element's type alone
keeps the index in range, as that of a table of 256 entries, nothing is added.
"""

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from utvm.compiler.tvm_types import element_type

WITHIN = "within"
"""The C function, with the type of the index behind it: of an index and an extent."""

_OPERATOR = "utvm.operator"

CHECKED = "utvm.checked"
"""The attribute of a function that calls it."""


def with_checked_indices(function: Any) -> Any:
    """A scheduled TIRx function in which no index leaves its tensor.

    Our own operators look up tables only, which have an entry for whatever they are asked for.
    """
    if function.attrs and _OPERATOR in function.attrs:
        return function
    doubtful = _doubtful_variables(function)
    changed: list[Any] = []

    def checked(buffer: Any, indices: Any) -> list[Any] | None:
        pairs = list(zip(indices, buffer.shape, strict=True))
        wrong = [_is_doubtful(index, doubtful) and not _fits(index, extent) for index, extent in pairs]
        if not any(wrong):
            return None
        changed.append(buffer)
        return [_within(*pair) if bad else pair[0] for pair, bad in zip(pairs, wrong, strict=True)]

    def load(node: Any) -> Any:
        indices = checked(node.source, node.indices)
        return node if indices is None else tirx.BufferLoad(node.source, indices)

    def store(node: Any) -> Any:
        indices = checked(node.buffer, node.indices)
        return node if indices is None else tirx.BufferStore(node.buffer, node.value, indices)

    changes = [(ir.TensorLoad, load), (tirx.BufferStore, store)]
    body = tvm_ffi.structural_map(function.body, changes, order="post")
    return function.with_body(body).with_attr(CHECKED, True) if changed else function


def _doubtful_variables(function: Any) -> set[int]:
    found: set[int] = set()

    def note(variable: Any, *values: Any) -> None:
        if any(_is_doubtful(value, found) for value in values):
            found.add(hash(variable))

    def block(node: Any) -> None:
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            note(axis.var, value)

    # From the outside in: a variable's values are seen before the variable is used.
    tvm_ffi.structural_walk(
        function.body,
        [
            (tirx.For, lambda node: note(node.loop_var, node.min, node.extent)),
            ((tirx.Bind, tirx.Let), lambda node: note(node.var, node.value)),
            (s_tir.SBlockRealize, block),
        ],
        order="pre",
    )
    return found


def _is_doubtful(expression: Any, variables: set[int]) -> bool:
    found: list[Any] = []

    def look(node: Any) -> None:
        if not isinstance(node, ir.Var) or hash(node) in variables:
            found.append(node)

    tvm_ffi.structural_walk(expression, [((ir.TensorLoad, ir.Var), look)], order="pre")
    return bool(found)


def _fits(index: Any, extent: Any) -> bool:
    bound = sym.Analyzer().const_int_bound(index)
    return int(bound.min_value) >= 0 and int(bound.max_value) < int(extent)


def _within(index: Any, extent: Any) -> Any:
    kind = element_type(index)
    return tirx.call_pure_extern(index.ty, f"{WITHIN}_{kind}", index, tirx.const(int(extent), kind))
