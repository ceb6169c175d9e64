# SPDX-License-Identifier: Apache-2.0
"""Loop nests and their tiles; a group is a reduction and the element-wise computations on its result."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, s_tir, tirx

from utvm.compiler import library, tvm_types
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Axis:
    """A loop: its variable and extent."""

    variable: Any
    extent: int
    reduces: bool


@dataclass(frozen=True)
class LoopNest:
    """Loops around one assignment, reduction axes last; ``first`` is the initial value of a reduction."""

    axes: tuple[Axis, ...]
    buffer: Any
    indices: tuple[Any, ...]
    value: Any
    first: Any | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(extent) for extent in self.buffer.shape)


@dataclass(frozen=True)
class Group:
    """A reduction and computations on its result; ``results`` are read elsewhere, ``place`` is its statement."""

    reduction: LoopNest
    followers: tuple[LoopNest, ...]
    results: tuple[Any, ...]
    place: int


def loads_of(node: Any) -> list[Any]:
    loads: list[Any] = []
    tvm_ffi.structural_walk(node, (ir.TensorLoad, loads.append), order="pre")
    return loads


def read_nest(statement: Any) -> LoopNest | None:
    """Read a loop nest; None unless it is plain loops around one assignment per iteration."""
    loops: dict[int, int] = {}
    order: list[int] = []
    while isinstance(statement, tirx.For):
        if int(statement.kind) != tirx.ForKind.SERIAL or not isinstance(statement.extent, tirx.IntImm):
            return None
        loops[hash(statement.loop_var)] = int(statement.extent)
        order.append(hash(statement.loop_var))
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        return None
    block = statement.block
    plain = not (block.alloc_buffers or block.match_buffers) and isinstance(block.body, tirx.BufferStore)
    if not plain or not isinstance(statement.predicate, tirx.IntImm) or not int(statement.predicate):
        return None
    axes = _axes(block, statement.iter_values, loops, order)
    return None if axes is None else _nest(axes, block)


def _axes(block: Any, values: Any, loops: dict[int, int], order: list[int]) -> tuple[Axis, ...] | None:
    by_variable: dict[int, Axis] = {}
    for axis, value in zip(block.iter_vars, values, strict=True):
        kind = int(axis.iter_type)
        if hash(value) not in loops or kind not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce):
            return None
        by_variable[hash(value)] = Axis(axis.var, loops[hash(value)], kind == tirx.IterVar.CommReduce)
    if len(by_variable) != len(order) or len(by_variable) != len(block.iter_vars):
        return None
    axes = tuple(by_variable[key] for key in order)
    return axes if [axis.reduces for axis in axes] == sorted(axis.reduces for axis in axes) else None


def _nest(axes: tuple[Axis, ...], block: Any) -> LoopNest | None:
    store, first = block.body, block.init
    indices = tuple(store.indices)
    own = {hash(axis.variable) for axis in axes if not axis.reduces}
    assigned = [hash(index) for index in indices if isinstance(index, ir.Var)]
    ones = all(isinstance(index, ir.Var | tirx.IntImm) for index in indices)
    needed = {hash(axis.variable) for axis in axes if not axis.reduces and axis.extent > 1}
    if not ones or len(set(assigned)) != len(assigned) or not needed <= set(assigned) <= own:
        return None
    nest = LoopNest(axes, store.buffer, indices, store.value, None if first is None else first.value)
    extents = {hash(axis.variable): axis.extent for axis in axes}
    if any(extents.get(hash(index), 1) != extent for index, extent in zip(indices, nest.shape, strict=True)):
        return None
    if any(axis.reduces for axis in axes) != (first is not None):
        return None
    own_loads = [load for load in loads_of(nest.value) if load.source.same_as(store.buffer)]
    if first is None:
        return None if own_loads else nest
    if not isinstance(first, tirx.BufferStore) or loads_of(first.value):
        return None
    return nest if all(_is_here(load, nest) for load in own_loads) else None


def _is_here(load: Any, nest: LoopNest) -> bool:
    return len(load.indices) == len(nest.indices) and all(
        index.same_as(own) or extent == 1
        for index, own, extent in zip(load.indices, nest.indices, nest.shape, strict=True)
    )


def groups(statements: Sequence[Any], nests: Sequence[LoopNest | None], own: Sequence[Any]) -> list[Group]:
    """Group reductions with computations on their results that can run while these are in registers."""
    grouped: list[Group] = []
    used: set[int] = set()
    for number, nest in enumerate(nests):
        if nest is None or nest.first is None:
            continue
        buffers, members = [nest.buffer], [number]
        for later in range(number + 1, len(statements)):
            touched = [buffer for buffer in buffers if _touches(statements[later], buffer)]
            if not touched:
                continue
            other = nests[later]
            if later in used or other is None or not _follows(other, nest, touched):
                break
            buffers.append(other.buffer)
            members.append(later)
        used.update(members)
        outside = [statement for place, statement in enumerate(statements) if place not in members]
        results = tuple(
            buffer
            for buffer in buffers
            if not any(buffer.same_as(item) for item in own) or any(_touches(item, buffer) for item in outside)
        )
        followers = tuple(item for item in (nests[place] for place in members[1:]) if item is not None)
        grouped.append(Group(nest, followers, results, members[-1]))
    return grouped


def _touches(statement: Any, buffer: Any) -> bool:
    loads: list[Any] = []

    def look(variable: Any) -> None:
        if variable.same_as(buffer):
            loads.append(variable)

    tvm_ffi.structural_walk(statement, (ir.Var, look), order="pre")
    return bool(loads)


def _follows(nest: LoopNest, reduction: LoopNest, buffers: Sequence[Any]) -> bool:
    """True if a nest reads the group's buffers only at its own element, in float (TVM fails on bound integers)."""
    whole = not tvm_types.element_type(nest.buffer).startswith("float")
    if whole or nest.first is not None or nest.shape != reduction.shape:
        return False
    return all(
        _is_here(load, nest) for load in loads_of(nest.value) if any(load.source.same_as(buffer) for buffer in buffers)
    )


@dataclass(frozen=True)
class TileRegisters:
    """Accumulator registers of a core; ``reach`` is the load offset, ``products`` limits unrolled steps."""

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
"""The first supported by the core is used unless tuned. Without an FPU, each float step is a call."""

_LONGEST = 8  # Maximum results along an axis of a tile.
_LOOP = 3  # Instructions per loop iteration, body excluded.
_RESULT = 8  # Instructions per result: initialise, finish and store.


@dataclass(frozen=True)
class Tile:
    """The unrolled part of a reduction: results per axis, in loop order, and steps per reduction axis."""

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
    """Choose a reduction's tile with the fewest estimated instructions."""
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
    most = min(registers.sums, 64 // library.item_bytes(tvm_types.element_type(nest.buffer)))
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
        stores = math.prod(size + extent % size for size, extent in zip(sizes, extents, strict=True))
        for steps in _steps(reduced):
            if stores * math.prod(steps) <= registers.products or math.prod(sizes) * math.prod(steps) == 1:
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
    """Estimates the instructions of a reduction, for decisions only."""

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
            math.prod(count for count, _ in values) * self._tile(tuple(size for _, size in values), tile.steps)
            for values in itertools.product(*spans)
        )

    def _tile(self, sizes: tuple[int, ...], steps: tuple[int, ...]) -> float:
        has = self._registers
        loads, streams = self._traffic(sizes, steps)
        points, stores = math.prod(sizes), math.prod(steps)
        at_once, _ = self._traffic(sizes, (1,) * len(steps))
        spilled = max(0, points + at_once - has.values)
        turn = 2 * points * stores + loads + streams + 2 * max(0, streams - has.pointers) + 2 * spilled * stores
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
            width = library.item_bytes(tvm_types.element_type(load.source))
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
    """Return the flat element indices that a load reads, for many values of variables."""
    place = np.zeros((), np.int64)
    for index, extent in zip(load.indices, load.source.shape, strict=True):
        place = place * int(extent) + _value(index, values)
    return place


_ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "FloorDiv": np.floor_divide, "FloorMod": np.mod}


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
