# SPDX-License-Identifier: Apache-2.0
"""Schedules that were found by measuring: how a function is named for them, and how one is replayed.

A schedule is a trace of TVM's, as JSON: what was done to a function, step by step, with each choice that was made.
"""

import json
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from utvm.compiler.accelerator import INCLUDE
from utvm.compiler.kernels.functions import KERNEL, LAYER, OPERATOR
from utvm.compiler.schedule.loops import MACS, SCHEDULED, has_blocks, macs_of
from utvm.compiler.schedule.tile_choice import ROWS
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import element_type
from utvm.errors import CompileError

TRACED = "loops as they were tuned"
"""Name in reports of the kernel of such a function."""


def layer_of(function: Any) -> str:
    """Tuning's name of a layer; empty where there is no choice of kernels.

    Functions that compute the same, of whatever model, have one name.
    """
    attributes = dict(function.attrs.items()) if function.attrs else {}
    if LAYER in attributes:
        return str(attributes[LAYER])
    if OPERATOR in attributes or INCLUDE in attributes or not has_blocks(function) or not _is_plain(function):
        return ""
    shapes = ["x".join(str(int(extent)) for extent in parameter.ty.shape) or "1" for parameter in function.params]
    kind = element_type(function.params[-1])
    return f"{kind} {' '.join(shapes[:-1])} to {shapes[-1]} #{tvm_ffi.structural_hash(subject(function)):016x}"


def subject(function: Any) -> Any:
    """The function as schedules are made for it: by one name, with 32-bit indices."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tirx.transform.ForceNarrowIndexToInt32()(module)["main"]


def arranged(functions: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Functions, those that were tuned for a target with their loops arranged so."""
    if not target.tuned:
        return dict(functions)
    return {name: _apply_trace(function, target) for name, function in functions.items()}


def _apply_trace(function: Any, target: Target) -> Any:
    attributes = function.attrs or {}
    trace = "" if LAYER in attributes else target.choice(layer_of(function))
    return replayed(function, trace) if trace and trace not in {item.name for item in ROWS} else function


def replayed(function: Any, trace: str) -> Any:
    """A function with its loops arranged as a trace has it; raises as :func:`arranged`."""
    made = plan_of(function, trace).mod["main"]
    return made.with_attr({SCHEDULED: 1, KERNEL: TRACED, MACS: macs_of(function)})


def plan_of(function: Any, trace: str) -> Any:
    """The schedule of a function to which a trace has been done; raises as :func:`arranged`."""
    plan = s_tir.Schedule(tvm.IRModule({"main": subject(function)}))
    try:
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), plan)
    except Exception as error:  # TVM raises nearly every built-in kind, and its own
        raise CompileError(
            f"what was tuned for {layer_of(function)} cannot be done to it",
            "is the log of this version of TVM? tune again, into another log",
        ) from error
    return plan


def _is_plain(function: Any) -> bool:
    extents = [extent for parameter in function.params for extent in parameter.ty.shape]
    return all(isinstance(extent, tirx.IntImm) for extent in extents)
