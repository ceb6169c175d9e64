# SPDX-License-Identifier: Apache-2.0
"""The schedule of operators that no schedule of their own knows.

What is done here never changes a result, not even its last bit: every sum keeps its order.
"""

import math
from typing import Any

from tvm import s_tir, tirx


def schedule(function: Any) -> Any:
    """Arrange the loops of one TIRx function.

    - An element-wise block that feeds one element-wise block of the same size is computed inside it, which
      saves its buffer and its loop (bias and activation after a convolution).
    - A reduction's first value is set before the reduction's loops, not by a test inside them.
    """
    if not _has_blocks(function):
        return function
    plan = s_tir.Schedule(function)
    _inline_elementwise(plan)
    _set_first_values_outside(plan)
    return plan.mod["main"]


def _has_blocks(function: Any) -> bool:
    """Return whether there is anything to arrange: TVM writes some operators as plain loops."""
    return isinstance(function.body, s_tir.SBlockRealize) and str(function.body.block.name_hint) == "root"


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
