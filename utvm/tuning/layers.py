# SPDX-License-Identifier: Apache-2.0
"""Layers of a model with several implementations, each extracted so that it can be measured alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler import Library, Model, Target, Tensor
from utvm.compiler.build import graph_of, library_of
from utvm.compiler.kernels.cores import KERNELS
from utvm.compiler.kernels.functions import KERNEL, LAYER
from utvm.compiler.memory.graph import Graph, Location, Step
from utvm.compiler.schedule.loops import layer_of, replay
from utvm.compiler.tvm_types import element_type

_ONLY = "layer"
_FULL_RANGE = frozenset({"int8", "uint8", "int16", "uint16"})


@dataclass(frozen=True)
class ModelLayer:
    """A layer of a model.

    Attributes:
        name: its key in logs.
        makes: names of its output tensors in the model.
        times: number of its occurrences in the model.
        graph: the layer alone, untuned, with the constants of the model.
        kernels: the same graph for each other kernel that supports the layer.
        kernel: name of the kernel used without tuning; empty if the layer has none.
    """

    name: str
    makes: str
    times: int
    graph: Graph
    kernels: Mapping[str, Graph]
    kernel: str
    target: Target

    @property
    def function(self) -> Any:
        """The untuned TIRx function."""
        return self.graph.functions[_ONLY]

    def library(self, symbol: str, kind: str, choice: str) -> Library:
        """Compile a candidate, given as in :class:`utvm.tuning.log.LogEntry`; ``symbol`` prefixes its symbols."""
        graph = self.kernels[choice] if kind == "kernel" else self.graph
        if kind == "trace":
            graph = replace(graph, functions={_ONLY: replay(self.function, choice)})
        return library_of(symbol, graph, self.target)

    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Random inputs: normal floats, full-range small integers; other integers, maybe indices, are 0 or 1."""
        generator = np.random.default_rng(seed)
        return [_random(generator, tensor.dtype, tensor.shape) for tensor in self.graph.inputs]


def layers_of(model: Model, target: Target) -> list[ModelLayer]:
    """Find the layers of a model with several implementations; tuning choices of the target are ignored."""
    target = replace(target, tuned=())
    graph = graph_of(model, target)
    variants = _kernel_variants(model, graph, target)
    layers: dict[str, ModelLayer] = {}
    for number, step in _function_steps(graph):
        function = graph.functions[step.function]
        name = layer_of(function)
        if name in layers:
            layers[name] = replace(layers[name], times=layers[name].times + 1)
            continue
        kernel = _kernel_of(graph, number)
        kernels = {
            other: _extract(variant, variant.steps[number])
            for other, variant in variants.items()
            if other not in (kernel, "") and _kernel_of(variant, number) == other
        }
        if name and (kernels or LAYER not in (function.attrs or {})):
            makes = ", ".join(_tensor_name(graph, location) for location in step.writes)
            layers[name] = ModelLayer(name, makes, 1, _extract(graph, step), kernels, kernel, target)
    return list(layers.values())


def _kernel_variants(model: Model, graph: Graph, target: Target) -> dict[str, Graph]:
    """The graph with each kernel of the target used wherever it is supported, by name of the kernel."""
    functions = [graph.functions[step.function] for _, step in _function_steps(graph)]
    layers = {str(function.attrs[LAYER]) for function in functions if function.attrs and LAYER in function.attrs}
    names = [kernel.name for kernel in KERNELS if kernel.extensions <= frozenset(target.extensions)]
    return {
        name: graph_of(model, replace(target, tuned=tuple((layer, name) for layer in layers)))
        for name in (names if layers else ())
    }


def _function_steps(graph: Graph) -> Iterator[tuple[int, Step]]:
    return ((number, step) for number, step in enumerate(graph.steps) if step.function in graph.functions)


def _kernel_of(graph: Graph, number: int) -> str:
    attributes = graph.functions[graph.steps[number].function].attrs or {}
    return str(attributes[KERNEL]) if KERNEL in attributes else ""


def _extract(graph: Graph, step: Step) -> Graph:
    """A step as a graph: its variable operands become inputs, its results outputs."""
    function = graph.functions[step.function]
    tensors = [
        Tensor(f"t{number}", tuple(int(extent) for extent in parameter.ty.shape), element_type(parameter))
        for number, parameter in enumerate(function.params)
    ]
    inputs: list[Tensor] = []
    constants: list[npt.NDArray[Any]] = []
    reads: list[Location] = []
    for location, tensor in zip(step.reads, tensors, strict=False):
        if location.kind == "constant":
            reads.append(Location("constant", len(constants)))
            constants.append(graph.constants[location.number])
        else:
            reads.append(Location("input", len(inputs)))
            inputs.append(tensor)
    outputs = tuple(tensors[len(step.reads) :])
    writes = tuple(Location("output", number) for number in range(len(outputs)))
    steps = (Step(_ONLY, tuple(reads), writes),)
    return Graph(tuple(inputs), (), tuple(constants), steps, outputs, {_ONLY: function})


def _tensor_name(graph: Graph, location: Location) -> str:
    tensors = {"buffer": graph.buffers, "output": graph.outputs}.get(location.kind, graph.states)
    return tensors[location.number].name


def _random(generator: np.random.Generator, dtype: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    if dtype in _FULL_RANGE:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return generator.integers(0, 2, shape).astype(dtype)
