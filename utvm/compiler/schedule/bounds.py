# SPDX-License-Identifier: Apache-2.0
"""Indices and casts that C leaves undefined.

An index that depends on elements of a tensor may be out of range: ``x[i]`` becomes ``x[within(i, extent)]``, an
element of ``x`` whatever ``i`` is, and the operator reports the error afterwards. Nothing is added where the type
of the index keeps it in range. A float out of range of an integer becomes the nearest integer, and NaN becomes
0, or a limit where the operand has limits, which costs no instruction.
"""

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from utvm.compiler.kernels.functions import OPERATOR
from utvm.compiler.tvm_types import element_type

WITHIN = "within"
"""The C function, with the type of the index behind it: of an index and an extent."""

CHECKED = "utvm.checked"
"""The attribute of a function that calls it."""


def with_checked_indices(function: Any) -> Any:
    """A scheduled TIRx function in which no index leaves its tensor.

    Our own operators look up tables only, which have an entry for whatever they are asked for.
    """
    if function.attrs and OPERATOR in function.attrs:
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


_ROUNDINGS = ("round", "roundf", "rint", "rintf", "nearbyint", "nearbyintf", "trunc", "truncf")


def with_defined_casts(function: Any) -> Any:
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.Cast, _define)], order="post"))


def _define(cast: Any) -> Any:
    source, target = element_type(cast.value), element_type(cast)
    if not source.startswith("float") or not target.startswith(("int", "uint")):
        return cast
    limited = _limited(cast.value, target)
    if limited is not None:
        return limited.astype(target)
    return tirx.call_pure_extern(target, f"{target}_of_{source}", cast.value)


def _limited(value: Any, target: str) -> Any:
    """The same value with NaN as a limit, if it is limited to what an integer type holds; else None."""
    if isinstance(value, tvm.ir.Call) and value.args and str(getattr(value.args[0], "value", "")) in _ROUNDINGS:
        inner = _limited(value.args[1], target)
        return None if inner is None else tirx.call_pure_extern(element_type(value), value.args[0].value, inner)
    inner_kind, helper = (tirx.Min, "above") if isinstance(value, tirx.Max) else (tirx.Max, "below")
    if not isinstance(value, tirx.Max | tirx.Min) or not isinstance(value.a, inner_kind):
        return None
    bounds = (value.b, value.a.b)
    if not all(isinstance(bound, tirx.FloatImm) for bound in bounds):
        return None
    info = np.iinfo(target)
    if not all(info.min <= float(bound.value) <= info.max for bound in bounds):
        return None
    kind = element_type(value)
    return tirx.call_pure_extern(kind, f"{helper}_{kind}", value.a, value.b)
