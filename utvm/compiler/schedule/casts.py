# SPDX-License-Identifier: Apache-2.0
"""Casts from floats to integers, the same on every board: C leaves them undefined where a number is out of range.

Such a number becomes the nearest that the integer holds, and NaN becomes 0. Where the operand has limits already,
NaN becomes one of them, which costs no instruction.
"""

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from utvm.compiler.tvm_types import element_type

_ROUNDINGS = ("round", "roundf", "rint", "rintf", "nearbyint", "nearbyintf", "trunc", "truncf")


def with_defined_casts(function: Any) -> Any:
    """A function whose casts from floats to integers are calls of helpers in C."""
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
