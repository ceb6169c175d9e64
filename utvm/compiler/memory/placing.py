# SPDX-License-Identifier: Apache-2.0
"""Placing blocks of memory at addresses: the planner's puzzle, without a model in it."""

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from utvm.compiler.library import HERE

# Visits to a neighbour that a search may make. No clock ends it: the same plan comes out anywhere.
_WORK = 100_000
_FEW = 5  # Blocks that are put down in every order: no search finds better.

Overlaps = Mapping[tuple[int, int], int]
"""(input block, output block) to how many bytes the output must begin before the input for both to share memory.

The input is used up by the step that makes the output."""


@dataclass(frozen=True)
class Span:
    """Memory that is needed from one step to another, both included."""

    size: int
    first: int
    last: int
    alignment: int = 1

    def meets(self, other: "Span") -> bool:
        return self.first <= other.last and other.first <= self.last


def lower_bound(spans: Sequence[Span], overlaps: Overlaps) -> int:
    """The largest sum of bytes that a step needs, where an output that shares memory counts once."""
    sharing: dict[int, dict[int, int]] = {}
    for (source, target), distance in overlaps.items():
        sharing.setdefault(target, {})[source] = distance
    worst = 0
    for step in sorted({span.first for span in spans}):
        live = {number for number, span in enumerate(spans) if span.first <= step <= span.last}
        total = sum(spans[number].size for number in live)
        for target, sources in sharing.items():
            if spans[target].first == step:
                output, inputs = spans[target].size, sum(spans[source].size for source in sources)
                least = min(0 if distance == HERE else distance for distance in sources.values())
                together = max(output, inputs + min(output, least))
                total -= output + inputs - together
        worst = max(worst, total)
    return worst


def height(spans: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((offset + span.size for offset, span in zip(offsets, spans, strict=True)), default=0)


def arrange(
    spans: Sequence[Span], overlaps: Overlaps, *, enough: int | None = None, effort: int = _WORK
) -> list[int]:
    """An offset for each block, so that the whole is as low as a bounded search finds.

    Blocks are put down in some order, each at the lowest free offset. All orders of few blocks are tried, or
    several of many, the best of which is changed at random, by a fixed seed.
    """
    goal = lower_bound(spans, overlaps) if enough is None else enough
    puzzle = _Puzzle(spans, overlaps)
    best, order = min(
        ((puzzle.drop(order), order) for order in _orders(spans)), key=lambda found: height(spans, found[0])
    )
    lowest = height(spans, best)
    chance = random.Random(20)
    while lowest > goal and puzzle.work < effort and len(spans) > _FEW:
        changed = _change(order, spans, best, chance)
        offsets = puzzle.drop(changed, limit=lowest)
        if offsets:
            best, order, lowest = offsets, changed, height(spans, offsets)
    return best


def _orders(spans: Sequence[Span]) -> Iterable[list[int]]:
    """Every order of few blocks, and promising ones of many."""
    if len(spans) <= _FEW:
        yield from map(list, itertools.permutations(range(len(spans))))
        return

    def life(number: int) -> int:
        return spans[number].last - spans[number].first

    def size(number: int) -> int:
        return spans[number].size

    def first(number: int) -> int:
        return spans[number].first

    keys: list[Callable[[int], tuple[int, ...]]] = [
        lambda number: (-size(number), first(number)),
        lambda number: (-life(number), -size(number), first(number)),
        lambda number: (-size(number) * (life(number) + 1), first(number)),
        lambda number: (first(number), -size(number)),
        lambda number: (-spans[number].last, -size(number)),
    ]
    for key in keys:
        yield sorted(range(len(spans)), key=lambda number: (*key(number), number))


def _change(order: list[int], spans: Sequence[Span], offsets: Sequence[int], chance: random.Random) -> list[int]:
    top = max(range(len(spans)), key=lambda number: (offsets[number] + spans[number].size, number))
    moved = top if chance.random() < 0.5 else order[int(chance.random() * len(order))]
    rest = [number for number in order if number != moved]
    position = int(chance.random() * len(order))
    return [*rest[:position], moved, *rest[position:]]


class _Puzzle:
    def __init__(self, spans: Sequence[Span], overlaps: Overlaps) -> None:
        self.work = 0
        self._spans = spans
        # For each block and each neighbour in time: the offsets from the neighbour's between which it must not
        # begin, both excluded.
        self._forbidden: list[list[tuple[int, int, int]]] = [
            [
                (other, low, high)
                for other in range(len(spans))
                if other != number and spans[other].meets(spans[number])
                for low, high in _forbidden(number, other, spans, overlaps)
            ]
            for number in range(len(spans))
        ]

    def drop(self, order: Sequence[int], limit: int | None = None) -> list[int]:
        """Put blocks down in an order, each at the lowest free offset."""
        offsets = [-1] * len(self._spans)
        for number in order:
            self.work += 1 + len(self._forbidden[number])
            taken = sorted(
                (offsets[other] + low, offsets[other] + high)
                for other, low, high in self._forbidden[number]
                if offsets[other] >= 0
            )
            offset, alignment = 0, self._spans[number].alignment
            for low, high in taken:
                if low < offset < high:
                    offset = -(-high // alignment) * alignment
            if limit is not None and offset + self._spans[number].size > limit:
                return []
            offsets[number] = offset
        return offsets


def _forbidden(number: int, other: int, spans: Sequence[Span], overlaps: Overlaps) -> list[tuple[int, int]]:
    low, high = -spans[number].size, spans[other].size
    # Of two, the one is made from the other, and begins that many bytes before it.
    after, before = overlaps.get((number, other), high), overlaps.get((other, number), -low)
    if HERE in (after, before):
        return [(low, 0), (0, high)]
    return [(max(low, -before), min(high, after))]
