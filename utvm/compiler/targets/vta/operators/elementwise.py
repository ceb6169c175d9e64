# SPDX-License-Identifier: Apache-2.0
"""VTA's ALU: element-wise operations on two tensors, and requantisation of sums to int8."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tvm import te, tirx

from utvm.compiler.targets.vta.env import ACC, WGT, Env
from utvm.compiler.targets.vta.operators import tiles
from utvm.errors import CompileError

_LARGEST_HALF = 15  # Largest shift for which half the divisor fits 16 bits.


@dataclass(frozen=True)
class Requantise:
    """Division by a power of two, and limits; ``rounding`` adds half the divisor first."""

    shift: int = 0
    rounding: bool = False
    low: int = -128
    high: int = 127

    def __post_init__(self) -> None:
        if not isinstance(self.shift, int) or not 0 <= self.shift <= 31:
            raise CompileError(f"VTA: a shift of {self.shift} is not possible", "0 to 31")
        if not -128 <= self.low <= self.high <= 127:
            raise CompileError(f"VTA: results are int8, not {self.low} to {self.high}", "-128 to 127")

    accumulators = results = 1
    """Accumulators per sum, and numbers per result."""

    @property
    def cycles(self) -> int:
        """Estimated cycles per row of sums, besides the products: a reset, and two per operation."""
        return 1 + 2 * (2 + bool(self.shift) + bool(self.shift and self.rounding))

    def declare(self, total: Any) -> tuple[Any, list[str]]:
        """Declare the operations on an int32 tensor."""
        steps: list[tuple[str, Any]] = []
        # ALU immediates have 16 bits. For a larger half, shift first: then the half is one.
        before = self.shift - 1 if self.rounding and self.shift > _LARGEST_HALF else 0
        left = self.shift - before
        if before:
            steps.append(("bits", _shift(before)))
        if self.rounding and self.shift:
            steps.append(("half", lambda value: value + _number(1 << left - 1)))
        if self.shift:
            steps.append(("shift", _shift(left)))
        steps.append(("low", lambda value: tirx.max(value, _number(self.low))))
        steps.append(("high", lambda value: tirx.min(value, _number(self.high))))
        for name, step in steps:
            total = _stage(total, step, name)
        out = te.compute(total.shape, lambda *i: total(*i).astype("int8"), name="out")
        return out, [name for name, _ in steps]

    def arrange(self, schedule: Any, tile_loops: int) -> None:
        """Do nothing: the loops within a tile need no change."""


@dataclass(frozen=True)
class Sums:
    """The exact int32 sums as four bytes, lowest first, third dimension from the end (``layout.join_bytes``)."""

    accumulators = results = 4
    """Accumulators per sum, which include shifted copies, and numbers per result."""

    cycles = 16
    """Estimated cycles per row of sums, besides the products: four resets, three copies, three shifts."""

    def declare(self, total: Any) -> tuple[Any, list[str]]:
        """Declare the output; returns as :meth:`Requantise.declare`."""
        names = ["byte_1", "byte_2", "byte_3"]
        shifts = (_shift(8 * number) for number in (1, 2, 3))
        planes = [total, *(_stage(total, shift, name) for shift, name in zip(shifts, names, strict=True))]
        *outer, batch, block = total.shape

        def byte(*at: Any) -> Any:
            *place, plane, b, c = at
            value = planes[3](*place, b, c)
            for number in (2, 1, 0):
                value = tirx.if_then_else(plane == number, planes[number](*place, b, c), value)
            return value.astype("int8")

        return te.compute((*outer, 4, batch, block), byte, name="out"), names

    def arrange(self, schedule: Any, tile_loops: int) -> None:
        """Store a tile one byte plane after the other."""
        loops = schedule.get_loops(schedule.get_sblock("out"))[tile_loops:]
        schedule.reorder(loops[-3], *loops[:-3])
        schedule.unroll(loops[-3])


def _shift(by: int) -> Any:
    return lambda value: value >> _number(by)


def _stage(of: Any, step: Any, name: str) -> Any:
    return te.compute(of.shape, lambda *i: step(of(*i)), name=name)


def _number(value: int) -> Any:
    return tirx.const(value, "int32")


def schedule_product(layer: Any, name: str, operands: Sequence[Any], sums: Any, tile: tuple[int, ...]) -> Any:
    """Schedule a Conv2d or Matmul with bias and requantisation; return schedule and loading loop."""
    total, stages, outer = sums, ["sum"], len(tile) - 1
    if layer.bias:
        total = te.compute(sums.shape, lambda *at: sums(*at) + operands[2](at[1], *at[-2:]), name="biased")
        stages.append("biased")
    out, more = layer.requantise.declare(total)
    schedule = tiles.schedule_of(te.create_prim_func([*operands[: 3 if layer.bias else 2], out]), name)
    loop = tiles.tiled_output(schedule, tile[:-1])
    layer.requantise.arrange(schedule, outer)
    tiles.put_on_chip(schedule, [*stages, *more], loop)
    if layer.bias:
        tiles.cache(schedule, "biased", 1, ACC, loop)
    loads = tiles.split_sum(schedule, outer, 3 if outer == 3 else 1, tile[-1], layer.overlapped)
    tiles.cache(schedule, "sum_update", 2, WGT, loads)
    return schedule, loads


_OPERATIONS = {"add": lambda a, b: a + b, "max": tirx.max, "min": tirx.min}
_DTYPES = ("int8", "int32")


@dataclass(frozen=True)
class Elementwise:
    """``out = requantised(operation(a, b))`` of int8 or int32, packed; function parameters: a, b, out."""

    numbers: int
    operation: Literal["add", "max", "min"] = "add"
    dtype: Literal["int8", "int32"] = "int32"
    requantise: Requantise = field(default_factory=Requantise)

    def __post_init__(self) -> None:
        tiles.check_sizes(self.numbers)
        if self.operation not in _OPERATIONS or self.dtype not in _DTYPES:
            raise CompileError(
                f"VTA: there is no {self.operation} of {self.dtype}",
                f"there are: {', '.join(_OPERATIONS)} of {', '.join(_DTYPES)}",
            )

    def schedule(self, env: Env) -> Any:
        count = -(-self.numbers // env.lanes(ACC))
        shape = (count, env.BATCH, env.BLOCK_OUT)
        operands = [te.placeholder(shape, self.dtype, name) for name in "ab"]
        stages = ["wide_a", "wide_b"] if self.dtype == "int8" else []
        a, b = operands
        if stages:
            a, b = (
                _stage(of, lambda value: value.astype("int32"), name) for of, name in zip(operands, stages, strict=True)
            )
        work = _OPERATIONS[self.operation]
        total = te.compute(shape, lambda *i: work(a(*i), b(*i)), name="sum")
        out, more = self.requantise.declare(total)
        schedule = tiles.schedule_of(te.create_prim_func([*operands, out]), "elementwise")
        tile = tiles.best_tile(
            env,
            (count,),
            lambda tile: {ACC: 2 * tile[0]},
            lambda tile: tiles.Turns(count // tile[0], 2 * tile[0] * env.lanes(ACC), tile[0]),
            False,
            lambda _: 1,
        ).tile
        loop = tiles.tiled_output(schedule, tile)
        tiles.put_on_chip(schedule, [*stages, "sum", *more], loop)
        if not stages:
            tiles.cache(schedule, "sum", 1, ACC, loop)
            tiles.cache(schedule, "sum", 0, ACC, loop)
        return schedule
