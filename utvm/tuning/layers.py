# SPDX-License-Identifier: Apache-2.0
"""The layers of a model that can be computed in several ways, each taken out of it to be measured by itself."""

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
from utvm.compiler.schedule.tuned import layer_of, replayed
from utvm.compiler.tvm_types import element_type


@dataclass(frozen=True)
class ModelLayer:
    """A layer, as often as the model has it.

    Attributes:
        name: its key in logs.
        makes: what it is in the model: the tensors that it makes.
        times: how often the model has it.
        graph: the layer alone, as it is computed without tuning; its constants are those of the model.
        kernels: by its name, the same by each other kernel of ours that holds for it.
        kernel: the name of the one that computes it without tuning; empty where none of ours does.
        target: what it is computed for.
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
        """The TIRx function that computes it without tuning."""
        return self.graph.functions[_ONLY]

    def library(self, symbol: str, kind: str, choice: str) -> Library:
        """Compile one candidate for it.

        Args:
            symbol: begins its global symbols.
            kind, choice: as in :class:`utvm.tuning.log.LogEntry`.
        """
        graph = self.kernels[choice] if kind == "kernel" else self.graph
        if kind == "trace":
            graph = replace(graph, functions={_ONLY: replayed(self.function, choice)})
        return library_of(symbol, graph, self.target)

    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Return random inputs: floats around 0, any small integers, 0 or 1 of others, which may be indices."""
        generator = np.random.default_rng(seed)
        return [_random(generator, tensor.dtype, tensor.shape) for tensor in self.graph.inputs]


_ONLY = "layer"
_ANY_OF = frozenset({"int8", "uint8", "int16", "uint16"})


def layers_of(model: Model, target: Target) -> list[ModelLayer]:
    """Find the layers of a model that can be computed in more than one way.

    Args:
        target: for which; what it says of tuning is left out.
    """
    target = replace(target, tuned=())
    graph = graph_of(model, target)
    others = _by_other_kernels(model, graph, target)
    found: dict[str, ModelLayer] = {}
    for number, step in _computed(graph):
        function = graph.functions[step.function]
        name = layer_of(function)
        if name in found:
            found[name] = replace(found[name], times=found[name].times + 1)
            continue
        attributes = function.attrs or {}
        kernel = str(attributes[KERNEL]) if KERNEL in attributes else ""
        kernels = {
            other: _alone(each, each.steps[number])
            for other, each in others.items()
            if other != kernel and _kernel_of(each, number) == other
        }
        if name and (kernels or LAYER not in attributes):
            makes = ", ".join(_name(graph, place) for place in step.writes)
            found[name] = ModelLayer(name, makes, 1, _alone(graph, step), kernels, kernel, target)
    return list(found.values())


def _by_other_kernels(model: Model, graph: Graph, target: Target) -> dict[str, Graph]:
    """Return the graph as it is when each kernel, by its name, computes all that it holds for."""
    functions = [graph.functions[step.function] for _, step in _computed(graph)]
    layers = {str(each.attrs[LAYER]) for each in functions if each.attrs and LAYER in each.attrs}
    names = [each.name for each in KERNELS if each.extensions <= frozenset(target.extensions)] if layers else []
    return {
        name: graph_of(model, replace(target, tuned=tuple((layer, name) for layer in layers))) for name in names
    }


def _computed(graph: Graph) -> Iterator[tuple[int, Step]]:
    return ((number, step) for number, step in enumerate(graph.steps) if step.function in graph.functions)


def _kernel_of(graph: Graph, number: int) -> str:
    attributes = graph.functions[graph.steps[number].function].attrs or {}
    return str(attributes[KERNEL]) if KERNEL in attributes else ""


def _alone(graph: Graph, step: Step) -> Graph:
    """Return one step as a graph: what it reads are inputs, but for constants, and what it writes are outputs."""
    function = graph.functions[step.function]
    tensors = [
        Tensor(f"t{number}", tuple(int(extent) for extent in each.ty.shape), element_type(each))
        for number, each in enumerate(function.params)
    ]
    given, made = tensors[: len(step.reads)], tensors[len(step.reads) :]
    inputs: list[Tensor] = []
    constants: list[npt.NDArray[Any]] = []
    reads: list[Location] = []
    for place, tensor in zip(step.reads, given, strict=True):
        if place.kind == "constant":
            reads.append(Location("constant", len(constants)))
            constants.append(graph.constants[place.number])
        else:
            reads.append(Location("input", len(inputs)))
            inputs.append(tensor)
    writes = tuple(Location("output", number) for number in range(len(made)))
    steps = (Step(_ONLY, tuple(reads), writes),)
    return Graph(tuple(inputs), (), tuple(constants), steps, tuple(made), {_ONLY: function})


def _name(graph: Graph, place: Location) -> str:
    tensors = {"buffer": graph.buffers, "output": graph.outputs}.get(place.kind, graph.states)
    return tensors[place.number].name


def _random(generator: np.random.Generator, dtype: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    if dtype in _ANY_OF:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return generator.integers(0, 2, shape).astype(dtype)
