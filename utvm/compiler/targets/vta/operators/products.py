# SPDX-License-Identifier: Apache-2.0
"""Products on VTA (dense layers too, and two-dimensional convolution), and its ALU, which also requantises sums."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tvm import te, tirx

from utvm.compiler.targets.vta.env import ACC, INP, WGT, Env
from utvm.compiler.targets.vta.operators import tiles
from utvm.compiler.targets.vta.operators.tiles import Needs, Tile, TileChoice, Turns
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


@dataclass(frozen=True)
class Matmul:
    """``out[rows, outputs] = requantised(x[rows, inputs] @ w[outputs, inputs].T + bias[outputs])``, packed."""

    rows: int
    inputs: int
    outputs: int
    requantise: Requantise | Sums = field(default_factory=Requantise)
    bias: bool = False
    overlapped: bool = True
    tile: Tile | None = None

    def __post_init__(self) -> None:
        tiles.check_sizes(self.rows, self.inputs, self.outputs)

    def schedule(self, env: Env) -> Any:
        batch, block = env.BATCH, env.BLOCK_IN
        rows, inner, outer = -(-self.rows // batch), -(-self.inputs // block), -(-self.outputs // block)
        x = te.placeholder((rows, inner, batch, block), "int8", "x")
        w = te.placeholder((outer, inner, block, block), "int8", "w")
        bias = te.placeholder((outer, batch, block), "int32", "bias")
        ko, ki = te.reduce_axis((0, inner), "ko"), te.reduce_axis((0, block), "ki")

        def product(r: Any, o: Any, b: Any, c: Any) -> Any:
            return te.sum(x[r, ko, b, ki].astype("int32") * w[o, ko, c, ki].astype("int32"), axis=[ko, ki])

        sums = te.compute((rows, outer, batch, block), product, name="sum")
        tile = tiles.check_tile(self.tile or self._best(env, rows, outer, inner).tile, (rows, outer, inner))
        schedule, loads = schedule_product(self, "matmul", [x, w, bias], sums, tile)
        tiles.cache(schedule, "sum_update", 1, INP, loads)
        return schedule

    def _best(self, env: Env, rows: int, outer: int, inner: int) -> TileChoice:
        def needs(tile: Tile) -> Needs:
            sums = self.requantise.accumulators * tile[0] * tile[1]
            accumulators = sums + (tile[1] if self.bias else 0)
            return tiles.twice({INP: tile[0] * tile[2], WGT: tile[1] * tile[2], ACC: accumulators}, self.overlapped)

        def turns(tile: Tile) -> Turns:
            count = rows // tile[0] * (outer // tile[1]) * (inner // tile[2])
            loaded = tile[2] * (tile[0] * env.lanes(INP) + tile[1] * env.lanes(WGT))
            return Turns(count, loaded, tile[0] * tile[1] * tile[2])

        return tiles.best_tile(env, (rows, outer, inner), needs, turns, self.overlapped, min)


@dataclass(frozen=True)
class Conv2d:
    """``out = requantised(conv2d(x, w) + bias)``, NCHW before packing; ``tile``: outputs, rows, inputs."""

    shape: tuple[int, int, int, int]
    outputs: int
    kernel: tuple[int, int]
    stride: int = 1
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    requantise: Requantise | Sums = field(default_factory=Requantise)
    bias: bool = False
    overlapped: bool = True
    tile: Tile | None = None

    def __post_init__(self) -> None:
        tiles.check_sizes(*self.shape, self.outputs, *self.kernel, self.stride)
        if min(self.out_size) < 1:
            raise CompileError(f"VTA: a kernel of {self.kernel} does not fit into {self.shape} with {self.padding}")
        tiles.check_padding(self.padding, self.kernel, 16)

    @property
    def out_size(self) -> tuple[int, int]:
        return tiles.count_windows(self.shape, self.kernel, self.stride, self.padding)

    def schedule(self, env: Env) -> Any:
        batch, block = env.BATCH, env.BLOCK_IN
        images, inner, outer = -(-self.shape[0] // batch), -(-self.shape[1] // block), -(-self.outputs // block)
        x = te.placeholder((images, inner, *self.shape[2:], batch, block), "int8", "x")
        w = te.placeholder((outer, inner, *self.kernel, block, block), "int8", "w")
        bias = te.placeholder((outer, batch, block), "int32", "bias")
        padded = self._pad(x)
        ko, ki = te.reduce_axis((0, inner), "ko"), te.reduce_axis((0, block), "ki")
        dy, dx = (te.reduce_axis((0, size), name) for size, name in zip(self.kernel, ("dy", "dx"), strict=True))
        step = self.stride

        def product(n: Any, o: Any, i: Any, j: Any, b: Any, c: Any) -> Any:
            data = padded[n, ko, i * step + dy, j * step + dx, b, ki].astype("int32")
            return te.sum(data * w[o, ko, dy, dx, c, ki].astype("int32"), axis=[ko, dy, dx, ki])

        sums = te.compute((images, outer, *self.out_size, batch, block), product, name="sum")
        tile = tiles.check_tile(self.tile or self._best(env, outer, inner).tile, (outer, self.out_size[0], inner))
        schedule, loads = schedule_product(self, "conv2d", [x, w, bias], sums, (1, *tile))
        if any(self.padding):
            schedule.set_scope(schedule.get_sblock("padded"), 0, INP)
            schedule.compute_at(schedule.get_sblock("padded"), loads, preserve_unit_loops=True)
        else:
            tiles.cache(schedule, "sum_update", 1, INP, loads)
        return schedule

    def estimate(self, env: Env) -> tuple[int, int]:
        """Estimate cycles and bytes transferred; raises as :meth:`schedule`."""
        outer, inner = (-(-channels // env.BLOCK_IN) for channels in (self.outputs, self.shape[1]))
        tiling, sums = self._best(env, outer, inner), outer * math.prod(self.out_size)
        stored = sums * self.requantise.results * env.lanes(ACC)
        return tiling.cycles + sums * self.requantise.cycles, tiling.loaded + stored

    def _pad(self, x: Any) -> Any:
        if not any(self.padding):
            return x
        above, below, left, right = self.padding
        images, inner, height, width, batch, block = x.shape

        def value(n: Any, c: Any, i: Any, j: Any, b: Any, k: Any) -> Any:
            inside = tirx.all(i >= above, i < above + height, j >= left, j < left + width)
            return tirx.if_then_else(inside, x[n, c, i - above, j - left, b, k], tirx.const(0, "int8"))

        shape = (images, inner, height + above + below, width + left + right, batch, block)
        return te.compute(shape, value, name="padded")

    def _best(self, env: Env, outer: int, inner: int) -> TileChoice:
        height, width = self.out_size
        area = self.kernel[0] * self.kernel[1]
        row = self.shape[3] + self.padding[2] + self.padding[3]

        def rows(tile: Tile) -> int:
            return (tile[1] - 1) * self.stride + self.kernel[0]

        def needs(tile: Tile) -> Needs:
            sums = self.requantise.accumulators * tile[0] * tile[1] * width
            accumulators = sums + (tile[0] if self.bias else 0)
            inputs, weights = tile[2] * rows(tile) * row, tile[0] * tile[2] * area
            return tiles.twice({INP: inputs, WGT: weights, ACC: accumulators}, self.overlapped)

        def turns(tile: Tile) -> Turns:
            count = outer // tile[0] * (height // tile[1]) * (inner // tile[2])
            loaded = tile[2] * (rows(tile) * row * env.lanes(INP) + tile[0] * area * env.lanes(WGT))
            return Turns(count, loaded, tile[0] * tile[1] * width * tile[2] * area)

        def uops(tile: Tile) -> int:
            # The two longest loops are hardware loops.
            loops = sorted((tile[0], tile[1], tile[2], width, *self.kernel))
            return loops[0] * loops[1] * loops[2] * loops[3]

        return tiles.best_tile(env, (outer, height, inner), needs, turns, self.overlapped, uops)
