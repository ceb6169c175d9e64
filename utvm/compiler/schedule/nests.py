# SPDX-License-Identifier: Apache-2.0
"""Loops around one assignment, as TVM makes them of an operator: read, and brought together.

A group is a reduction and what is computed, element by element, of its result: bias, activation, residual.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from utvm.compiler.tvm_types import element_type


@dataclass(frozen=True)
class Axis:
    """A loop: what an assignment calls it, and how far it goes."""

    variable: Any
    extent: int
    reduces: bool


@dataclass(frozen=True)
class LoopNest:
    """Loops around one assignment.

    Attributes:
        axes: outermost loop first; those of a reduction are behind all others.
        value: what is assigned; a reduction reads the buffer in it.
        first: a reduction's value before its first step.
    """

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
    """A reduction, and what is computed of its result.

    Attributes:
        results: of the buffers, those that are read by others.
        place: number of the statement in whose place it is computed.
    """

    reduction: LoopNest
    followers: tuple[LoopNest, ...]
    results: tuple[Any, ...]
    place: int


def loads_of(node: Any) -> list[Any]:
    loads: list[Any] = []
    tvm_ffi.structural_walk(node, (ir.TensorLoad, loads.append), order="pre")
    return loads


def read_nest(statement: Any) -> LoopNest | None:
    """Read loops; None where they are not plain loops around one assignment to an element for each turn."""
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
    found: dict[int, Axis] = {}
    for axis, value in zip(block.iter_vars, values, strict=True):
        kind = int(axis.iter_type)
        if hash(value) not in loops or kind not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce):
            return None
        found[hash(value)] = Axis(axis.var, loops[hash(value)], kind == tirx.IterVar.CommReduce)
    if len(found) != len(order) or len(found) != len(block.iter_vars):
        return None
    axes = tuple(found[key] for key in order)
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
    """Bring reductions together with what can be computed of their results while these are at hand."""
    found: list[Group] = []
    taken: set[int] = set()
    for number, nest in enumerate(nests):
        if nest is None or nest.first is None:
            continue
        buffers, members = [nest.buffer], [number]
        for later in range(number + 1, len(statements)):
            touched = [buffer for buffer in buffers if _touches(statements[later], buffer)]
            if not touched:
                continue
            other = nests[later]
            if later in taken or other is None or not _follows(other, nest, touched):
                break
            buffers.append(other.buffer)
            members.append(later)
        taken.update(members)
        outside = [statement for place, statement in enumerate(statements) if place not in members]
        results = tuple(
            buffer
            for buffer in buffers
            if not any(buffer.same_as(item) for item in own) or any(_touches(item, buffer) for item in outside)
        )
        followers = tuple(item for item in (nests[place] for place in members[1:]) if item is not None)
        found.append(Group(nest, followers, results, members[-1]))
    return found


def _touches(statement: Any, buffer: Any) -> bool:
    found: list[Any] = []

    def look(variable: Any) -> None:
        if variable.same_as(buffer):
            found.append(variable)

    tvm_ffi.structural_walk(statement, (ir.Var, look), order="pre")
    return bool(found)


def _follows(nest: LoopNest, reduction: LoopNest, buffers: Sequence[Any]) -> bool:
    """Whether a nest computes each element of those of a group at the same place, as a real number.

    Of whole numbers that a name is given to, TVM's analyser looks for bounds, and fails where 32 bits hold none.
    """
    whole = not element_type(nest.buffer).startswith("float")
    if whole or nest.first is not None or nest.shape != reduction.shape:
        return False
    return all(
        _is_here(load, nest)
        for load in loads_of(nest.value)
        if any(load.source.same_as(buffer) for buffer in buffers)
    )
