# SPDX-License-Identifier: Apache-2.0
"""Products on VTA: matrix multiplication (also dense layers) and two-dimensional convolution."""

import math
from dataclasses import dataclass, field
from typing import Any

from tvm import te, tirx

from utvm.compiler.targets.vta.env import ACC, INP, WGT, Env
from utvm.compiler.targets.vta.operators import elementwise, tiles
from utvm.compiler.targets.vta.operators.tiles import Needs, Tile, TileChoice, Turns
from utvm.errors import CompileError


@dataclass(frozen=True)
class Matmul:
    """``out[rows, outputs] = requantised(x[rows, inputs] @ w[outputs, inputs].T + bias[outputs])``, packed."""

    rows: int
    inputs: int
    outputs: int
    requantise: elementwise.Requantise | elementwise.Sums = field(default_factory=elementwise.Requantise)
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
        schedule, loads = elementwise.schedule_product(self, "matmul", [x, w, bias], sums, tile)
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
    requantise: elementwise.Requantise | elementwise.Sums = field(default_factory=elementwise.Requantise)
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
        schedule, loads = elementwise.schedule_product(self, "conv2d", [x, w, bias], sums, (1, *tile))
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
