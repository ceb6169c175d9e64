# SPDX-License-Identifier: Apache-2.0
"""The schedule of operators that no schedule of their own knows.

What is done here never changes a result, not even its last bit: every sum keeps its order.
"""

import contextlib
import math
from typing import Any

from tvm import ir, s_tir, tirx

from utvm.compiler.schedule.tile_choice import TileRegisters
from utvm.compiler.schedule.tiles import with_tiles

SCHEDULED = "utvm.scheduled"
"""Attribute of a function whose loops are arranged already."""

MACS = "utvm.macs"
"""Attribute of a function: its multiply-accumulates."""


def schedule(function: Any, registers: TileRegisters) -> Any:
    """Arrange the loops of one TIRx function, by what a core has for sums.

    - An element-wise block that feeds one element-wise block of the same size is computed inside it, which
      saves its buffer and its loop (bias and activation after a convolution).
    - What pads the input of a pool is read where it is, and not copied.
    - Sums stay in registers, and what is made of them follows at once: :mod:`utvm.compiler.schedule.tiles`.
    - A reduction's first value is set before the reduction's loops, not by a test inside them.
    """
    if not has_blocks(function):
        return function
    plan = s_tir.Schedule(function)
    _inline_elementwise(plan)
    _inline_padding(plan)
    plan = s_tir.Schedule(with_tiles(plan.mod["main"], registers))
    _set_first_values_outside(plan)
    return plan.mod["main"]


def has_blocks(function: Any) -> bool:
    """Whether there is anything to arrange: TVM writes some operators as plain loops."""
    return isinstance(function.body, s_tir.SBlockRealize) and str(function.body.block.name_hint) == "root"


def macs_of(function: Any) -> int:
    """The multiply-accumulates of a function of TVM's: how many products its blocks sum."""
    if not has_blocks(function) or SCHEDULED in (function.attrs or {}):
        return 0
    plan = s_tir.Schedule(function)
    nodes = [plan.get(block) for block in _blocks(plan)]
    extents = [[axis.dom.extent for axis in node.iter_vars] for node in nodes if _sums_products(node)]
    return sum(
        math.prod(map(int, extent)) for extent in extents if all(isinstance(one, tirx.IntImm) for one in extent)
    )


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
            continue  # The block writes or reads in a way that inlining does not know; it stays as it is.


def _inline_padding(plan: Any) -> None:
    for block in _blocks(plan):
        consumers = plan.get_consumers(block)
        if len(consumers) != 1 or not _is_elementwise(plan, block) or _is_elementwise(plan, consumers[0]):
            continue
        if len(plan.get(consumers[0]).reads) == 1 and _pads(plan.get(block).body):
            with contextlib.suppress(s_tir.ScheduleError):  # It stays a copy.
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
            continue  # A reduction that TVM cannot take apart keeps the test inside its loops.
