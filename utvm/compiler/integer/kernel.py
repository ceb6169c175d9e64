# SPDX-License-Identifier: Apache-2.0
"""What the makers of operators share: expressions of integer arithmetic, and how a function is finished."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from utvm.compiler.integer.records import Operator, Rescale

Shape = tuple[int, ...]

_OPAQUE = 8  # TVM's pattern kind for a function that must not be fused with others.


OPERATOR = "utvm.operator"
"""Attribute of a function: what reports call what it computes."""

OVERLAP = "utvm.overlap"
"""Attribute of a function: see :mod:`utvm.compiler.memory.overlap`."""

KERNEL = "utvm.kernel"
"""Attribute of a function: the name of the one that was chosen of several that compute the same."""


THRIFTY = "utvm.thrifty"
"""Attribute of a function: one of the same parameters that needs less memory, where there is one."""

LAYER = "utvm.layer"
"""Attribute of a function that has a choice of kernels: what tuning calls its layer."""


def constant(value: int) -> Any:
    """Return an int32 constant."""
    return tirx.IntImm("int32", value)


def requantized(value: Any, factor: Rescale) -> Any:
    """Return an int32 expression times a factor known while compiling, as the C helper ``requantize`` rounds."""
    multiplier, shift = int(factor.multipliers[0]), int(factor.shifts[0])
    return tirx.call_pure_extern("int32", "requantize", value, constant(multiplier), constant(shift))


def clamped(value: Any, low: int, high: int) -> Any:
    """Return an int32 expression limited to a range, as int8."""
    return tirx.max(tirx.min(value, constant(high)), constant(low)).astype("int8")


def described(function: Any, operator: str, overlap: Sequence[int | None], macs: int = 0) -> Any:
    """Return a function with the attributes that planning and the report read.

    Args:
        operator: what the report calls it.
        overlap: as :attr:`utvm.compiler.integer.records.Operator.overlap`.
    """
    return function.with_attr(
        {
            "op_pattern": _OPAQUE,
            OPERATOR: operator,
            "utvm.macs": macs,
            OVERLAP: [-1 if each is None else each for each in overlap],
        }
    )


def with_one_loop(function: Any) -> Any:
    """Schedule an element-wise function whose operands all have the output's shape: one loop over all elements."""
    plan = s_tir.Schedule(function)
    (block,) = plan.get_child_blocks(plan.get_sblock("root"))
    loops = plan.get_loops(block)
    if len(loops) > 1:
        plan.fuse(*loops)
    return plan.mod["main"]


def with_sum_in_place(function: Any, unrolled: int = 0) -> Any:
    """Schedule a function of a reduction and what is made of its result: both in the output's innermost loop.

    Args:
        function: has the blocks ``accumulator``, which reduces, and ``output``.
        unrolled: how many steps of the reduction may be unrolled.
    """
    plan = s_tir.Schedule(function)
    accumulator, output = plan.get_sblock("accumulator"), plan.get_sblock("output")
    plan.compute_at(accumulator, plan.get_loops(output)[-1])
    plan.set_scope(accumulator, 0, "local")
    spatial = len(plan.get_loops(output))
    steps = plan.get_loops(accumulator)[spatial:]
    budget = unrolled
    for loop in reversed(steps):
        extent = int(plan.get(loop).extent)
        if extent > budget:
            break
        plan.unroll(loop)
        budget //= extent
    if steps:
        plan.decompose_reduction(accumulator, steps[0])
    return plan.mod["main"]


def elements(shape: Sequence[int]) -> int:
    """Return how many elements a shape has."""
    return math.prod(shape)


def binary(operator: str, shapes: tuple[Shape, Shape], compute: Callable[[Any, Any], Any]) -> Operator:
    """Make an operator that computes each number from one of each operand, which are broadcast.

    Args:
        operator: what the report calls it.
        shapes: of the operands.
        compute: the int8 result of two int32 expressions.
    """
    inputs = [te.placeholder(shape, "int8", name) for shape, name in zip(shapes, ("a", "b"), strict=True)]
    shape = tuple(np.broadcast_shapes(*shapes))

    def element(*at: Any) -> Any:
        return compute(*(_broadcast(tensor, at).astype("int32") for tensor in inputs))

    output = te.compute(shape, element, "output")
    function = te.create_prim_func([*inputs, output])
    overlap = tuple(0 if each == shape else None for each in shapes)
    if overlap == (0, 0):
        function = with_one_loop(function)
    return Operator(described(function, operator, overlap), (), overlap)


def _broadcast(tensor: Any, at: tuple[Any, ...]) -> Any:
    own = at[len(at) - len(tensor.shape) :]
    return tensor[
        tuple(constant(0) if int(extent) == 1 else place for place, extent in zip(own, tensor.shape, strict=True))
    ]
