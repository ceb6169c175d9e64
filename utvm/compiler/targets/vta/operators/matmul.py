# SPDX-License-Identifier: Apache-2.0
"""Blocked matrix multiplication, which is a dense layer too."""

from dataclasses import dataclass, field
from typing import Any

from tvm import te

from utvm.compiler.targets.vta.env import ACC, INP, WGT, Env
from utvm.compiler.targets.vta.operators import tiles
from utvm.compiler.targets.vta.operators.elementwise import Requantise, Sums, schedule_product
from utvm.compiler.targets.vta.operators.tiles import Chosen, Needs, Tile, Turns


@dataclass(frozen=True)
class Matmul:
    """``out[rows, outputs] = requantised(x[rows, inputs] @ w[outputs, inputs].T + bias[outputs])``.

    Parameters of the function that is made: x, w, bias (where there is one), out, packed as ``layout`` packs them.

    Attributes:
        overlapped: whether blocks are loaded while others are multiplied.
        tile: blocks of rows, outputs and inputs at a time; by default the best that fits.
    """

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
        tiles.cached(schedule, "sum_update", 1, INP, loads)
        return schedule

    def _best(self, env: Env, rows: int, outer: int, inner: int) -> Chosen:
        def needs(tile: Tile) -> Needs:
            sums = self.requantise.accumulators * tile[0] * tile[1]
            accumulators = sums + (tile[1] if self.bias else 0)
            return tiles.twice(
                {INP: tile[0] * tile[2], WGT: tile[1] * tile[2], ACC: accumulators}, self.overlapped
            )

        def turns(tile: Tile) -> Turns:
            count = rows // tile[0] * (outer // tile[1]) * (inner // tile[2])
            loaded = tile[2] * (tile[0] * env.lanes(INP) + tile[1] * env.lanes(WGT))
            return Turns(count, loaded, tile[0] * tile[1] * tile[2])

        return tiles.best_tile(env, (rows, outer, inner), needs, turns, self.overlapped, min)
