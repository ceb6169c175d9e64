# SPDX-License-Identifier: Apache-2.0
"""The graph as data: what the graph executor reads, ``utvm/runtime/portable/graph_executor.h`` says how."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from utvm.compiler.memory.graph import Graph, Location
from utvm.compiler.memory.plan import Plan
from utvm.errors import CompileError

_KINDS = {"input": 0, "output": 1, "constant": 2, "region": 3}
_COPY = 0xFFFF
_MOST = 0xFFFE  # What 16 bits can number, the number of copies left out.


@dataclass(frozen=True)
class Argument:
    """One argument of an operator."""

    bytes: int
    alignment: int
    written: bool


@dataclass(frozen=True)
class _Held:
    """A tensor as the description knows it: what holds it, and where in that it is."""

    kind: str
    number: int
    offset: int
    size: int


@dataclass(frozen=True)
class Description:
    """A graph for the graph executor."""

    content: bytes
    text: str


def describe(graph: Graph, plan: Plan, arguments: Mapping[str, Sequence[Argument]]) -> Description:
    operators = {function: number for number, function in enumerate(arguments)}
    regions = {region: number for number, region in enumerate(plan.region_bytes)}
    names = [*regions, *(f"state {number}" for number in range(len(graph.states)))]
    tensors: dict[_Held, int] = {}

    def number_of(held: _Held) -> int:
        return tensors.setdefault(held, len(tensors))

    def in_region(kind: str, number: int, offset: int, size: int) -> _Held:
        placement = plan.placement(kind, number)
        return _Held("region", regions[placement.region], placement.offset + offset, size)

    def held(place: Location, size: int) -> _Held:
        if place.kind == "buffer":
            return in_region("buffer", place.number, place.offset, size)
        if place.kind == "state":
            # What the library keeps is a region to the executor, behind those of the plan.
            return _Held("region", len(regions) + place.number, place.offset, size)
        return _Held(place.kind, place.number, place.offset, size)

    steps: list[tuple[int, list[int]]] = []
    for index, step in enumerate(graph.steps):
        places = (*step.reads, *step.writes)
        if not step.function:
            steps.append((_COPY, [number_of(held(place, step.copied_bytes)) for place in places]))
            continue
        sizes = [argument.bytes for argument in arguments[step.function]]
        used = [number_of(held(place, size)) for place, size in zip(places, sizes, strict=False)]
        if len(sizes) > len(places):
            used.append(number_of(in_region("workspace", index, 0, sizes[-1])))
        steps.append((operators[step.function], used))
    if max(len(tensors), len(steps), len(operators)) > _MOST:
        raise CompileError(
            f"the graph executor cannot number {len(tensors)} tensors and {len(steps)} steps",
            "use the executor aot",
        )
    return Description(_binary(list(tensors), steps), _text(list(tensors), steps, list(operators), names))


def _binary(tensors: Sequence[_Held], steps: Sequence[tuple[int, list[int]]]) -> bytes:
    parts = [struct.pack("<4sHH", b"UGR1", len(tensors), len(steps))]
    parts += [
        struct.pack("<HHII", _KINDS[tensor.kind], tensor.number, tensor.offset, tensor.size) for tensor in tensors
    ]
    parts += [struct.pack(f"<HH{len(used)}H", number, len(used), *used) for number, used in steps]
    return b"".join(parts)


def _text(
    tensors: Sequence[_Held],
    steps: Sequence[tuple[int, list[int]]],
    operators: Sequence[str],
    regions: Sequence[str],
) -> str:
    content = {
        "format": "utvm graph, version 1",
        "tensors": [
            {
                "in": regions[tensor.number] if tensor.kind == "region" else f"{tensor.kind} {tensor.number}",
                "offset": tensor.offset,
                "bytes": tensor.size,
            }
            for tensor in tensors
        ],
        "steps": [
            {"operator": "copy" if number == _COPY else operators[number], "tensors": used}
            for number, used in steps
        ],
    }
    return json.dumps(content, indent=1) + "\n"
