# SPDX-License-Identifier: Apache-2.0
"""The state of a TensorFlow Lite model between runs, as tensors that a run reads and tensors that it writes.

Variables (``VAR_HANDLE`` and its kind) and the states of recurrent operators disappear from the graph: what
follows reads a tensor that the run finds, and the value of another tensor is kept when the run has ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from utvm.compiler.library import ELEMENT_TYPES, MAX_TENSOR_BYTES, item_bytes
from utvm.compiler.read.tflite_records import KeptTensor, TfliteGraph, TfliteOperator, TfliteTensor
from utvm.errors import CompileError

_OPERATORS = {"UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19), "SVDF": (4,)}
"""Operators with states, and which of their operands these are: each is written, too."""

_VARIABLES = ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")

_Name = tuple[str, str]
"""A variable's container and its name there."""


def with_states(graphs: Sequence[TfliteGraph], origin: str) -> TfliteGraph:
    """A file's first graph without what keeps something between runs."""
    graph = graphs[0]
    stateful = any(operator.name in (*_OPERATORS, *_VARIABLES) for operator in graph.operators)
    if not stateful or not all(map(_is_whole, graphs)):
        return graph
    return _Reader(graphs, origin).read()


def graphs_that_begin(graphs: Sequence[TfliteGraph]) -> set[int]:
    """The numbers of the graphs that begin variables."""
    return {_initialised_by(operator) for operator in graphs[0].operators if operator.name == "CALL_ONCE"}


def _initialised_by(operator: TfliteOperator) -> int:
    return operator.options.integer(0, "<i") if operator.options else 0


def _is_whole(graph: TfliteGraph) -> bool:
    count = len(graph.tensors)
    return all(
        all(-1 <= number < count for number in operator.inputs)
        and all(0 <= number < count for number in operator.outputs)
        for operator in graph.operators
    )


@dataclass
class _Variable:
    """A variable while the graph is read.

    Attributes:
        found: the tensor in which a run finds it; -1 as long as nobody has read it.
        now: the tensor that has its value where the reader is; -1 as long as that is what is found.
        initial: None where nothing is said, which means zero.
    """

    found: int = -1
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
                self._operators.append(self._kept_tensors(operator, own))
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

    def _states(self) -> tuple[tuple[KeptTensor, ...], dict[int, npt.NDArray[np.uint8]]]:
        states, constants = [], {}
        for (_, name), variable in self._variables.items():
            if variable.found < 0:
                continue  # Nobody sees it.
            initial = self._initial(variable, name)
            if variable.now in (-1, variable.found):
                constants[variable.found] = initial
                continue
            found, kept = (self._tensors[number] for number in (variable.found, variable.now))
            if (found.shape, found.dtype) != (kept.shape, kept.dtype):
                raise CompileError(
                    f"{self._origin}: the variable {name!r} is {found.dtype} of shape {found.shape} where it is "
                    f"read, but {kept.dtype} of shape {kept.shape} where it is assigned"
                )
            states.append(KeptTensor(name, variable.found, variable.now, initial.tobytes()))
        return tuple(states), constants

    def _initial(self, variable: _Variable, name: str) -> npt.NDArray[np.uint8]:
        tensor = self._tensors[variable.found]
        if tensor.dtype not in ELEMENT_TYPES:
            raise CompileError(f"{self._origin}: the variable {name!r} has elements of type {tensor.dtype}")
        size = tensor.size * item_bytes(tensor.dtype)
        if not 0 <= size <= MAX_TENSOR_BYTES:
            raise CompileError(f"{self._origin}: the variable {name!r} has {size} bytes: shape {tensor.shape}")
        if variable.initial is None:
            # As the kernels begin: bytes that stand for zero.
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
            # Nothing reads it any more; its element type is none that a library has.
            self._tensors[number] = replace(tensors[number], dtype="int32")
        return dict.fromkeys(operator.outputs, name)

    def _variable(self, operator: TfliteOperator, handles: Mapping[int, _Name]) -> _Variable:
        if not operator.inputs or operator.inputs[0] not in handles:
            raise CompileError(f"{self._origin}: {operator.name}: no VAR_HANDLE of its graph says which variable")
        if operator.name == "ASSIGN_VARIABLE" and (len(operator.inputs) != 2 or operator.inputs[1] < 0):
            raise CompileError(f"{self._origin}: {operator.name}: has nothing to assign")
        return self._variables.setdefault(handles[operator.inputs[0]], _Variable())

    def _read(self, operator: TfliteOperator) -> None:
        variable = self._variable(operator, self._handles)
        (number,) = operator.outputs[:1] or (-1,)
        if number < 0:
            raise CompileError(f"{self._origin}: READ_VARIABLE has no output")
        if variable.now < 0 and variable.found < 0:
            variable.found = number
        self._instead[number] = variable.found if variable.now < 0 else variable.now

    def _begin(self, operator: TfliteOperator) -> None:
        graph = self._graphs[_initialised_by(operator)]
        handles: dict[int, _Name] = {}
        for item in graph.operators:
            if item.name == "VAR_HANDLE":
                handles |= self._handle(item, graph.tensors)
                continue
            data = (
                graph.tensors[item.inputs[1]].data if item.name == "ASSIGN_VARIABLE" and item.inputs[1:] else None
            )
            if data is None:
                raise CompileError(
                    f"{self._origin}: CALL_ONCE: its graph has {item.name}, where only constants may be assigned"
                )
            variable = self._variable(item, handles)
            if variable.found >= 0 or variable.now >= 0:
                raise CompileError(f"{self._origin}: CALL_ONCE: begins a variable that has been used before")
            variable.initial = data

    def _kept_tensors(self, operator: TfliteOperator, own: Mapping[int, _Name]) -> TfliteOperator:
        inputs = tuple(self._final(number) for number in operator.inputs)
        made = list(operator.outputs)
        places = [place for place in _OPERATORS.get(operator.name, ()) if place < len(operator.inputs)]
        for place in places:
            number = operator.inputs[place]
            if number not in own:
                continue  # The operator's kernel asks for it.
            variable = self._variables.setdefault(own[number], _Variable(found=number))
            self._tensors[number] = replace(self._tensors[number], variable=False)
            variable.now = len(self._tensors)
            self._tensors.append(replace(self._tensors[number], name=f"{self._tensors[number].name} next"))
            self._instead[number] = variable.now
            made.append(variable.now)
        return replace(operator, inputs=inputs, outputs=tuple(made))

    def _final(self, number: int) -> int:
        return self._instead.get(number, number)
