# SPDX-License-Identifier: Apache-2.0
"""Which inputs a reduction's result may lie over: what tiles read, and when, is looked at place by place."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.library import item_bytes
from utvm.compiler.schedule.nests import Axis, Group, loads_of
from utvm.compiler.schedule.tile_choice import Tile, address
from utvm.compiler.tvm_types import element_type

_MOST = 1 << 20  # Reads that are looked at.


def distances(group: Group, tile: Tile, inputs: Sequence[Any], output: Any) -> list[int]:
    """For each input how many bytes the output must begin before it for the two to share memory.

    -1 where they must not, or where it is too much to find out.

    Args:
        group: all that the function computes.
        tile: of it: first all that it reads for its sums is read, then its results are written.
    """
    nowhere = [-1] * len(inputs)
    axes = [axis for axis in group.reduction.axes if not axis.reduces]
    reduced = [axis for axis in group.reduction.axes if axis.reduces]
    loads = [load for load in loads_of(group.reduction.value) if not load.source.same_as(group.reduction.buffer)]
    later = [load for follower in group.followers for load in loads_of(follower.value)]
    many = math.prod(axis.extent for axis in group.reduction.axes) * len(loads)
    if not axes or many > _MOST or len(group.results) != 1 or not group.results[0].same_as(output):
        return nowhere
    places = np.meshgrid(*(np.arange(axis.extent) for axis in (*axes, *reduced)), indexing="ij")
    values = {hash(axis.variable): place for axis, place in zip((*axes, *reduced), places, strict=True)}
    points = [place.reshape(math.prod(axis.extent for axis in axes), -1)[:, 0] for place in places[: len(axes)]]
    order = _order(axes, tile, points)
    written = np.zeros(len(order), np.int64)
    for index, extent in zip(group.reduction.indices, group.reduction.shape, strict=True):
        place = next((point for axis, point in zip(axes, points, strict=True) if index.same_as(axis.variable)), 0)
        written = written * extent + place
    ends = (written + 1) * item_bytes(element_type(output))
    found = []
    for value in inputs:
        own = [load for load in loads if load.source.same_as(value)]
        if not own or any(load.source.same_as(value) for load in later):
            found.append(-1)
            continue
        try:
            lowest = np.minimum.reduce([_lowest(load, values, places[0].shape, len(order)) for load in own])
        except NotImplementedError:
            found.append(-1)
            continue
        found.append(_distance(order, ends, lowest * item_bytes(element_type(value))))
    return found


def _order(axes: Sequence[Axis], tile: Tile, points: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    order = np.zeros_like(points[0])
    for axis, size, point in zip(axes, tile.sizes, points, strict=True):
        order = order * -(-axis.extent // size) + point // size
    return order


def _lowest(load: Any, values: dict[int, Any], shape: tuple[int, ...], count: int) -> npt.NDArray[np.int64]:
    return np.asarray(np.broadcast_to(address(load, values), shape).reshape(count, -1).min(axis=1))


def _distance(order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], lowest: npt.NDArray[np.int64]) -> int:
    sort = np.argsort(order, kind="stable")
    begins = np.flatnonzero(np.diff(order[sort], prepend=-1))
    behind = np.maximum.accumulate(np.maximum.reduceat(ends[sort], begins))
    ahead = np.minimum.accumulate(np.minimum.reduceat(lowest[sort], begins)[::-1])[::-1]
    return int(max([0, *(behind[:-1] - ahead[1:]).tolist()]))
