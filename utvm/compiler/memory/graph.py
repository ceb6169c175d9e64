# SPDX-License-Identifier: Apache-2.0
"""The graph of a model, from a Relax module: operators in order, and their buffers, which may share memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx

from utvm.compiler.kernels.functions import OPERATOR, OVERLAP
from utvm.compiler.kernels.records import Computation
from utvm.compiler.library import Tensor, item_bytes
from utvm.compiler.schedule.legalize import CONCATENATION
from utvm.compiler.tvm_types import element_type, operator_name, tensor_of
from utvm.errors import CompileError


def with_overlaps(function: Any) -> Any:
    """Add the overlap attribute, if missing, to a lowered function of one output.

    A distance of 0 requires one loop nest and assignment, each element written once from equal-sized elements.
    """
    if function.attrs and OVERLAP in function.attrs:
        return function
    return function.with_attr(OVERLAP, _in_place(function))


def overlaps_of(function: Any) -> tuple[int | None, ...]:
    distances = [int(distance) for distance in function.attrs[OVERLAP]]
    return tuple(None if distance < 0 else distance for distance in distances)


def _in_place(function: Any) -> list[int]:
    *inputs, output = function.params
    nowhere = [-1] * len(inputs)
    if function.attrs and OPERATOR in function.attrs:
        return nowhere  # Its C helpers read through pointers.
    loops, store = _single_store(function.body)
    if store is None or not store.buffer.same_as(output) or not _visits_once(store.indices[0], loops):
        return nowhere
    key = hash(output)
    distances = []
    loads: list[Any] = []
    tvm_ffi.structural_walk(function.body, (ir.TensorLoad, loads.append), order="pre")
    if any(hash(load.source) == key for load in loads):
        return nowhere
    for parameter in inputs:
        indices = [load.indices[0] for load in loads if hash(load.source) == hash(parameter)]
        same = all(tvm_ffi.structural_equal(index, store.indices[0], map_free_vars=False) for index in indices)
        alike = item_bytes(element_type(parameter)) == item_bytes(element_type(output))
        distances.append(0 if indices and same and alike else -1)
    return distances


def _single_store(body: Any) -> tuple[list[Any], Any]:
    loops = []
    while True:
        kind = type(body).__name__
        if kind == "For":
            loops.append(body)
            body = body.body
        elif kind == "AttrStmt":
            body = body.body
        elif kind == "SeqStmt" and all(type(item).__name__ == "Bind" for item in list(body.seq)[:-1]):
            body = list(body.seq)[-1]
        else:
            return loops, body if kind == "BufferStore" else None


def _visits_once(index: Any, loops: list[Any]) -> bool:
    variables = [loop.loop_var for loop in loops]
    factors = _linear(index, variables)
    if factors is None:
        return False
    reach = 0
    for factor, loop in sorted(zip(factors, loops, strict=True), key=lambda item: item[0]):
        if not isinstance(loop.extent, tirx.IntImm) or not isinstance(loop.min, tirx.IntImm):
            return False
        if int(loop.extent) == 1:
            continue
        if factor <= reach:
            return False
        reach += factor * (int(loop.extent) - 1)
    return True


def _linear(index: Any, variables: list[Any]) -> list[int] | None:
    terms = list(sym.detect_linear_equation(index, variables))
    if not terms or not all(isinstance(term, tirx.IntImm) for term in terms):
        return None
    return [int(term) for term in terms[:-1]]


@dataclass(frozen=True)
class Location:
    """Position of a tensor's elements; ``offset`` is in bytes, ``step`` the bytes to it in a loop's next turn.

    ``rows`` are those of an input that the application hands over.
    """

    kind: Literal["input", "rows", "constant", "buffer", "output", "state", "workspace"]
    number: int
    offset: int = 0
    step: int = 0


@dataclass(frozen=True)
class Step:
    """A call of an operator, or a copy; ``function`` is the TIRx function's name, empty for a copy.

    Layers that are computed by rows are one step, whose ``parts`` are called; ``overlap`` is as a function's.
    """

    function: str
    reads: tuple[Location, ...]
    writes: tuple[Location, ...]
    copied_bytes: int = 0
    layer: Computation | None = field(default=None, compare=False)
    parts: tuple["Step", ...] = ()
    overlap: tuple[int | None, ...] = ()

    @property
    def calls(self) -> tuple["Step", ...]:
        return self.parts or (self,)


@dataclass(frozen=True)
class Graph:
    """A model, ready for planning; ``buffers`` in the order of writing, ``functions`` not lowered."""

    inputs: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    constants: tuple[npt.NDArray[Any], ...]
    steps: tuple[Step, ...]
    outputs: tuple[Tensor, ...]
    functions: Mapping[str, Any]
    states: tuple[Tensor, ...] = ()
    initial: tuple[bytes, ...] = ()

    @property
    def calls(self) -> list[Step]:
        """The steps, with their parts in their place."""
        return [call for step in self.steps for call in step.calls]

    @property
    def has_input_rows(self) -> bool:
        """Whether the application hands over the only input by rows, so that it is no block of memory."""
        return any(place.kind == "rows" for step in self.steps for place in step.reads)


def settle(
    steps: Sequence[Step],
    buffers: Sequence[Tensor],
    results: Sequence[Location],
    outputs: Sequence[Tensor],
    joined: Mapping[int, Location],
    states: Sequence[Tensor] = (),
) -> tuple[tuple[Step, ...], tuple[Tensor, ...]]:
    """Write results in place where possible; return the steps, with copies at the end, and remaining buffers."""
    results = [_root(place, joined) for place in results]
    results, state_results = results[: len(outputs)], results[len(outputs) :]
    direct: dict[int, int] = {}
    for number, (place, output) in enumerate(zip(results, outputs, strict=True)):
        if place.kind == "buffer" and output.size_bytes == buffers[place.number].size_bytes:
            direct.setdefault(place.number, number)
    separate = [number for number in range(len(buffers)) if number not in joined and number not in direct]
    numbers = {old: new for new, old in enumerate(separate)}

    def final(place: Location) -> Location:
        place = _root(place, joined)
        if place.kind != "buffer":
            return place
        if place.number in direct:
            return Location("output", direct[place.number], place.offset)
        return replace(place, number=numbers[place.number])

    settled = [
        replace(step, reads=tuple(map(final, step.reads)), writes=tuple(map(final, step.writes))) for step in steps
    ]
    for number, (place, output) in enumerate(zip(results, outputs, strict=True)):
        if place.kind != "buffer" or direct.get(place.number) != number:
            settled.append(Step("", (final(place),), (Location("output", number),), output.size_bytes))
    left = [buffers[number] for number in separate]
    copies = []
    for number, (place, state) in enumerate(zip(state_results, states, strict=True)):
        source = final(place)
        if source.kind == "state":
            left.append(state)
            aside = Location("buffer", len(left) - 1)
            settled.append(Step("", (source,), (aside,), state.size_bytes))
            source = aside
        copies.append(Step("", (source,), (Location("state", number),), state.size_bytes))
    return (*settled, *copies), tuple(left)


def _root(place: Location, joined: Mapping[int, Location]) -> Location:
    while place.kind == "buffer" and place.number in joined:
        whole = joined[place.number]
        place = replace(whole, offset=whole.offset + place.offset)
    return place


def extract(
    module: Any,
    input_names: tuple[str, ...],
    output_names: tuple[str, ...],
    state_names: tuple[str, ...] = (),
    control: Collection[str] = (),
    layers: Mapping[str, Computation] = MappingProxyType({}),
) -> Graph:
    """Read a legalised module; ``layers``: computations of variables, by their names."""
    return _Reader(module, control, layers).read(input_names, output_names, state_names)


class _Reader:
    def __init__(self, module: Any, control: Collection[str], layers: Mapping[str, Computation]) -> None:
        self._module = module
        self._control = control
        self._layers = layers
        self._functions = {variable.name_hint: function for variable, function in module.functions.items()}
        self._values: dict[int, Any] = {}
        self._constants: list[npt.NDArray[Any]] = []
        self._buffers: list[Tensor] = []
        self._steps: list[Step] = []
        self._joined: dict[int, Location] = {}
        self._unsupported: dict[str, str] = {}

    def read(self, input_names: tuple[str, ...], output_names: tuple[str, ...], state_names: tuple[str, ...]) -> Graph:
        main = self._module["main"]
        arguments = []
        for number, (variable, name) in enumerate(zip(main.params, (*input_names, *state_names), strict=True)):
            arguments.append(tensor_of(variable.ty, name))
            own = number - len(input_names)
            self._values[hash(variable)] = Location("input", number) if own < 0 else Location("state", own)
        for block in main.body.blocks:
            for binding in block.bindings:
                self._values[hash(binding.var)] = self._bind(binding)
        if self._unsupported:
            listed = ", ".join(f"{name} (at {place})" for name, place in self._unsupported.items())
            raise CompileError(
                f"operators without an implementation in C: {listed}",
                "replace them in the model by supported operators",
            )
        result = main.body.body
        results = self._flat(self._value(result))
        types = list(result.ty.fields) if isinstance(result.ty, relax.TupleType) else [result.ty]
        outputs = [tensor_of(kind, name) for kind, name in zip(types, (*output_names, *state_names), strict=True)][
            : len(output_names)
        ]
        state_arguments = arguments[len(input_names) :]
        steps, buffers = settle(self._steps, self._buffers, results, outputs, self._joined, state_arguments)
        return Graph(
            tuple(arguments[: len(input_names)]),
            buffers,
            tuple(self._constants),
            steps,
            tuple(outputs),
            # In the order of the first call: TVM's own order varies between runs.
            {step.function: self._functions[step.function] for step in steps if step.function in self._functions},
            tuple(state_arguments),
        )

    def _bind(self, binding: Any) -> Any:
        value = binding.value
        name = str(binding.var.name)
        operator = operator_name(value)
        if operator == "relax.call_tir":
            return self._call(value, name)
        if operator == "relax.reshape":
            return self._value(value.args[0])
        symbol = str(value.args[0].global_symbol) if operator == "relax.call_dps_packed" else ""
        if symbol == CONCATENATION:
            return self._concatenate(value, name)
        if symbol in self._control:
            return self._step(symbol, self._reads(value), value.ty_args[0], name)
        if operator:
            # Continue with a placeholder, so that all unsupported operators are reported.
            self._unsupported.setdefault(operator.removeprefix("relax."), name)
            kind, nowhere = binding.var.ty, Location("buffer", -1)
            return [nowhere] * len(kind.fields) if isinstance(kind, relax.TupleType) else nowhere
        return self._value(value)

    def _call(self, value: Any, name: str) -> Any:
        reads = self._reads(value)
        (kind,) = value.ty_args
        function = str(value.args[0].name_hint)
        alike = len(reads) == 1 and not isinstance(kind, relax.TupleType)
        if alike and relax.analysis.has_reshape_pattern(self._functions[function]):
            return reads[0]
        return self._step(function, reads, kind, name)

    def _reads(self, value: Any) -> tuple[Location, ...]:
        return tuple(place for field in value.args[1].fields for place in self._flat(self._value(field)))

    def _step(self, function: str, reads: tuple[Location, ...], kind: Any, name: str) -> Any:
        kinds = list(kind.fields) if isinstance(kind, relax.TupleType) else [kind]
        writes = tuple(self._buffer(tensor_of(kind, name)) for kind in kinds)
        self._steps.append(Step(function, reads, writes, layer=self._layers.get(name)))
        return list(writes) if isinstance(kind, relax.TupleType) else writes[0]

    def _concatenate(self, value: Any, name: str) -> Location:
        (kind,) = value.ty_args
        whole = self._buffer(tensor_of(kind, name))
        begin = 0
        for member in value.args[1].fields:
            piece, size = self._value(member), tensor_of(member.ty, name).size_bytes
            slot = Location("buffer", whole.number, begin)
            if piece.kind == "buffer" and piece.number not in self._joined:
                self._joined[piece.number] = slot
            else:
                self._steps.append(Step("", (piece,), (slot,), size))
            begin += size
        return whole

    def _buffer(self, tensor: Tensor) -> Location:
        self._buffers.append(tensor)
        return Location("buffer", len(self._buffers) - 1)

    def _value(self, node: Any) -> Any:
        if isinstance(node, tvm.ir.GenericConst):
            return self._constant(node)
        if hash(node) in self._values:
            return self._values[hash(node)]
        if isinstance(node, tvm.ir.Tuple):
            return [self._value(field) for field in node.fields]
        if isinstance(node, tvm.ir.TupleGetItem):
            return self._value(node.tuple_value)[int(node.index)]
        raise CompileError(
            f"the model computes something that is not a tensor: {str(node)[:120]}",
            "only static tensor computations run on a board",
        )

    def _constant(self, node: Any) -> Location:
        tensor = tensor_of(node.ty, "a constant")
        array = np.ascontiguousarray(node.value.numpy()).reshape(tensor.shape)
        for number, known in enumerate(self._constants):
            if known.dtype == array.dtype and known.shape == array.shape and known.tobytes() == array.tobytes():
                return Location("constant", number)
        self._constants.append(array)
        return Location("constant", len(self._constants) - 1)

    def _flat(self, value: Any) -> list[Location]:
        if isinstance(value, list):
            return [place for item in value for place in self._flat(item)]
        return [value]
