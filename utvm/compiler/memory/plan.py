# SPDX-License-Identifier: Apache-2.0
"""Memory planning: the address of each tensor and workspace, and function variants that need less memory."""

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from utvm.compiler.library import HERE, Block, Placement, Tensor, item_bytes
from utvm.compiler.memory.graph import Graph, Location
from utvm.compiler.memory.regions import Memory, Region
from utvm.errors import CompileError, DoesNotFitError

# Neighbour visits of a search. No time limit: the plan is the same on any machine.
_WORK = 100_000
_FEW = 5  # Up to this many blocks, try every order.

Overlaps = Mapping[tuple[int, int], int]
"""(input block, output block): bytes that the output must begin before the input, which is then dead."""


@dataclass(frozen=True)
class Span:
    """Memory in use from one step to another, inclusive."""

    size: int
    first: int
    last: int
    alignment: int = 1

    def meets(self, other: "Span") -> bool:
        return self.first <= other.last and other.first <= self.last


def most_needed(spans: Sequence[Span], overlaps: Overlaps) -> tuple[int, int]:
    """Return the largest sum of bytes that a step needs, and the step; an output that shares memory counts once."""
    sharing: dict[int, dict[int, int]] = {}
    for (source, target), distance in overlaps.items():
        sharing.setdefault(target, {})[source] = distance
    worst = 0, 0
    for step in sorted({span.first for span in spans}):
        live = {number for number, span in enumerate(spans) if span.first <= step <= span.last}
        total = sum(spans[number].size for number in live)
        for target, sources in sharing.items():
            if spans[target].first == step:
                output, inputs = spans[target].size, sum(spans[source].size for source in sources)
                least = min(0 if distance == HERE else distance for distance in sources.values())
                together = max(output, inputs + min(output, least))
                total -= output + inputs - together
        worst = max(worst, (total, step))
    return worst


def height(spans: Sequence[Span], offsets: Sequence[int]) -> int:
    return max((offset + span.size for offset, span in zip(offsets, spans, strict=True)), default=0)


def arrange(spans: Sequence[Span], overlaps: Overlaps, *, enough: int | None = None, effort: int = _WORK) -> list[int]:
    """Return offsets that minimise the total size, by a bounded search over orders, with a fixed seed."""
    goal = most_needed(spans, overlaps)[0] if enough is None else enough
    puzzle = _Puzzle(spans, overlaps)
    best, order = min(
        ((puzzle.drop(order), order) for order in _orders(spans)), key=lambda layout: height(spans, layout[0])
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
    """Yield every order of few blocks, and promising orders of many."""
    if len(spans) <= _FEW:
        yield from map(list, itertools.permutations(range(len(spans))))
        return

    keys: list[Callable[[Span], tuple[int, ...]]] = [
        lambda span: (-span.size, span.first),
        lambda span: (span.first - span.last, -span.size, span.first),
        lambda span: (-span.size * (span.last - span.first + 1), span.first),
        lambda span: (span.first, -span.size),
        lambda span: (-span.last, -span.size),
    ]
    for key in keys:
        yield sorted(range(len(spans)), key=lambda number: (*key(spans[number]), number))


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
        # Per block and neighbour in time: the forbidden range of offsets from the neighbour's, exclusive.
        self._forbidden: list[list[tuple[int, int, int]]] = [
            [
                (other, low, high)
                for other in range(len(spans))
                if other != number and spans[other].meets(spans[number])
                for low, high in _forbidden_spans(number, other, spans, overlaps)
            ]
            for number in range(len(spans))
        ]

    def drop(self, order: Sequence[int], limit: int | None = None) -> list[int]:
        """Place blocks in an order, each at the lowest free offset."""
        offsets = [-1] * len(self._spans)
        for number in order:
            self.work += 1 + len(self._forbidden[number])
            occupied = sorted(
                (offsets[other] + low, offsets[other] + high)
                for other, low, high in self._forbidden[number]
                if offsets[other] >= 0
            )
            offset, alignment = 0, self._spans[number].alignment
            for low, high in occupied:
                if low < offset < high:
                    offset = -(-high // alignment) * alignment
            if limit is not None and offset + self._spans[number].size > limit:
                return []
            offsets[number] = offset
        return offsets


def _forbidden_spans(number: int, other: int, spans: Sequence[Span], overlaps: Overlaps) -> list[tuple[int, int]]:
    low, high = -spans[number].size, spans[other].size
    # If one block is computed from the other, it begins that many bytes before it.
    after, before = overlaps.get((number, other), high), overlaps.get((other, number), -low)
    if HERE in (after, before):
        return [(low, 0), (0, high)]
    return [(max(low, -before), min(high, after))]


_ALIGNMENT = 4  # Bytes; for loads of several narrow elements at once.
_TRIAL = 2000  # Search effort to test whether a region can take one more block.
WORKSPACE_ALIGNMENT = 8  # Alignment of the widest element type.

Key = tuple[str, int]  # ("input", "output" or "buffer", index), or ("workspace", step)


@dataclass(frozen=True)
class Plan:
    """Memory plan of a run; ``blocks`` are in the order of inputs, outputs, buffers, workspaces."""

    blocks: Mapping[Key, Block]
    region_bytes: Mapping[str, int]
    lower_bound_bytes: int

    def placement(self, kind: str, number: int) -> Placement:
        block = self.blocks[kind, number]
        return Placement(block.region, block.offset)


def plan_memory(
    graph: Graph,
    workspace_bytes: Mapping[str, int],
    overlaps: Mapping[str, Sequence[int | None]],
    memory: Memory | None = None,
    alignment: int = 1,
) -> Plan:
    """Place inputs, outputs, buffers and workspaces by liveness."""
    memory = memory or Memory()
    spans = _lives(graph, workspace_bytes, max(alignment, _ALIGNMENT))
    names = _names(graph, spans)
    shared = _share(graph, spans, overlaps)
    regions, offsets = _Filler(memory, spans, shared, _uses(graph, spans)).fill(_pin(memory, names))
    blocks = {
        key: Block(names[key], key[0], regions[key], offsets[key], span.size, span.first, span.last)
        for key, span in spans.items()
    }
    used = {region.name: 0 for region in memory.regions}
    for block in blocks.values():
        used[block.region] = max(used[block.region], block.offset + block.size)
    keys = list(spans)
    return Plan(blocks, used, most_needed(*_number(keys, spans, shared))[0])


def peak(
    graph: Graph, workspace_bytes: Mapping[str, int], overlaps: Mapping[str, Sequence[int | None]]
) -> tuple[int, int]:
    """Return :func:`most_needed` of a graph."""
    spans = _lives(graph, workspace_bytes, _ALIGNMENT)
    return most_needed(*_number(list(spans), spans, _share(graph, spans, overlaps)))


def _lives(graph: Graph, workspace_bytes: Mapping[str, int], alignment: int) -> dict[Key, Span]:
    tensors: dict[Key, Tensor] = {}
    inputs = () if graph.has_input_rows else graph.inputs
    for kind, members in (("input", inputs), ("output", graph.outputs), ("buffer", graph.buffers)):
        tensors.update({(kind, number): tensor for number, tensor in enumerate(members)})
    end = len(graph.steps)
    first: dict[Key, int] = {key: -1 for key in tensors if key[0] == "input"}
    last = {key: end if key[0] == "output" else -1 for key in tensors}
    for index, step in enumerate(graph.steps):
        for place in (*step.reads, *step.writes):
            if (key := _key(place)) in tensors:
                first.setdefault(key, index)
                last[key] = max(last[key], index)
    lives = {
        key: Span(tensor.size_bytes, first[key], last[key], max(alignment, item_bytes(tensor.dtype)))
        for key, tensor in tensors.items()
    }
    for index, step in enumerate(graph.steps):
        if size := max(workspace_bytes.get(call.function, 0) for call in step.calls):
            lives["workspace", index] = Span(size, index, index, WORKSPACE_ALIGNMENT)
    return lives


def _key(place: Location) -> Key:
    return place.kind, place.number


def _names(graph: Graph, spans: Mapping[Key, Span]) -> dict[Key, str]:
    tensors = {"input": graph.inputs, "output": graph.outputs, "buffer": graph.buffers}
    return {
        (kind, number): f"workspace of {graph.steps[number].function}"
        if kind == "workspace"
        else tensors[kind][number].name
        for kind, number in spans
    }


def _uses(graph: Graph, spans: Mapping[Key, Span]) -> dict[Key, int]:
    uses = {key: int(key[0] == "workspace") for key in spans}
    for step in graph.steps:
        for place in (*step.reads, *step.writes):
            if _key(place) in uses:
                uses[_key(place)] += 1
    return uses


def _share(
    graph: Graph, spans: Mapping[Key, Span], overlaps: Mapping[str, Sequence[int | None]]
) -> dict[tuple[Key, Key], int]:
    """Return which dead inputs outputs may overlap, as whole blocks, and how far before them they must begin."""
    shared: dict[tuple[Key, Key], int] = {}
    for index, step in enumerate(graph.steps):
        own = step.overlap if step.parts else overlaps.get(step.function)
        if own is None or (len(step.writes) != 1 and not step.parts):
            continue
        target = _key(step.writes[0])
        parts = sum(_key(place) == target for item in graph.steps for place in item.writes)
        if spans[target].first != index or parts > 1:
            continue
        allowed: dict[Key, list[int | None]] = {}
        # Constants follow the tensors and have no entry.
        distances = [*own, *[None] * len(step.reads)]
        for place, distance in zip(step.reads, distances, strict=False):
            allowed.setdefault(_key(place), []).append(None if place.offset else distance)
        for source, uses in allowed.items():
            known = [distance for distance in uses if distance is not None]
            if HERE in known and len(known) > 1:
                continue
            if source in spans and len(known) == len(uses) and spans[source].last == index:
                shared[source, target] = max(known)
    return shared


def _pin(memory: Memory, names: Mapping[Key, str]) -> dict[Key, str]:
    tensors = sorted({name for key, name in names.items() if key[0] != "workspace"})
    for tensor in memory.pins:
        if tensor not in tensors:
            raise CompileError(
                f"tensor {tensor} cannot be pinned to region {memory.pins[tensor]}: the model has no such tensor",
                f"tensors: {', '.join(tensors)}",
            )
    return {key: memory.pins[name] for key, name in names.items() if key[0] != "workspace" and name in memory.pins}


def _number(
    keys: Sequence[Key], spans: Mapping[Key, Span], shared: Mapping[tuple[Key, Key], int]
) -> tuple[list[Span], Overlaps]:
    numbers = {key: number for number, key in enumerate(keys)}
    overlaps = {
        (numbers[source], numbers[target]): distance
        for (source, target), distance in shared.items()
        if source in numbers and target in numbers
    }
    return [spans[key] for key in keys], overlaps


class _Filler:
    def __init__(
        self, memory: Memory, spans: Mapping[Key, Span], shared: Mapping[tuple[Key, Key], int], uses: Mapping[Key, int]
    ) -> None:
        self._memory = memory
        self._spans = spans
        self._share = shared
        # Most uses per byte first: these gain most from fast memory.
        self._order = sorted(spans, key=lambda key: (-uses[key], spans[key].size, key))

    def fill(self, pinned: Mapping[Key, str]) -> tuple[dict[Key, str], dict[Key, int]]:
        """Return region and offset of each block: pinned blocks first, then those that gain most."""
        regions: dict[Key, str] = dict(pinned)
        offsets: dict[Key, int] = {}
        for region in self._memory.regions:
            keys = [key for key in self._order if pinned.get(key) == region.name]
            if not self._fits(keys, region):
                raise self._too_small(region, keys)
            waiting = [key for key in self._order if key not in regions]
            if self._fits([*keys, *waiting], region):
                keys += waiting
            else:
                for key in waiting:
                    if self._fits([*keys, key], region):
                        keys.append(key)
            offsets.update(self._place(keys))
            regions.update(dict.fromkeys(keys, region.name))
        left = [key for key in self._order if key not in regions]
        if left:
            region = self._memory.regions[-1]
            raise self._too_small(region, [key for key in self._order if regions.get(key, region.name) == region.name])
        return regions, offsets

    def _fits(self, keys: Sequence[Key], region: Region) -> bool:
        if region.size_bytes is None:
            return True
        keys = sorted(keys)
        spans, overlaps = _number(keys, self._spans, self._share)
        if most_needed(spans, overlaps)[0] > region.size_bytes:
            return False
        # The final search starts the same way and runs longer, so its result is no worse.
        offsets = arrange(spans, overlaps, enough=region.size_bytes, effort=_TRIAL)
        return height(spans, offsets) <= region.size_bytes

    def _place(self, keys: Sequence[Key]) -> dict[Key, int]:
        keys = sorted(keys)
        return dict(zip(keys, arrange(*_number(keys, self._spans, self._share)), strict=True))

    def _too_small(self, region: Region, keys: Sequence[Key]) -> DoesNotFitError:
        need = height([self._spans[key] for key in sorted(keys)], list(self._place(keys).values()))
        return DoesNotFitError(
            f"memory region {region.name} has {region.size_bytes} bytes, its tensors need {need}",
            "give the region more bytes, add a region, or pin less to it",
        )


_ROUNDS = 16

Saving = Mapping[str, int]
"""Function name to its chosen variant: 0 is the fastest, each further one needs less memory."""


def save(
    graph: Graph, forms: Mapping[str, int], plan: Callable[[Saving], Plan], enough: int = 0
) -> tuple[Plan, Saving]:
    """Plan memory and choose variants of functions: the fastest that need no more than ``enough`` bytes, or least.

    Args:
        enough: 0 for a shorter search of the least.
    """
    last = {function: count - 1 for function, count in forms.items()}
    least = plan(last)
    best: tuple[Plan, Saving] | None = None
    if enough:
        return _fastest(least, last, plan, max(enough, _bytes(least)))
    levels = dict.fromkeys(forms, 0)
    for _ in range(_ROUNDS if any(last.values()) else 0):
        try:
            tried = plan(levels)
        except DoesNotFitError:
            break
        if best is None or _bytes(tried) < _bytes(best[0]):
            best = tried, dict(levels)
        # Blocks above the bound that no plan can undercut.
        above = _at_the_top(graph, tried, least.lower_bound_bytes)
        guilty = [item for item in above if levels.get(item, 0) < last.get(item, 0)]
        if not guilty:
            break
        for item in guilty:
            levels[item] += 1
    return best if best is not None and _bytes(best[0]) <= _bytes(least) else (least, last)


def _fastest(least: Plan, last: Saving, plan: Callable[[Saving], Plan], enough: int) -> tuple[Plan, Saving]:
    best, levels = least, last
    for function, slowest in last.items():
        for level in range(slowest):
            faster = {**levels, function: level}
            with contextlib.suppress(DoesNotFitError):
                tried = plan(faster)
                if _bytes(tried) <= enough:
                    best, levels = tried, faster
                    break
    return best, levels


def _bytes(plan: Plan) -> int:
    return sum(plan.region_bytes.values())


def _at_the_top(graph: Graph, plan: Plan, limit: int) -> set[str]:
    above = [block for block in plan.blocks.values() if block.offset + block.size > limit]
    return {
        call.function
        for index, step in enumerate(graph.steps)
        if any(block.first <= index <= block.last for block in above)
        for call in step.calls
    }
