# SPDX-License-Identifier: Apache-2.0
"""Which tile of a sum's results is computed at once: the table of what cores have for it, and the choice."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, tirx

from utvm.compiler.library import item_bytes
from utvm.compiler.schedule.nests import LoopNest, loads_of
from utvm.compiler.target import Target
from utvm.compiler.tvm_types import element_type


@dataclass(frozen=True)
class TileRegisters:
    """Registers of a core for sums.

    Attributes:
        extensions: what the core must have, as toolchain files name it.
        values: registers for sums and what is added to them.
        reach: bytes behind an address that an instruction reads without computing another.
        products: how many steps of sums are written out, at most: what a tile may cost in code.
    """

    name: str
    extensions: frozenset[str]
    sums: int
    values: int
    pointers: int
    reach: int
    products: int


ROWS = (
    TileRegisters("tiles for an FPU", frozenset({"fpu"}), 16, 31, 8, 1020, 96),
    TileRegisters("tiles without an FPU", frozenset(), 4, 6, 4, 1020, 16),
    TileRegisters("one result at a time", frozenset(), 1, 6, 4, 1020, 1),
)
"""The first whose extensions a core has is chosen, unless one was measured to be the best for a layer. Without an
FPU, each step of a float's sum is a call."""

_LONGEST = 8  # Results on an axis of a tile.
_LOOP = 3  # Instructions of a loop's turn, beside what is in it.
_RESULT = 8  # Instructions for each result: to begin it, and to store what is made of it.


@dataclass(frozen=True)
class Tile:
    """How much of a reduction is written out.

    Attributes:
        sizes: for each axis of the result, in the order of the loops, how many results lie behind each other.
        steps: for each axis that is added up, how many steps.
        text: what reports call it; empty where it is no tile.
    """

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    text: str = ""

    @property
    def points(self) -> int:
        return math.prod(self.sizes)


def registers_of(target: Target, name: str = "") -> TileRegisters:
    rows = [item for item in ROWS if item.extensions <= set(target.extensions)]
    return next((row for row in rows if row.name == name), rows[0])


def choose(nest: LoopNest, registers: TileRegisters) -> Tile:
    """Choose the tile of a reduction that should take the fewest instructions."""
    counted = _Counted(nest, registers)
    best = min(_candidates(nest, registers), key=lambda tile: (counted.cost(tile), tile.points, tile.steps))
    if best.points == 1:
        return best
    axes = [axis for axis in nest.axes if not axis.reduces]
    sizes = [
        f"{size} {axis.variable.name.removeprefix('v_')}"
        for axis, size in zip(axes, best.sizes, strict=True)
        if size > 1
    ]
    return Tile(best.sizes, best.steps, f"tile of {' by '.join(sizes)}")


def _candidates(nest: LoopNest, registers: TileRegisters) -> Iterator[Tile]:
    extents = [axis.extent for axis in nest.axes if not axis.reduces]
    most = min(registers.sums, 64 // item_bytes(element_type(nest.buffer)))
    long = [number for number, extent in enumerate(extents) if extent > 1]
    shapes = {(1,) * len(extents)}
    for pair in [*itertools.combinations(long, 2), *((one,) for one in long)]:
        for sizes in itertools.product(*(range(1, min(extents[item], _LONGEST) + 1) for item in pair)):
            shape = [1] * len(extents)
            for number, size in zip(pair, sizes, strict=True):
                shape[number] = size
            shapes.add(tuple(shape))
    reduced = [axis.extent for axis in nest.axes if axis.reduces]
    for sizes in sorted(shapes):
        if math.prod(sizes) > most:
            continue
        written = math.prod(size + extent % size for size, extent in zip(sizes, extents, strict=True))
        for steps in _steps(reduced):
            if written * math.prod(steps) <= registers.products or math.prod(sizes) * math.prod(steps) == 1:
                yield Tile(sizes, steps)


def _steps(extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    inner: tuple[int, ...] = ()
    for extent in reversed(extents):
        rest = (1,) * (len(extents) - len(inner) - 1)
        for step in range(1, min(extent, 16) + 1):
            if extent % step == 0:
                yield (*rest, step, *inner)
        inner = (extent, *inner)
        if math.prod(inner) > 128:
            return


class _Counted:
    """Counts about how many instructions a reduction takes, to decide by."""

    def __init__(self, nest: LoopNest, registers: TileRegisters) -> None:
        self._nest = nest
        self._registers = registers
        self._axes = nest.axes
        self._loads = [load for load in loads_of(nest.value) if not load.source.same_as(nest.buffer)]
        self._traffic = functools.cache(self._read)

    def cost(self, tile: Tile) -> float:
        extents = [axis.extent for axis in self._axes if not axis.reduces]
        spans = [
            [(extent // size, size), *([(1, extent % size)] if extent % size else [])]
            for extent, size in zip(extents, tile.sizes, strict=True)
        ]
        return sum(
            math.prod(count for count, _ in chosen) * self._tile(tuple(size for _, size in chosen), tile.steps)
            for chosen in itertools.product(*spans)
        )

    def _tile(self, sizes: tuple[int, ...], steps: tuple[int, ...]) -> float:
        has = self._registers
        loads, streams = self._traffic(sizes, steps)
        points, written = math.prod(sizes), math.prod(steps)
        at_once, _ = self._traffic(sizes, (1,) * len(steps))
        spilled = max(0, points + at_once - has.values)
        turn = 2 * points * written + loads + streams + 2 * max(0, streams - has.pointers) + 2 * spilled * written
        turns, cost = 1, 0.0
        for axis, step in zip((axis for axis in self._axes if axis.reduces), steps, strict=True):
            turns *= axis.extent // step
            cost += turns * _LOOP if axis.extent > step else 0
        return cost + turns * turn + points * _RESULT + 2 * _LOOP

    def _read(self, sizes: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, int]:
        grids = np.meshgrid(*(np.arange(item) for item in (*sizes, *steps)), indexing="ij")
        values = {hash(axis.variable): grid.ravel() for axis, grid in zip(self._axes, grids, strict=True)}
        loads = streams = 0
        for load in self._loads:
            width = item_bytes(element_type(load.source))
            try:
                places = np.unique(address(load, values)) * width
            except NotImplementedError:
                places = np.arange(math.prod(sizes) * math.prod(steps)) * self._registers.reach
            loads += places.size
            first = None
            for place in places:
                if first is None or place - first > self._registers.reach:
                    first, streams = place, streams + 1
        return loads, streams


def address(load: Any, values: dict[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Which elements a load reads, by their places in the flat tensor, for many values of variables."""
    place = np.zeros((), np.int64)
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        place = place * int(extent) + _value(index, values)
    return place


_ARITHMETIC = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
}


def _value(index: Any, values: dict[int, npt.NDArray[np.int64]]) -> Any:
    kind = type(index).__name__
    if isinstance(index, tirx.IntImm):
        return int(index)
    if isinstance(index, ir.Var) and hash(index) in values:
        return values[hash(index)]
    if kind == "Cast":
        return _value(index.value, values)
    if kind in _ARITHMETIC:
        return _ARITHMETIC[kind](_value(index.a, values), _value(index.b, values))
    raise NotImplementedError
