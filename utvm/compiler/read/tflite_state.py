# SPDX-License-Identifier: Apache-2.0
"""States and control flow of a TFLite file as graphs: a tensor read by a run, and one stored at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from utvm.compiler.library import ELEMENT_TYPES, MAX_TENSOR_BYTES, item_bytes
from utvm.compiler.read.tflite_records import StateTensor, TfliteGraph, TfliteOperator, TfliteTensor
from utvm.errors import CompileError

_OPERATORS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19), "SVDF": (4,)}
"""Operators with states, and the operand numbers of these states, which are also written."""

_MEMORIES = ("CIRCULAR_BUFFER", *(f"Signal{name}" for name in ("Delay", "Framer", "OverlapAdd", "Stacker")))
_MEMORIES = (*_MEMORIES, "SignalFilterBankSpectralSubtraction")
"""Custom operators with a state inside, which becomes one more input and output."""

_VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")

_Name = tuple[str, str]  # Container and name of a variable.


def with_states(graphs: Sequence[TfliteGraph], origin: str) -> TfliteGraph:
    """Return a file's first graph with its states as inputs and outputs."""
    graph = graphs[0]
    stateful = any(operator.name in (*_OPERATORS, *_VARIABLES, *_MEMORIES) for operator in graph.operators)
    if not stateful or not all(map(_is_whole, graphs)):
        return graph
    return _Reader(graphs, origin).read()


def _is_whole(graph: TfliteGraph) -> bool:
    count = len(graph.tensors)
    return all(
        all(-1 <= number < count for number in operator.inputs)
        and all(0 <= number < count for number in operator.outputs)
        for operator in graph.operators
    )


@dataclass
class _Variable:
    """A variable: ``first`` is the tensor read first (-1: none), ``now`` the current one (-1: still ``first``)."""

    first: int = -1
    now: int = -1
    initial: npt.NDArray[np.uint8] | None = None


class _Reader:
    def __init__(self, graphs: Sequence[TfliteGraph], origin: str) -> None:
        self._graphs = graphs
        self._origin = origin
        self._tensors = list(graphs[0].tensors)
        self._operators: list[TfliteOperator] = []
        self._handles: dict[int, _Name] = {}
        self._variables: dict[_Name, _Variable] = {}
        self._instead: dict[int, int] = {}

    def read(self) -> TfliteGraph:
        graph = self._graphs[0]
        own = {number: ("", f"tensor {number}") for number, tensor in enumerate(graph.tensors) if tensor.variable}
        for operator in graph.operators:
            if operator.name == "VAR_HANDLE":
                self._handles |= self._handle(operator, self._tensors)
            elif operator.name == "CALL_ONCE":
                self._begin(operator)
            elif operator.name == "READ_VARIABLE":
                self._read(operator)
            elif operator.name == "ASSIGN_VARIABLE":
                self._variable(operator, self._handles).now = self._final(operator.inputs[1])
            else:
                self._operators.append(self._state_tensors(operator, own))
        states, constants = self._states()
        for number, data in constants.items():
            self._tensors[number] = replace(self._tensors[number], data=data)
        return replace(
            graph,
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            outputs=tuple(self._final(number) for number in graph.outputs),
            states=states,
        )

    def _states(self) -> tuple[tuple[StateTensor, ...], dict[int, npt.NDArray[np.uint8]]]:
        states, constants = [], {}
        for (_, name), variable in self._variables.items():
            if variable.first < 0:
                continue  # Nothing reads it.
            initial = self._initial(variable, name)
            if variable.now in (-1, variable.first):
                constants[variable.first] = initial
                continue
            before, after = (self._tensors[number] for number in (variable.first, variable.now))
            if (before.shape, before.dtype) != (after.shape, after.dtype):
                raise CompileError(
                    f"{self._origin}: the variable {name!r} is {before.dtype} of shape {before.shape} where it is "
                    f"read, but {after.dtype} of shape {after.shape} where it is assigned"
                )
            states.append(StateTensor(name, variable.first, variable.now, initial.tobytes()))
        return tuple(states), constants

    def _initial(self, variable: _Variable, name: str) -> npt.NDArray[np.uint8]:
        tensor = self._tensors[variable.first]
        if tensor.dtype not in ELEMENT_TYPES:
            raise CompileError(f"{self._origin}: the variable {name!r} has elements of type {tensor.dtype}")
        size = tensor.size * item_bytes(tensor.dtype)
        if not 0 <= size <= MAX_TENSOR_BYTES:
            raise CompileError(f"{self._origin}: the variable {name!r} has {size} bytes: shape {tensor.shape}")
        if variable.initial is None:
            # Initial value of the kernels: bytes that represent zero.
            zero = tensor.quantisation.zero_points[0] if tensor.dtype == "int8" and tensor.quantisation else 0
            return np.full(size, int(zero) & 0xFF, np.uint8)
        if variable.initial.size != size:
            raise CompileError(
                f"{self._origin}: the variable {name!r} begins with {variable.initial.size} bytes, but has {size}"
            )
        return variable.initial

    def _handle(self, operator: TfliteOperator, tensors: Sequence[TfliteTensor]) -> dict[int, _Name]:
        options = operator.options
        name = (options.text(0), options.text(1)) if options else ("", "")
        for number in operator.outputs if tensors is self._tensors else ():
            # Nothing reads it any more, and libraries lack its element type.
            self._tensors[number] = replace(tensors[number], dtype="int32")
        return dict.fromkeys(operator.outputs, name)

    def _variable(self, operator: TfliteOperator, handles: Mapping[int, _Name]) -> _Variable:
        if not operator.inputs or operator.inputs[0] not in handles:
            raise CompileError(f"{self._origin}: {operator.name}: no VAR_HANDLE of its graph names its variable")
        if operator.name == "ASSIGN_VARIABLE" and (len(operator.inputs) != 2 or operator.inputs[1] < 0):
            raise CompileError(f"{self._origin}: {operator.name}: has nothing to assign")
        return self._variables.setdefault(handles[operator.inputs[0]], _Variable())

    def _read(self, operator: TfliteOperator) -> None:
        variable = self._variable(operator, self._handles)
        (number,) = operator.outputs[:1] or (-1,)
        if number < 0:
            raise CompileError(f"{self._origin}: READ_VARIABLE has no output")
        if variable.now < 0 and variable.first < 0:
            variable.first = number
        self._instead[number] = variable.first if variable.now < 0 else variable.now

    def _begin(self, operator: TfliteOperator) -> None:
        number = operator.options.integer(0, "<i") if operator.options else 0
        if not 0 < number < len(self._graphs):
            raise CompileError(f"{self._origin}: CALL_ONCE calls graph {number} of {len(self._graphs)}")
        graph = self._graphs[number]
        handles: dict[int, _Name] = {}
        for item in graph.operators:
            if item.name == "VAR_HANDLE":
                handles |= self._handle(item, graph.tensors)
                continue
            data = graph.tensors[item.inputs[1]].data if item.name == "ASSIGN_VARIABLE" and item.inputs[1:] else None
            if data is None:
                raise CompileError(
                    f"{self._origin}: CALL_ONCE: its graph has {item.name}, where only constants may be assigned"
                )
            variable = self._variable(item, handles)
            if variable.first >= 0 or variable.now >= 0:
                raise CompileError(f"{self._origin}: CALL_ONCE: initialises a variable that was used before")
            variable.initial = data

    def _state_tensors(self, operator: TfliteOperator, own: Mapping[int, _Name]) -> TfliteOperator:
        inputs = tuple(self._final(number) for number in operator.inputs)
        outputs = list(operator.outputs)
        places = [place for place in _OPERATORS.get(operator.name, ()) if place < len(operator.inputs)]
        for place in places:
            number = operator.inputs[place]
            if number not in own:
                continue  # The operator's kernel requests it.
            variable = self._variables.setdefault(own[number], _Variable(first=number))
            self._tensors[number] = replace(self._tensors[number], variable=False)
            variable.now = len(self._tensors)
            self._tensors.append(replace(self._tensors[number], name=f"{self._tensors[number].name} next"))
            self._instead[number] = variable.now
            outputs.append(variable.now)
        if operator.name in _MEMORIES and inputs and min(inputs) >= 0 and outputs:
            memory = self._memory(operator, self._tensors[inputs[0]], self._tensors[outputs[0]])
            variable = _Variable(len(self._tensors), len(self._tensors) + 1)
            self._variables["", memory.name] = variable
            self._tensors[outputs[0]] = replace(self._tensors[outputs[0]], variable=False)
            self._tensors += [memory, replace(memory, name=f"{memory.name} next")]
            inputs, outputs = (*inputs, variable.first), [*outputs, variable.now]
        return replace(operator, inputs=inputs, outputs=tuple(outputs))

    def _memory(self, operator: TfliteOperator, data: TfliteTensor, result: TfliteTensor) -> TfliteTensor:
        length = data.shape[-1] if data.shape else 1
        rows, count = data.size // max(length, 1), data.size
        if operator.name == "CIRCULAR_BUFFER":
            count = result.size
        elif operator.name == "SignalDelay":
            count = max(rows * operator.setting("delay_length"), 1)
        elif operator.name == "SignalFramer":
            step = max(operator.setting("frame_step"), 1)
            count = -(-operator.setting("frame_size") // step) * step * rows + 1
        elif operator.name == "SignalOverlapAdd":
            count = data.size // max(data.shape[-2] if len(data.shape) > 1 else 1, 1)
        elif operator.name == "SignalStacker":
            sides = (operator.setting(f"stacker_{side}_context") for side in ("left", "right"))
            count = length * (sum(sides) + 1) + 1
        name = f"{result.name} state {len(self._variables)}"
        quantised = result.quantisation if operator.name == "CIRCULAR_BUFFER" else None
        return replace(data, name=name, shape=(count,), signature=(count,), quantisation=quantised, variable=False)

    def _final(self, number: int) -> int:
        return self._instead.get(number, number)


CONTROL = ("IF", "WHILE")
"""Operators that call graphs by number: then and else, or condition and body."""

_IDENTITY = "RESHAPE"


def graphs_of(operator: TfliteOperator) -> tuple[int, int]:
    options = operator.options
    return (options.integer(0, "<i"), options.integer(1, "<i")) if options else (0, 0)


def called_graphs(graphs: Sequence[TfliteGraph], origin: str) -> tuple[int, ...]:
    """Return the numbers of the graphs called by the first one, directly or not, in order."""
    called: set[int] = set()

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
                if item not in called:
                    called.add(item)
                    follow(item, (*path, item))

    follow(0, (0,))
    return tuple(sorted(called))


def with_constant_conditions(graphs: Sequence[TfliteGraph], origin: str) -> list[TfliteGraph]:
    """Replace each ``IF`` with a constant condition by the operators of its branch."""
    results = list(graphs)
    # Callees first: a caller copies a graph in its final form.
    for number in _inner_first(graphs, called_graphs(graphs, origin)):
        while (place := _constant_if(results[number])) is not None:
            results[number] = _inline(results[number], place, results, origin)
    return [replace(_computing(graph) if number else graph, number=number) for number, graph in enumerate(results)]


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
            operator, inputs=tuple(map(outside, operator.inputs)), outputs=tuple(outside(at) for at in operator.outputs)
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
    tensors = [replace(graph.tensors[number], data=None) for number in graph.outputs]
    operators = tuple(
        TfliteOperator(_IDENTITY, (number,), (first + place,), 0, None) for place, number in enumerate(graph.outputs)
    )
    return replace(
        graph,
        tensors=(*graph.tensors, *tensors),
        operators=operators,
        outputs=tuple(range(first, first + len(tensors))),
    )


def check_call(graph: TfliteGraph, operator: TfliteOperator, graphs: Sequence[TfliteGraph], origin: str) -> None:
    """Check the operands and results of a call against the graphs' inputs and outputs."""
    first, second = (graphs[number] for number in graphs_of(operator))
    inputs = operator.inputs if operator.name == "WHILE" else operator.inputs[1:]
    where = f"{origin}: {operator.name}"
    if operator.name == "IF":
        _check_condition(graph, operator.inputs[:1], where)
        calls = [(item, operator.outputs) for item in (first, second)]
    else:
        _check_condition(first, first.outputs, where)
        calls = [(replace(first, outputs=()), ()), (second, operator.outputs)]
        _check_alike([(graph, inputs), (graph, operator.outputs)], where)
    for branch, results in calls:
        _check_alike([(graph, inputs), (branch, branch.inputs)], where)
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
