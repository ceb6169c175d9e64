# SPDX-License-Identifier: Apache-2.0
"""Schedules for operators without their own, and tuned schedules (TVM traces as JSON). Results never change."""

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from utvm.compiler.accelerator import INCLUDE
from utvm.compiler.kernels.functions import KERNEL, LAYER, OPERATOR
from utvm.compiler.schedule import tile_choice, tiles
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import element_type
from utvm.errors import CompileError

SCHEDULED = "utvm.scheduled"  # Function attribute: its loops are scheduled already.
MACS = "utvm.macs"  # Function attribute: multiply-accumulates.


def schedule(function: Any, registers: tile_choice.TileRegisters) -> Any:
    """Schedule loops for a core's registers: merged element-wise blocks, pools without padding copies, sums."""
    if not has_blocks(function):
        return function
    plan = s_tir.Schedule(function)
    _inline_elementwise(plan)
    _inline_padding(plan)
    plan = s_tir.Schedule(tiles.with_tiles(plan.mod["main"], registers))
    _set_first_values_outside(plan)
    return plan.mod["main"]


def has_blocks(function: Any) -> bool:
    """True if a function has blocks to schedule: TVM writes some operators as plain loops."""
    return isinstance(function.body, s_tir.SBlockRealize) and str(function.body.block.name_hint) == "root"


def macs_of(function: Any) -> int:
    """Return the multiply-accumulates of a function: the products its blocks sum."""
    if not has_blocks(function) or SCHEDULED in (function.attrs or {}):
        return 0
    plan = s_tir.Schedule(function)
    nodes = [plan.get(block) for block in _blocks(plan)]
    extents = [[axis.dom.extent for axis in node.iter_vars] for node in nodes if _sums_products(node)]
    return sum(math.prod(map(int, extent)) for extent in extents if all(isinstance(one, tirx.IntImm) for one in extent))


def _sums_products(node: Any) -> bool:
    value = getattr(node.body, "value", None)
    return node.init is not None and isinstance(value, tirx.Add) and isinstance(value.b, tirx.Mul)


def _blocks(plan: Any) -> list[Any]:
    root = plan.get_sblock("root")
    return list(plan.get_child_blocks(root))


def _iterations(plan: Any, block: Any) -> int:
    return math.prod(int(axis.dom.extent) for axis in plan.get(block).iter_vars)


def _is_elementwise(plan: Any, block: Any) -> bool:
    node = plan.get(block)
    return node.init is None and all(int(axis.iter_type) == tirx.IterVar.DataPar for axis in node.iter_vars)


def _inline_elementwise(plan: Any) -> None:
    for block in _blocks(plan):
        consumers = plan.get_consumers(block)
        if len(consumers) != 1 or not _is_elementwise(plan, block) or not _is_elementwise(plan, consumers[0]):
            continue
        if _iterations(plan, block) != _iterations(plan, consumers[0]):
            continue
        try:
            plan.compute_inline(block)
        except s_tir.ScheduleError:
            continue  # Inlining does not support the block's accesses; keep it.


def _inline_padding(plan: Any) -> None:
    for block in _blocks(plan):
        consumers = plan.get_consumers(block)
        if len(consumers) != 1 or not _is_elementwise(plan, block) or _is_elementwise(plan, consumers[0]):
            continue
        if len(plan.get(consumers[0]).reads) == 1 and _pads(plan.get(block).body):
            with contextlib.suppress(s_tir.ScheduleError):  # Keep the copy.
                plan.compute_inline(block)


def _pads(body: Any) -> bool:
    value = getattr(body, "value", None)
    if not isinstance(value, ir.Call) or not str(value.op.name).endswith("if_then_else"):
        return False
    _, inside, outside = value.args
    return isinstance(inside, ir.TensorLoad) and isinstance(outside, tirx.FloatImm | tirx.IntImm)


def _set_first_values_outside(plan: Any) -> None:
    for block in _blocks(plan):
        node = plan.get(block)
        loops = plan.get_loops(block)
        if node.init is None or len(loops) != len(node.iter_vars):
            continue
        reduction_loops = [
            loop
            for loop, axis in zip(loops, node.iter_vars, strict=True)
            if int(axis.iter_type) == tirx.IterVar.CommReduce
        ]
        try:
            plan.decompose_reduction(block, reduction_loops[0])
        except (s_tir.ScheduleError, IndexError):
            continue  # TVM cannot decompose the reduction: the test stays inside its loops.


TRACED = "loops as they were tuned"  # Kernel name of a tuned function in reports.


def layer_of(function: Any) -> str:
    """Return a layer's name in tuning, equal for equal functions; empty if there is no choice of kernels."""
    attributes = dict(function.attrs.items()) if function.attrs else {}
    if LAYER in attributes:
        return str(attributes[LAYER])
    if OPERATOR in attributes or INCLUDE in attributes or not has_blocks(function) or not _is_plain(function):
        return ""
    shapes = ["x".join(str(int(extent)) for extent in parameter.ty.shape) or "1" for parameter in function.params]
    kind = element_type(function.params[-1])
    return f"{kind} {' '.join(shapes[:-1])} to {shapes[-1]} #{tvm_ffi.structural_hash(subject(function)):016x}"


def subject(function: Any) -> Any:
    """Return the function in the form schedules are made for: fixed name, 32-bit indices."""
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    return tirx.transform.ForceNarrowIndexToInt32()(module)["main"]


def with_tuned_loops(functions: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the functions, with tuned schedules applied to those tuned for the target."""
    if not target.tuned:
        return dict(functions)
    return {name: _apply_trace(function, target) for name, function in functions.items()}


def _apply_trace(function: Any, target: Target) -> Any:
    attributes = function.attrs or {}
    trace = "" if LAYER in attributes else target.choice(layer_of(function))
    return replay(function, trace) if trace and trace not in {item.name for item in tile_choice.ROWS} else function


def replay(function: Any, trace: str) -> Any:
    """Return a function scheduled by a trace; raises CompileError if the trace does not apply."""
    scheduled = plan_of(function, trace).mod["main"]
    return scheduled.with_attr({SCHEDULED: 1, KERNEL: TRACED, MACS: macs_of(function)})


def plan_of(function: Any, trace: str) -> Any:
    """Return the schedule of a function after a trace; raises CompileError if the trace does not apply."""
    plan = s_tir.Schedule(tvm.IRModule({"main": subject(function)}))
    with CompileError.on(
        Exception,  # TVM raises nearly every built-in kind, and its own
        f"the tuned schedule of {layer_of(function)} does not apply to it",
        "was the log written with this version of TVM? tune again, into another log",
    ):
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), plan)
    return plan


def _is_plain(function: Any) -> bool:
    extents = [extent for parameter in function.params for extent in parameter.ty.shape]
    return all(isinstance(extent, tirx.IntImm) for extent in extents)
