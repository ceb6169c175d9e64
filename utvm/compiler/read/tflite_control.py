# SPDX-License-Identifier: Apache-2.0
"""Control flow of a TensorFlow Lite file: the graphs that ``IF`` and ``WHILE`` call by their numbers."""

from collections.abc import Sequence
from dataclasses import replace

from utvm.compiler.read.tflite_records import TfliteGraph, TfliteOperator, TfliteTensor
from utvm.errors import CompileError

CONTROL = ("IF", "WHILE")
"""Operators that call graphs: their options have two numbers, then and else, or condition and body."""

_IDENTITY = "RESHAPE"


def graphs_of(operator: TfliteOperator) -> tuple[int, int]:
    """The numbers of the graphs that an operator calls."""
    options = operator.options
    return (options.integer(0, "<i"), options.integer(1, "<i")) if options else (0, 0)


def called(graphs: Sequence[TfliteGraph], origin: str) -> tuple[int, ...]:
    """The numbers of the graphs that the first one calls, however indirectly, in order."""
    found: set[int] = set()

    def follow(number: int, path: tuple[int, ...]) -> None:
        for operator in graphs[number].operators:
            for item in graphs_of(operator) if operator.name in CONTROL else ():
                if not 0 < item < len(graphs):
                    raise CompileError(f"{origin}: {operator.name} calls graph {item}, of {len(graphs)}")
                if item in path:
                    raise CompileError(
                        f"{origin}: graph {item} calls itself, which is not supported",
                        "a board's memory is planned ahead: write the recursion as a loop",
                    )
                if item not in found:
                    found.add(item)
                    follow(item, (*path, item))

    follow(0, (0,))
    return tuple(sorted(found))


def with_constant_conditions(graphs: Sequence[TfliteGraph], origin: str) -> list[TfliteGraph]:
    """The graphs; an ``IF`` whose condition is constant becomes the operators of its branch."""
    done = list(graphs)
    # What is called comes first: a graph is taken over as it is then.
    for number in _inner_first(graphs, called(graphs, origin)):
        while (place := _constant_if(done[number])) is not None:
            done[number] = _inline(done[number], place, done, origin)
    return [replace(_computing(graph) if number else graph, number=number) for number, graph in enumerate(done)]


def _inner_first(graphs: Sequence[TfliteGraph], numbers: Sequence[int]) -> list[int]:
    order: list[int] = []

    def visit(number: int) -> None:
        for operator in graphs[number].operators:
            for item in graphs_of(operator) if operator.name in CONTROL else ():
                visit(item)
        if number not in order:
            order.append(number)

    for number in (*numbers, 0):
        visit(number)
    return order


def _constant_if(graph: TfliteGraph) -> int | None:
    for place, operator in enumerate(graph.operators):
        if operator.name == "IF" and operator.inputs and 0 <= operator.inputs[0] < len(graph.tensors):
            data = graph.tensors[operator.inputs[0]].data
            if data is not None and data.size == 1:
                return place
    return None


def _inline(graph: TfliteGraph, place: int, graphs: Sequence[TfliteGraph], origin: str) -> TfliteGraph:
    operator = graph.operators[place]
    data = graph.tensors[operator.inputs[0]].data
    branch = graphs[graphs_of(operator)[0 if data is not None and data[0] else 1]]
    check_call(graph, operator, graphs, origin)
    first = len(graph.tensors)
    numbers = dict(zip(branch.inputs, operator.inputs[1:], strict=True))

    def outside(number: int) -> int:
        return number if number < 0 else numbers.get(number, first + number)

    moved = [
        replace(
            operator,
            inputs=tuple(map(outside, operator.inputs)),
            outputs=tuple(outside(number) for number in operator.outputs),
        )
        for operator in branch.operators
    ]
    instead = dict(zip(operator.outputs, map(outside, branch.outputs), strict=True))
    tensors = [*graph.tensors, *branch.tensors]
    for outer, inner in instead.items():
        if inner >= first and tensors[inner].data is None:
            tensors[inner] = replace(tensors[inner], name=graph.tensors[outer].name)
    rest = [
        replace(operator, inputs=tuple(instead.get(number, number) for number in operator.inputs))
        for operator in graph.operators[place + 1 :]
    ]
    return replace(
        graph,
        tensors=tuple(tensors),
        operators=(*graph.operators[:place], *moved, *rest),
        outputs=tuple(instead.get(number, number) for number in graph.outputs),
    )


def _computing(graph: TfliteGraph) -> TfliteGraph:
    if graph.operators or not graph.outputs or not all(0 <= value < len(graph.tensors) for value in graph.outputs):
        return graph
    first = len(graph.tensors)
    made = [replace(graph.tensors[number], data=None) for number in graph.outputs]
    operators = tuple(
        TfliteOperator(_IDENTITY, (number,), (first + place,), 0, None)
        for place, number in enumerate(graph.outputs)
    )
    return replace(
        graph,
        tensors=(*graph.tensors, *made),
        operators=operators,
        outputs=tuple(range(first, first + len(made))),
    )


def check_call(graph: TfliteGraph, operator: TfliteOperator, graphs: Sequence[TfliteGraph], origin: str) -> None:
    """Check that an operator hands to graphs what they take, and takes what they give."""
    first, second = (graphs[number] for number in graphs_of(operator))
    given = operator.inputs if operator.name == "WHILE" else operator.inputs[1:]
    where = f"{origin}: {operator.name}"
    if operator.name == "IF":
        _check_condition(graph, operator.inputs[:1], where)
        calls = [(item, operator.outputs) for item in (first, second)]
    else:
        _check_condition(first, first.outputs, where)
        calls = [(replace(first, outputs=()), ()), (second, operator.outputs)]
        _check_alike([(graph, given), (graph, operator.outputs)], where)
    for branch, results in calls:
        _check_alike([(graph, given), (branch, branch.inputs)], where)
        _check_alike([(graph, results), (branch, branch.outputs)], where)


def _check_condition(graph: TfliteGraph, numbers: Sequence[int], where: str) -> None:
    known = [graph.tensors[number] for number in numbers if 0 <= number < len(graph.tensors)]
    if len(numbers) != 1 or [(item.dtype, item.size) for item in known] != [("bool", 1)]:
        raise CompileError(f"{where}: its condition must be one tensor of one bool")


def _check_alike(sides: Sequence[tuple[TfliteGraph, Sequence[int]]], where: str) -> None:
    lists: list[list[TfliteTensor]] = []
    for graph, numbers in sides:
        if any(not 0 <= number < len(graph.tensors) for number in numbers):
            raise CompileError(f"{where}: reads or writes a tensor that the file does not have")
        lists.append([graph.tensors[number] for number in numbers])
    if len(lists[0]) != len(lists[1]):
        raise CompileError(f"{where}: {len(lists[0])} tensors meet {len(lists[1])} of a graph that it calls")
    for one, other in zip(*lists, strict=True):
        if (one.dtype, one.size) != (other.dtype, other.size):
            raise CompileError(
                f"{where}: {one.name!r}, {one.dtype} of shape {one.shape}, meets {other.name!r}, {other.dtype} of "
                f"shape {other.shape}",
                "a board's memory is planned ahead: tensors must keep their shapes in every branch and round",
            )
