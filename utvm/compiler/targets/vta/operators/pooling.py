# SPDX-License-Identifier: Apache-2.0
"""Max pooling, by the ALU: int8 becomes int32 where it is loaded."""

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from utvm.compiler.targets.vta.env import ACC, Env
from utvm.compiler.targets.vta.operators.requantise import Requantise
from utvm.compiler.targets.vta.operators.tiles import (
    Chosen,
    Needs,
    Tile,
    Turns,
    best_tile,
    named,
    put_on_chip,
    tiled_output,
)


@dataclass(frozen=True)
class MaxPool:
    """The largest of each window, in NCHW before it is packed. Windows lie within the image.

    Parameters of the function that is made: x, out, packed as ``layout`` packs them.

    Attributes:
        shape: of x: images, channels, height, width.
        window: height, width.
    """

    shape: tuple[int, int, int, int]
    window: tuple[int, int]
    stride: int

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (size - window for size, window in zip(self.shape[2:], self.window, strict=True))
        return height // self.stride + 1, width // self.stride + 1

    def schedule(self, env: Env) -> Any:
        """Return the schedule; raises DoesNotFitError where a VTA is too small for any tile."""
        batch, block, step = env.BATCH, env.BLOCK_IN, self.stride
        images, channels = -(-self.shape[0] // batch), -(-self.shape[1] // block)
        x = te.placeholder((images, channels, *self.shape[2:], batch, block), "int8", "x")
        wide = te.compute(x.shape, lambda *i: x(*i).astype("int32"), name="wide")
        dy, dx = (te.reduce_axis((0, size), name) for size, name in zip(self.window, ("dy", "dx"), strict=True))
        largest = te.comm_reducer(_larger, lambda _: tirx.const(-128, "int32"), name="largest")
        total = te.compute(
            (images, channels, *self.out_size, batch, block),
            lambda n, c, i, j, b, k: largest(wide[n, c, i * step + dy, j * step + dx, b, k], axis=[dy, dx]),
            name="sum",
        )
        out, more = Requantise().declared(total)
        schedule = named(te.create_prim_func([x, out]), "max_pool")
        loop = tiled_output(schedule, (1, *self._best(env, channels).tile))
        put_on_chip(schedule, ["wide", "sum", *more], loop)
        block_of = schedule.get_sblock("sum")
        loops = schedule.get_loops(block_of)[3:]
        schedule.reorder(*loops[-2:], *loops[:-2])
        schedule.decompose_reduction(block_of, loops[-2])
        return schedule

    def _best(self, env: Env, channels: int) -> Chosen:
        height, width = self.out_size

        def rows(tile: Tile) -> int:
            return (tile[1] - 1) * self.stride + self.window[0]

        def needs(tile: Tile) -> Needs:
            return {ACC: tile[0] * (rows(tile) * self.shape[3] + tile[1] * width)}

        def turns(tile: Tile) -> Turns:
            loaded = tile[0] * rows(tile) * self.shape[3]
            window = self.window[0] * self.window[1]
            return Turns(
                channels // tile[0] * (height // tile[1]), loaded * env.lanes(ACC), tile[0] * tile[1] * window
            )

        def uops(tile: Tile) -> int:
            loops = sorted((*tile, width, *self.window))
            return loops[0] * loops[1] * loops[2]

        return best_tile(env, (channels, height), needs, turns, False, uops)


def _larger(a: Any, b: Any) -> Any:
    """Do what ``tirx.max`` does, with two parameters: TVM counts them."""
    return tirx.max(a, b)
