"""Memory planning: which bytes of the arena each buffer and workspace has, and when."""

from collections.abc import Mapping
from dataclasses import dataclass

from utvm.compiler.graph import Graph
from utvm.compiler.printer import ALIGNMENT


@dataclass(frozen=True)
class Plan:
    """Where everything is during one run.

    Attributes:
        offsets: arena offset of each buffer that lies in the arena, in bytes.
        workspaces: arena offset of each step's workspace, for steps that have one.
        direct: buffer number to output number, for buffers that are written straight into an output.
        arena_bytes: size of the arena.
    """

    offsets: Mapping[int, int]
    workspaces: Mapping[int, int]
    direct: Mapping[int, int]
    arena_bytes: int


@dataclass(frozen=True)
class _Block:
    """Memory that is needed from one step to another, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: "_Block") -> bool:
        return self.first <= other.last and other.first <= self.last


def plan_memory(graph: Graph, workspace_bytes: Mapping[str, int]) -> Plan:
    """Place buffers by liveness, largest first, each at the lowest free offset.

    Args:
        workspace_bytes: scratch bytes of each operator function.
    """
    direct: dict[int, int] = {}
    for number, place in enumerate(graph.results):
        if place.kind == "buffer":
            direct.setdefault(place.number, number)
    blocks = _buffer_blocks(graph, direct) | _workspace_blocks(graph, workspace_bytes)
    placed: dict[tuple[str, int], int] = {}
    order = sorted(blocks, key=lambda key: (-blocks[key].size, blocks[key].first, key))
    for key in order:
        placed[key] = _lowest_free(blocks[key], [(placed[other], blocks[other]) for other in placed])
    return Plan(
        offsets={number: offset for (kind, number), offset in placed.items() if kind == "buffer"},
        workspaces={step: offset for (kind, step), offset in placed.items() if kind == "workspace"},
        direct=direct,
        arena_bytes=max((offset + blocks[key].size for key, offset in placed.items()), default=0),
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _buffer_blocks(graph: Graph, direct: Mapping[int, int]) -> dict[tuple[str, int], _Block]:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, step in enumerate(graph.steps):
        for place in step.writes:
            first[place.number] = last[place.number] = index
        for place in step.reads:
            if place.kind == "buffer":
                last[place.number] = index
    return {
        ("buffer", number): _Block(_aligned(graph.buffers[number].size_bytes), first[number], last[number])
        for number in first
        if number not in direct
    }


def _workspace_blocks(graph: Graph, workspace_bytes: Mapping[str, int]) -> dict[tuple[str, int], _Block]:
    return {
        ("workspace", index): _Block(_aligned(workspace_bytes[step.function]), index, index)
        for index, step in enumerate(graph.steps)
        if workspace_bytes[step.function]
    }


def _lowest_free(block: _Block, others: list[tuple[int, _Block]]) -> int:
    offset = 0
    for start, other in sorted((item for item in others if item[1].meets(block)), key=lambda item: item[0]):
        if offset + block.size <= start:
            break
        offset = max(offset, start + other.size)
    return offset
