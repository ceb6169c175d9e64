# SPDX-License-Identifier: Apache-2.0
"""Split operators into tiles that fit on the chip, and schedule them."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

from tvm import s_tir

from utvm.compiler.targets.vta.env import ACC, DOUBLE_BUFFER, MEMORY_OF, Env
from utvm.errors import CompileError, DoesNotFitError

Tile = tuple[int, ...]
Needs = dict[str, int]

# Latency in cycles of an iteration's transfers and operations; bytes per transfer cycle. For decisions only.
_LATENCY = 48
_START = 96
_BYTES_A_CYCLE = 8


@dataclass(frozen=True)
class Turns:
    """Loads and computations of a tile."""

    count: int
    loaded: int
    computed: int

    def estimate(self, overlapped: bool) -> int:
        load, compute = _LATENCY + self.loaded // _BYTES_A_CYCLE, _START + self.computed
        if overlapped:
            return self.count * max(load, compute) + min(load, compute)
        return self.count * (load + compute)


class TileChoice(NamedTuple):
    """A tile with the estimated cycles and the loaded bytes of all its iterations."""

    tile: Tile
    cycles: int
    loaded: int


def check_sizes(*sizes: int) -> None:
    for size in sizes:
        if not isinstance(size, Integral) or size < 1:
            raise CompileError(f"VTA: sizes and strides are whole numbers from 1 on, not {size!r}")


def check_tile(tile: Tile, extents: Tile) -> Tile:
    """Check a user's tile."""
    check_sizes(*tile)
    if len(tile) != len(extents) or any(whole % part for part, whole in zip(tile, extents, strict=True)):
        raise CompileError(f"VTA: a tile of {tile} does not divide {extents}", "leave it out: the best is chosen")
    return tile


def count_windows(
    shape: Sequence[int], window: tuple[int, int], stride: int, padding: tuple[int, int, int, int]
) -> tuple[int, int]:
    height = shape[-2] + padding[0] + padding[1] - window[0]
    width = shape[-1] + padding[2] + padding[3] - window[1]
    return height // stride + 1, width // stride + 1


def check_padding(padding: tuple[int, int, int, int], window: tuple[int, int], limit: int = 1 << 16) -> None:
    """Refuse padding that could hold a whole window or exceeds the transfer's fields."""
    for pad, size in zip(padding, (window[0], window[0], window[1], window[1]), strict=True):
        if not 0 <= pad < min(size, limit):
            raise CompileError(f"VTA: padding of {pad} is not below the window's {size}, and {limit}")


def divisors(number: int) -> list[int]:
    return [place for place in range(number, 0, -1) if number % place == 0]


def best_tile(
    env: Env,
    extents: Sequence[int],
    needs: Callable[[Tile], Needs],
    turns: Callable[[Tile], Turns],
    overlapped: bool,
    uops: Callable[[Tile], int],
) -> TileChoice:
    """Return the tile with the least estimated time; the largest of equals."""
    room = env.configuration.memories["UOP"].depth
    candidates = [
        (turns(tile).estimate(overlapped), -math.prod(tile), tile)
        for tile in itertools.product(*map(divisors, extents))
        if all(count <= env.depth(scope) for scope, count in needs(tile).items()) and 2 * uops(tile) <= room
    ]
    if not candidates:
        least = needs((1,) * len(extents))
        needs_text = ", ".join(f"{count} of {MEMORY_OF[scope]}'s {env.depth(scope)}" for scope, count in least.items())
        raise DoesNotFitError(
            f"VTA {env.BITSTREAM}: the operator fits in no tiles; the smallest need {needs_text} elements",
            "use a VTA with larger buffers",
        )
    cycles, _, tile = min(candidates)
    return TileChoice(tile, cycles, turns(tile).count * turns(tile).loaded)


def tiled_output(schedule: Any, tile: Tile) -> Any:
    """Split the output's outermost dimensions into tiles; return the loop over tiles."""
    loops = schedule.get_loops(schedule.get_sblock("out"))
    pairs = [schedule.split(loop, [None, size]) for loop, size in zip(loops, tile, strict=False)]
    schedule.reorder(*(outer for outer, _ in pairs), *(inner for _, inner in pairs), *loops[len(tile) :])
    return pairs[-1][0]


def put_on_chip(schedule: Any, stages: Sequence[str], loop: Any) -> None:
    """Compute stages in accumulators, one tile at a time; the last stage first."""
    for name in reversed(stages):
        block = schedule.get_sblock(name)
        schedule.set_scope(block, 0, ACC)
        schedule.compute_at(block, loop, preserve_unit_loops=True)


def cache(schedule: Any, block: str, number: int, scope: str, loop: Any) -> None:
    schedule.compute_at(schedule.cache_read(schedule.get_sblock(block), number, scope), loop, preserve_unit_loops=True)


def split_sum(schedule: Any, outer_tiles: int, reductions: int, size: int, overlapped: bool) -> Any:
    """Split a sum of products; put its reductions outside the tile's loops. Return the outer loop."""
    block = schedule.get_sblock("sum")
    loops = schedule.get_loops(block)[outer_tiles:]
    within, sums = loops[: -reductions - 1], loops[-reductions - 1 :]
    outer, inner = schedule.split(sums[0], [None, size])
    schedule.reorder(outer, inner, *sums[1:-1], *within, sums[-1])
    schedule.decompose_reduction(block, outer)
    if overlapped:
        schedule.annotate(outer, DOUBLE_BUFFER, 1)
    return outer


def schedule_of(function: Any, name: str) -> Any:
    return s_tir.Schedule(function.with_attr("global_symbol", name))


def twice(needs: Needs, overlapped: bool) -> Needs:
    return {scope: count * (2 if overlapped and scope != ACC else 1) for scope, count in needs.items()}
