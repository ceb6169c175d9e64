# SPDX-License-Identifier: Apache-2.0
"""Sums in registers, a tile of results at a time; each sum keeps its order, so results are bit-identical."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi
from tvm import ir, s_tir, tirx

from utvm.compiler.kernels.functions import KERNEL, OVERLAP
from utvm.compiler.library import item_bytes
from utvm.compiler.schedule import tile_choice
from utvm.compiler.tvm_types import element_type

_Span = tuple[int, int, int]  # Along an axis: start, number of tiles, length of a tile.


def with_tiles(function: Any, registers: tile_choice.TileRegisters) -> Any:
    root = function.body.block
    statements = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    nests = [tile_choice.read_nest(statement) for statement in statements]
    buffers = list(root.alloc_buffers)
    statement_groups = tile_choice.groups(statements, nests, buffers)
    if not statement_groups:
        return function
    tiles = [tile_choice.choose(group.reduction, registers) for group in statement_groups]
    sums = []
    for group, tile in zip(statement_groups, tiles, strict=True):
        members = [group.reduction, *group.followers]
        sums.append(tirx.decl_buffer([tile.points], element_type(group.reduction.buffer), "sum", scope="local"))
        body = _Writer(group, tile, sums[-1]).all_of([axis for axis in group.reduction.axes if not axis.reduces])
        for number, nest in enumerate(nests):
            if any(nest is member for member in members):
                statements[number] = body if number == group.place else tirx.Evaluate(0)
        unneeded = [member.buffer for member in members if not _is_one_of(member.buffer, group.results)]
        buffers = [buffer for buffer in buffers if not _is_one_of(buffer, unneeded)]
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        _sequence(statements),
        alloc_buffers=[*buffers, *sums],
        annotations=root.annotations,
    )
    message = dict.fromkeys(tile.text for tile in tiles if tile.text)
    tiled = function.with_body(s_tir.SBlockRealize([], True, block)).with_attr(KERNEL, "; ".join(message))
    if len(statement_groups) > 1 or len(statements) > 1 + len(statement_groups[0].followers):
        return tiled
    *inputs, output = function.params
    return tiled.with_attr(OVERLAP, distances(statement_groups[0], tiles[0], inputs, output))


def _is_one_of(buffer: Any, buffers: Sequence[Any]) -> bool:
    return any(buffer.same_as(item) for item in buffers)


def _spans(extent: int, size: int) -> list[_Span]:
    whole, rest = divmod(extent, size)
    return [(0, whole, size), *([(whole * size, 1, rest)] if rest else [])]


class _Writer:
    """Writes the loops of a group: on each axis whole tiles first, then the remainder."""

    def __init__(self, group: tile_choice.Group, tile: tile_choice.Tile, sums: Any) -> None:
        self._group = group
        self._tile = tile
        self._sums = sums

    def all_of(self, axes: Sequence[tile_choice.Axis], *begun: tuple[tile_choice.Axis, Any, int]) -> Any:
        if not axes:
            return self._one(begun)
        parts = []
        for first, count, size in _spans(axes[0].extent, self._tile.sizes[len(begun)]):
            loops: list[tuple[Any, int]] = []
            begin = _begin(axes[0], first, count, size, loops)
            parts.append(_loop([self.all_of(axes[1:], *begun, (axes[0], begin, size))], loops))
        return _sequence(parts)

    def _one(self, begun: Sequence[tuple[tile_choice.Axis, Any, int]]) -> Any:
        points = [
            {hash(axis.variable): _plus(begin, step) for (axis, begin, _), step in zip(begun, steps, strict=True)}
            for steps in itertools.product(*(range(size) for _, _, size in begun))
        ]
        body = [tirx.BufferStore(self._sums, self._group.reduction.first, [_at(n)]) for n in range(len(points))]
        body += [self._sum(points)]
        for number, point in enumerate(points):
            body += self._results(number, point)
        return _sequence(body)

    def _sum(self, points: Sequence[dict[int, Any]]) -> Any:
        nest = self._group.reduction
        axes = [axis for axis in nest.axes if axis.reduces]
        loops: list[tuple[Any, int]] = []
        begins = [
            _begin(axis, 0, axis.extent // step, step, loops) for axis, step in zip(axes, self._tile.steps, strict=True)
        ]
        body = []
        for steps in itertools.product(*(range(step) for step in self._tile.steps)):
            reduced = {
                hash(axis.variable): _plus(begin, step) for axis, begin, step in zip(axes, begins, steps, strict=True)
            }
            for number, point in enumerate(points):
                value = self._place(nest.value, point | reduced, {hash(nest.buffer): self._load(number)})
                body.append(tirx.BufferStore(self._sums, value, [_at(number)]))
        return _loop(body, loops)

    def _load(self, number: int) -> Any:
        return tirx.BufferLoad(self._sums, [_at(number)])

    def _results(self, number: int, point: dict[int, Any]) -> Iterator[Any]:
        reduction = self._group.reduction
        known = {hash(reduction.buffer): self._load(number)}
        places = [point.get(hash(index), index) for index in reduction.indices]
        for nest in (reduction, *self._group.followers):
            if nest is not reduction:
                own = {hash(index): place for index, place in zip(nest.indices, places, strict=True)}
                variable = ir.Var(str(nest.buffer.name), ir.PrimType(element_type(nest.buffer)))
                yield tirx.Bind(variable, self._place(nest.value, own, known))
                known[hash(nest.buffer)] = variable
            if _is_one_of(nest.buffer, self._group.results):
                yield tirx.BufferStore(nest.buffer, known[hash(nest.buffer)], places)

    @staticmethod
    def _place(value: Any, variables: dict[int, Any], known: dict[int, Any]) -> Any:
        changes = [
            (ir.TensorLoad, lambda load: known.get(hash(load.source), load)),
            (ir.Var, lambda variable: variables.get(hash(variable), variable)),
        ]
        return tvm_ffi.structural_map(value, changes, order="post")


def _begin(axis: tile_choice.Axis, first: int, count: int, size: int, loops: list[tuple[Any, int]]) -> Any:
    kind = element_type(axis.variable)
    if count == 1:
        return tirx.const(first, kind)
    loop = ir.Var(str(axis.variable.name), axis.variable.ty)
    loops.append((loop, count))
    return _plus(loop * tirx.const(size, kind) if size > 1 else loop, first)


def _plus(place: Any, step: int) -> Any:
    return place + tirx.const(step, element_type(place)) if step else place


def _at(number: int) -> Any:
    return tirx.const(number, "int32")


def _loop(body: Sequence[Any], loops: Sequence[tuple[Any, int]]) -> Any:
    statement = _sequence(body)
    for loop, count in reversed(loops):
        kind = element_type(loop)
        statement = tirx.For(loop, tirx.const(0, kind), tirx.const(count, kind), tirx.ForKind.SERIAL, statement)
    return statement


def _sequence(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


_MOST = 1 << 20  # Maximum reads to examine.


def distances(group: tile_choice.Group, tile: tile_choice.Tile, inputs: Sequence[Any], output: Any) -> list[int]:
    """Return, per input, how many bytes the output must begin before it to share memory; -1 if unknown."""
    nowhere = [-1] * len(inputs)
    axes = [axis for axis in group.reduction.axes if not axis.reduces]
    reduced = [axis for axis in group.reduction.axes if axis.reduces]
    loads = [
        load for load in tile_choice.loads_of(group.reduction.value) if not load.source.same_as(group.reduction.buffer)
    ]
    later = [load for follower in group.followers for load in tile_choice.loads_of(follower.value)]
    many = math.prod(axis.extent for axis in group.reduction.axes) * len(loads)
    if not axes or many > _MOST or len(group.results) != 1 or not group.results[0].same_as(output):
        return nowhere
    places = np.meshgrid(*(np.arange(axis.extent) for axis in (*axes, *reduced)), indexing="ij")
    values = {hash(axis.variable): place for axis, place in zip((*axes, *reduced), places, strict=True)}
    points = [place.reshape(math.prod(axis.extent for axis in axes), -1)[:, 0] for place in places[: len(axes)]]
    order = _order(axes, tile, points)
    strides = np.zeros(len(order), np.int64)
    for index, extent in zip(group.reduction.indices, group.reduction.shape, strict=True):
        place = next((point for axis, point in zip(axes, points, strict=True) if index.same_as(axis.variable)), 0)
        strides = strides * extent + place
    ends = (strides + 1) * item_bytes(element_type(output))
    results = []
    for value in inputs:
        own = [load for load in loads if load.source.same_as(value)]
        if not own or any(load.source.same_as(value) for load in later):
            results.append(-1)
            continue
        try:
            lowest = np.minimum.reduce([_lowest(load, values, places[0].shape, len(order)) for load in own])
        except NotImplementedError:
            results.append(-1)
            continue
        results.append(_distance(order, ends, lowest * item_bytes(element_type(value))))
    return results


def _order(
    axes: Sequence[tile_choice.Axis], tile: tile_choice.Tile, points: Sequence[npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64]:
    order = np.zeros_like(points[0])
    for axis, size, point in zip(axes, tile.sizes, points, strict=True):
        order = order * -(-axis.extent // size) + point // size
    return order


def _lowest(load: Any, values: dict[int, Any], shape: tuple[int, ...], count: int) -> npt.NDArray[np.int64]:
    return np.asarray(np.broadcast_to(tile_choice.address(load, values), shape).reshape(count, -1).min(axis=1))


def _distance(order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], lowest: npt.NDArray[np.int64]) -> int:
    sort = np.argsort(order, kind="stable")
    begins = np.flatnonzero(np.diff(order[sort], prepend=-1))
    behind = np.maximum.accumulate(np.maximum.reduceat(ends[sort], begins))
    ahead = np.minimum.accumulate(np.minimum.reduceat(lowest[sort], begins)[::-1])[::-1]
    return int(max([0, *(behind[:-1] - ahead[1:]).tolist()]))
