# SPDX-License-Identifier: Apache-2.0
"""Convolutions computed by rows: between them, only the rows that are still needed are in memory.

A chain of layers is divided into strips of output rows. Before a strip, the strips that it reads are computed. A
window holds the rows of a tensor that later strips read; when it is full, these move to its beginning.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm_ffi

from utvm.compiler.kernels import cores, makers
from utvm.compiler.kernels.functions import KERNEL, LAYER, OVERLAP, THRIFTY
from utvm.compiler.kernels.records import Convolution, InputRows, Operator, Unary
from utvm.compiler.library import image_shape, item_bytes
from utvm.compiler.memory.graph import Graph, Location, Step
from utvm.compiler.target import Target
from utvm.errors import CompileError

BY_ROWS = "rows"  # Function name of a step of layers that are computed by rows.

_MOST_LAYERS = 8  # Of a chain.
_MOST_CHAINS = 4
_ROWS = (8, 4, 2, 1)  # Rows of a strip of a chain's last layer.
_MOST_STRIPS = 32  # Of that layer; more would cost more calls than they save memory.
_LEAST_WIDTH = 4  # Pixels; kernels compute as many together.
_WORD = 4  # Bytes; rows begin at whole words, as tensors do.
_NONE = 1 << 30  # A row or byte behind all others.

Peak = Callable[[Graph], tuple[int, int]]  # The least bytes that a graph needs, and the step that needs them.


@dataclass(frozen=True)
class _Strip:
    """Output rows of a layer; operands and result as tensors and bytes."""

    layer: int
    first: int
    rows: int
    reads: Sequence[tuple[Location, int]]
    write: tuple[Location, int]


@dataclass
class _Window:
    """The rows of a tensor that are in memory."""

    row_bytes: int
    capacity: int = _NONE
    most: int = 0
    begin: int = 0
    end: int = 0


class Chain:
    """Consecutive steps of convolutions: windows of the tensors between them, strips, and moves in windows."""

    def __init__(self, steps: Sequence[Step], rows: int) -> None:
        self.steps = steps
        self.layers = _layers(steps)
        height = self.layers[-1].output_shape[0]
        self._rows = [max(1, round(rows * layer.output_shape[0] / height)) for layer in self.layers]
        ahead = [isinstance(layer, Convolution) for layer in self.layers].index(True)
        self._rows[:ahead] = [1] * ahead
        self._makers = {step.writes[0]: number for number, step in enumerate(steps[:-1])}
        self._sources = [
            step.reads[: 1 + (layer.residual is not None)] for step, layer in zip(steps, self.layers, strict=True)
        ]
        self.windows = {place: _Window(self.row_bytes(number)) for place, number in self._makers.items()}
        self._run()
        for window in self.windows.values():
            window.capacity, window.begin, window.end = window.most, 0, 0
        self.parts = self._run()
        self.strips = [part for part in self.parts if isinstance(part, _Strip)]

    def overlap(self, source: Location) -> int:
        """Return how many bytes the result must begin before an operand: what a strip overwrites is read by then."""
        result = self.steps[-1].writes[0]
        distance, lowest = 0, _NONE
        for strip in reversed(self.strips):
            lowest = min([lowest, *(offset for place, offset in strip.reads if place == source)])
            if strip.write[0] == result:
                distance = max(distance, strip.write[1] + strip.rows * self.row_bytes(strip.layer) - lowest)
        return distance

    def row_bytes(self, number: int) -> int:
        """Return the bytes of a row of a layer's result."""
        return math.prod(self.layers[number].output_shape[1:])

    def _run(self) -> list[_Strip | Step]:
        self._done = [0] * len(self.layers)
        parts: list[_Strip | Step] = []
        self._compute(len(self.layers) - 1, self.layers[-1].output_shape[0], parts)
        return parts

    def _compute(self, number: int, until: int, parts: list[_Strip | Step]) -> None:
        layer, sources = self.layers[number], self._sources[number]
        while self._done[number] < until:
            first = self._done[number]
            rows = min(self._rows[number], layer.output_shape[0] - first)
            low, high = layer.input_rows(first, rows)
            for place, end in zip(sources, (high, first + rows), strict=False):
                if place in self._makers:
                    self._compute(self._makers[place], end, parts)
            sizes = (math.prod(layer.input_shape[1:]), self.row_bytes(number))
            reads = tuple(
                (place, (begin - self._begin(place)) * size)
                for place, begin, size in zip(sources, (low, first), sizes, strict=False)
            )
            place = self.steps[number].writes[0]
            if place in self.windows:
                self._make_room(place, rows, parts)
            write = place, (first - self._begin(place)) * self.row_bytes(number)
            parts.append(_Strip(number, first, rows, reads, write))
            self._done[number] = first + rows

    def _begin(self, place: Location) -> int:
        return self.windows[place].begin if place in self.windows else 0

    def _make_room(self, place: Location, rows: int, parts: list[_Strip | Step]) -> None:
        window = self.windows[place]
        low = min(self._lowest_rows(place), default=_NONE)
        begin = min(low, window.end)
        left = window.end - begin
        window.end += rows
        window.most = max(window.most, left + rows)
        if window.end - window.begin > window.capacity:
            if left:
                source = replace(place, offset=(begin - window.begin) * window.row_bytes)
                parts.append(Step("", (source,), (place,), left * window.row_bytes))
            window.begin = begin

    def _lowest_rows(self, place: Location) -> Iterator[int]:
        """Yield the first row of a tensor that each of its readers still needs."""
        for layer, sources, first in zip(self.layers, self._sources, self._done, strict=True):
            if first < layer.output_shape[0] and place in sources:
                rows = (layer.input_rows(first, 1)[0], first)
                yield min(row for row, source in zip(rows, sources, strict=False) if source == place)


def with_input_rows(graph: Graph) -> Graph:
    """Return the graph with a first step that reads the input, an image, by rows; to be computed :func:`by_rows`.

    Raises:
        CompileError: the model has several inputs, or its input is no image.
    """
    image, *others = graph.inputs
    height, width, channels = image_shape(image.shape)
    if others or height == 1:
        inputs = ", ".join(f"{tensor.name}: {tensor.dtype}{list(tensor.shape)}" for tensor in graph.inputs)
        raise CompileError(
            f"the input cannot be handed over by rows: the model has not one image, but {inputs}",
            "leave out --set input-rows",
        )
    place = Location("buffer", len(graph.buffers))
    layer = InputRows((height, width, channels * item_bytes(image.dtype)))
    first = Step("", (Location("rows", 0),), (place,), image.size_bytes, layer)
    steps = [
        replace(step, reads=tuple(replace(place, offset=at.offset) if at.kind == "input" else at for at in step.reads))
        for step in graph.steps
    ]
    return replace(graph, steps=(first, *steps), buffers=(*graph.buffers, image))


def by_rows(graph: Graph, target: Target, peak: Peak) -> Graph | None:
    """Return the graph with chains of layers computed by rows, while this lowers the peak; None if it never does.

    Raises:
        CompileError: the application hands over rows, and the first layers cannot be computed by rows.
    """
    maker = _Maker(graph, target)
    results = _results(graph, peak, maker)
    if not results:
        maker.as_fast = False
        results = _results(graph, peak, maker)
    if not results:
        raise CompileError(
            f"the rows of input {graph.inputs[0].name} cannot be handed over: {_obstacle(graph)}",
            "leave out --set input-rows, or let an int8 convolution read the image, NHWC, behind QUANTIZE at most",
        )
    _, chains = min(results, key=lambda result: result[0])
    for first, chain in chains:
        calls = [part if isinstance(part, Step) else maker.call(chain, part) for part in chain.parts]
        graph = _replace(graph, first, chain, calls)
    return maker.finish(graph) if chains else None


_Chains = tuple[int, list[tuple[int, "Chain"]]]  # The peak, and chains with the numbers of their first steps.


def _results(graph: Graph, peak: Peak, maker: "_Maker") -> list[_Chains]:
    results = [_chains(graph, peak, maker, input_first=first) for first in {graph.has_input_rows, maker.for_speed}]
    return [item for item in results if not graph.has_input_rows or any(first == 0 for first, _ in item[1])]


def _chains(graph: Graph, peak: Peak, maker: "_Maker", *, input_first: bool) -> _Chains:
    chains: list[tuple[int, Chain]] = []
    rows_left, limits = graph.has_input_rows, (_NONE, 0) if input_first else peak(graph)
    most = 1 if maker.for_speed else _MOST_CHAINS
    while len(chains) < most and (found := _best_chain(graph, *limits, peak, maker)):
        chains.append(found)
        graph = _replace(graph, *found, found[1].steps)
        limits, rows_left = peak(graph), rows_left and found[0] > 0
    if rows_left and (found := _best_chain(graph, _NONE, 0, peak, maker)):
        chains.append(found)
        graph = _replace(graph, *found, found[1].steps)
    return peak(graph)[0], chains


def _best_chain(graph: Graph, least: int, worst: int, peak: Peak, maker: "_Maker") -> tuple[int, Chain] | None:
    found: list[tuple[tuple[int, ...], int, Chain]] = []
    for first in range(max(0, worst - _MOST_LAYERS + 1), worst + 1):
        for end in range(max(first + 2, worst + 1), min(first + _MOST_LAYERS, len(graph.steps)) + 1):
            steps = graph.steps[first:end]
            if not _may_be_divided(graph, first, steps):
                continue
            height = _layers(steps)[-1].output_shape[0]
            for rows in (rows for rows in _ROWS if 2 <= -(-height // rows) <= _MOST_STRIPS):
                chain = Chain(steps, rows)
                size, _ = peak(_replace(graph, first, chain, steps))
                if size < least and maker.can_compute(chain):
                    cost = (len(steps), -rows, size) if maker.for_speed else (size, len(steps), -rows)
                    found.append((cost, first, chain))
    return min(found, key=lambda item: item[0])[1:] if found else None


def _obstacle(graph: Graph) -> str:
    """Say why the rows of the input cannot be handed over."""
    _, width, channels = image_shape(graph.inputs[0].shape)
    if width * channels % _WORD:
        return f"{width * channels} numbers are no multiple of {_WORD}"
    first = next((step for step in graph.steps if not isinstance(step.layer, Unary)), graph.steps[-1])
    if isinstance(first.layer, Convolution):
        return "several layers read the image, or this core has no kernel that computes the first ones by rows"
    return f"{first.function or 'a copy'} reads the whole image"


def _layers(steps: Sequence[Step]) -> list[Convolution | Unary]:
    return [step.layer for step in steps if isinstance(step.layer, Convolution | Unary)]


def _may_be_divided(graph: Graph, first: int, steps: Sequence[Step]) -> bool:
    if not all(map(_is_layer, steps)) or not isinstance(steps[-1].layer, Convolution):
        return False
    inner = {step.writes[0] for step in steps[:-1]}
    numbers = {place.number for place in inner}
    others = (*graph.steps[:first], *graph.steps[first + len(steps) :])
    here, elsewhere = (
        {place for step in group for place in (*step.reads, *step.writes) if place.number in numbers}
        for group in (steps, others)
    )
    # A tensor that is read in another shape has other rows.
    layers = _layers(steps)
    shapes = {step.writes[0]: layer.output_shape for step, layer in zip(steps, layers, strict=True)}
    operands = ((layer.input_shape, layer.output_shape) for layer in layers)
    reads = (pair for step, both in zip(steps, operands, strict=True) for pair in zip(step.reads, both, strict=False))
    if any(shapes.get(place, shape) != shape for place, shape in reads):
        return False
    # Whole buffers, which no other step reads or writes.
    whole = inner == {at for at in here if at.kind == "buffer"} == {replace(at, offset=0) for at in inner}
    return whole and all(place.kind != "buffer" for place in elsewhere)


def _is_layer(step: Step) -> bool:
    if not isinstance(step.layer, Convolution | Unary) or step.parts or len(step.writes) != 1:
        return False
    (rows, *line), (height, width, channels) = step.layer.input_shape, step.layer.output_shape
    if any(size % _WORD for size in (math.prod(line), width * channels)) or min(rows, height) == 1:
        return False
    seen = [step.layer.input_rows(row, 1) for row in (0, height - 1)]
    return width >= _LEAST_WIDTH and all(low < high for low, high in seen)


def _replace(graph: Graph, first: int, chain: Chain, parts: Sequence[Step]) -> Graph:
    buffers = list(graph.buffers)
    for place, window in chain.windows.items():
        tensor = buffers[place.number]
        elements = window.capacity * window.row_bytes // item_bytes(tensor.dtype)
        buffers[place.number] = replace(tensor, shape=(elements,))
    places = dict.fromkeys(place for step in chain.steps for place in step.reads)
    reads = tuple(place for place in places if place not in chain.windows and place.kind != "constant")
    writes = (chain.steps[-1].writes[0], *chain.windows)
    step = Step(BY_ROWS, reads, writes, parts=tuple(parts), overlap=tuple(map(chain.overlap, reads)))
    steps = (*graph.steps[:first], step, *graph.steps[first + len(chain.steps) :])
    return replace(graph, steps=steps, buffers=tuple(buffers))


class _Maker:
    def __init__(self, graph: Graph, target: Target) -> None:
        self.as_fast, self.for_speed = True, target.goal == "speed"
        self._target = target
        self._makers = makers()
        self._functions: dict[str, Any] = dict(graph.functions)
        self._constants = list(graph.constants)
        self._operators: dict[tuple[object, ...], Operator | None] = {}

    def can_compute(self, chain: Chain) -> bool:
        """Whether kernels compute the strips; if ``as_fast``, those of whole images, with the same constants."""
        strips = [strip for strip in chain.strips if isinstance(chain.layers[strip.layer], Convolution)]
        suits = self._keeps_kernel if self.as_fast else self._operator
        return all(suits(chain, strip) for strip in strips)

    def _keeps_kernel(self, chain: Chain, strip: _Strip) -> bool:
        operator, step = self._operator(chain, strip), chain.steps[strip.layer]
        whole = self._functions[step.function]
        if operator is None or KERNEL not in whole.attrs or _kernel(operator.function) != _kernel(whole):
            return False
        sizes = [self._constants[place.number].nbytes for place in step.reads if place.kind == "constant"]
        return sizes == [array.nbytes for array in operator.constants]

    def call(self, chain: Chain, strip: _Strip) -> Step:
        moved = [replace(place, offset=place.offset + offset) for place, offset in (*strip.reads, strip.write)]
        operator = self._operator(chain, strip)
        if operator is None:
            return Step("", (moved[0],), (moved[1],), strip.rows * chain.row_bytes(strip.layer))
        constants = [self._constant(array) for array in operator.constants]
        function = self._name(chain.steps[strip.layer].function, operator.function)
        return Step(function, (*moved[:-1], *constants), (moved[-1],))

    def _operator(self, chain: Chain, strip: _Strip) -> Operator | None:
        layer = chain.layers[strip.layer]
        if isinstance(layer, InputRows):
            return None
        part = layer.strip(strip.first, strip.rows)
        key = (id(layer), part.input_shape, part.padding)
        if key not in self._operators:
            make: Any = self._makers[type(part)] if isinstance(part, Unary) else cores.choose
            operator = make(part, self._target)
            self._operators[key] = operator and replace(operator, function=_without_place(operator.function))
        return self._operators[key]

    def _name(self, layer: str, function: Any) -> str:
        names = (f"{layer}_{BY_ROWS}_{number}" for number in range(len(self._functions) + 1))
        known = ((name, self._functions.setdefault(name, function)) for name in names)
        return next(name for name, other in known if tvm_ffi.structural_equal(other, function, map_free_vars=True))

    def _constant(self, array: Any) -> Location:
        for number, known in enumerate(self._constants):
            if known.dtype == array.dtype and np.array_equal(known, array):
                return Location("constant", number)
        self._constants.append(array)
        return Location("constant", len(self._constants) - 1)

    def finish(self, graph: Graph) -> Graph:
        """Return the graph with the functions and constants that it uses."""
        used: dict[int, int] = {}

        def number(place: Location) -> Location:
            constant = place.kind == "constant"
            return replace(place, number=used.setdefault(place.number, len(used))) if constant else place

        def renumber(step: Step) -> Step:
            return replace(step, reads=tuple(map(number, step.reads)), parts=tuple(map(renumber, step.parts)))

        steps = tuple(map(renumber, graph.steps))
        names = dict.fromkeys(call.function for step in steps for call in step.calls)
        return replace(
            graph,
            steps=steps,
            constants=tuple(self._constants[old] for old in used),
            functions={name: self._functions[name] for name in names if name in self._functions},
        )


def _kernel(function: Any) -> str:
    return str(function.attrs[KERNEL]).removesuffix(cores.HELD)


def _without_place(function: Any) -> Any:
    """Return a strip's function without what differs between strips of a layer; its operands stay apart."""
    attributes: Mapping[str, Any] = function.attrs
    function = function.with_attr({OVERLAP: [-1] * len(attributes[OVERLAP]), "tirx.noalias": True})
    for name in ("global_symbol", LAYER):
        function = function.without_attr(name)
    return function.with_attr(THRIFTY, _without_place(attributes[THRIFTY])) if THRIFTY in attributes else function
