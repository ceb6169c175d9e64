# SPDX-License-Identifier: Apache-2.0
"""The whole way from a model to a library, without the cache."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from utvm.compiler.accelerator import Assistant
from utvm.compiler.c.control import CalledGraph, print_control
from utvm.compiler.c.description import Argument
from utvm.compiler.c.emit import Kind, emit
from utvm.compiler.c.printer import ALIGNMENT, print_function
from utvm.compiler.c_files import CFiles
from utvm.compiler.frontend import import_model
from utvm.compiler.frontend.imported import Imported
from utvm.compiler.frontend.weights import least_bytes
from utvm.compiler.integer import Integerized, integerize
from utvm.compiler.integer.kernel import KERNEL, OPERATOR
from utvm.compiler.library import Library, Scaling, Tensor, item_bytes
from utvm.compiler.memory.graph import extract
from utvm.compiler.memory.overlap import overlaps_of, with_overlaps
from utvm.compiler.memory.plan import plan_memory
from utvm.compiler.memory.regions import Memory
from utvm.compiler.memory.steps import Graph, Location
from utvm.compiler.model import Model
from utvm.compiler.names import Scope
from utvm.compiler.notes import note
from utvm.compiler.schedule.legalize import legalize
from utvm.compiler.schedule.lower import lower
from utvm.compiler.storage import Storage
from utvm.compiler.target import ANY, Target
from utvm.compiler.tvm_errors import tvm_errors
from utvm.compiler.tvm_types import element_type
from utvm.errors import CompileError, UtvmError

_LOG = logging.getLogger("utvm.compiler")


def build_library(
    model: Model,
    name: str,
    target: Target = ANY,
    memory: Memory | None = None,
    executor: str = "aot",
    storage: Storage | None = None,
    assistant: Assistant | None = None,
) -> Library:
    """Compile a model.

    Args:
        name: C identifier that begins every global symbol of the library.
        target: what kernels are chosen for; by default, any CPU.
        memory: regions and pins; by default one region, as large as it must be.
        executor: ``aot`` for a function that calls one operator after the other, ``graph`` for a description of
            the graph and an executor that reads it.
        storage: where the weights are to be stored; by default, anywhere.
        assistant: an accelerator that takes a part of the model.

    Raises:
        CompileError: the model cannot be compiled.
        DoesNotFitError: the memory or the storage is too small.
    """
    built = _built(import_model(model), model.origin, name, target, memory, executor, storage, assistant)
    return replace(built.library, model=model.digest)


def _built(
    imported: Imported,
    origin: str,
    name: str,
    target: Target,
    memory: Memory | None = None,
    executor: str = "aot",
    storage: Storage | None = None,
    assistant: Assistant | None = None,
    stepped: bool = True,
) -> CalledGraph:
    """Compile a module, and what its operators run."""
    with tvm_errors(origin, "compile the model"):
        if storage:
            storage.check(least_bytes(imported.module, storage.size_bytes))
        integerized = integerize(imported.module, target, assistant)
        graph = _extracted(integerized, imported)
        if storage:
            storage.check(sum(constant.nbytes for constant in graph.constants))
        lowered = {function: with_overlaps(body) for function, body in _lowered(graph.functions).items()}
        overlaps = {function: overlaps_of(body) for function, body in lowered.items()}
        kinds = {function: _kind(function, body) for function, body in graph.functions.items()}
        scope = Scope([f"{name}_run", f"{name}_reset"])
        operators = {
            function: print_function(scope.claim(f"{name}_{function}", name), body)
            for function, body in lowered.items()
        }
    arguments = _arguments(graph, lowered)
    parts: list[Library] = []
    for function in dict.fromkeys(step.function for step in graph.steps if step.function in imported.control):
        control, symbol = imported.control[function], scope.claim(f"{name}_{function}", name)
        first, second = (
            _built(each, origin, f"{symbol}_{word}", target, stepped=False)
            for word, each in zip(("first", "second"), control.graphs, strict=True)
        )
        operators[function], arguments[function] = print_control(symbol, control.kind, (first, second))
        kinds[function] = Kind(control.kind, 0)
        parts += [first.library, second.library]
    workspaces = {function: operator.workspace_bytes for function, operator in operators.items()}
    assisted = any(each.include for each in operators.values())
    # An accelerator reaches memory by whole words of its bus.
    plan = plan_memory(graph, workspaces, overlaps, memory, ALIGNMENT if assisted else 1)
    note("memory", f"no plan needs less than {plan.lower_bound_bytes:,} bytes of work")
    library = replace(
        emit(name, graph, plan, operators, kinds, arguments, executor, stepped),
        leftovers=integerized.leftovers,
        target=target,
        accelerator=assistant.identity if assistant and assisted else "",
        decisions=integerized.decisions,
    )
    return CalledGraph(_with_parts(library, parts), any(each.checked for each in operators.values()))


def _with_parts(library: Library, parts: Sequence[Library]) -> Library:
    """Return a library with what its operators run."""
    files = [each.sources for each in (library, *parts)]
    own, *others = [each for each in files if isinstance(each, CFiles)]
    return replace(
        library,
        sources=own.joined(others),
        weights_bytes=library.weights_bytes + sum(part.weights_bytes for part in parts),
        leftovers=(*library.leftovers, *(each for part in parts for each in part.leftovers)),
    )


def _note(graph: Graph, integerized: Integerized) -> None:
    """Say what computes each layer, and why; what is in float; and what an accelerator is given."""
    for step in graph.steps:
        if step.function in graph.functions:
            body = graph.functions[step.function]
            attributes = dict(body.attrs.items()) if body.attrs else {}
            in_integers = "integers, as TensorFlow Lite's kernel" if OPERATOR in attributes else "TVM's loops"
            made = ", ".join(_called(graph, place) for place in step.writes)
            why = attributes.get(KERNEL, in_integers)
            note("kernel", f"{made}: {_kind(step.function, body).name}, {why}")
    for each in integerized.leftovers:
        note("in float", f"{each.operator} ({each.tensor}): {each.reason}")
    for decision in integerized.decisions:
        note("where", f"{decision.tensor}: {decision.where}: {decision.reason}")


def _called(graph: Graph, place: Location) -> str:
    tensors = {"buffer": graph.buffers, "output": graph.outputs}.get(place.kind, graph.states)
    return tensors[place.number].name


def _extracted(integerized: Integerized, imported: Imported) -> Graph:
    names = (imported.input_names, imported.output_names, imported.kept_names)
    graph = extract(legalize(integerized.module), *names, imported.control)
    _note(graph, integerized)
    return _scaled(graph, imported)


def _lowered(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Lower TIRx functions; name those of which TVM makes no loops."""
    try:
        return lower(functions)
    except UtvmError:
        raise
    except Exception as error:  # TVM raises nearly every built-in kind, and its own
        refused = [name for name, function in functions.items() if not _can_be_lowered(name, function)]
        if not refused:
            raise
        _LOG.debug("no C can be made of %s: %r", refused, error)
        raise CompileError(
            f"no C can be made of {', '.join(refused)}: it is used in a way that is not supported",
            "replace it in the model, or give it another shape or element type",
        ) from error


def _can_be_lowered(name: str, function: Any) -> bool:
    try:
        lower({name: function})
    except Exception:
        return False
    return True


def _scaled(graph: Graph, imported: Imported) -> Graph:
    """Return the graph with what its integers stand for, where that is known, and what the first run finds."""

    def scaled(tensors: tuple[Tensor, ...], scalings: tuple[Scaling | None, ...]) -> tuple[Tensor, ...]:
        if not scalings:
            return tensors
        return tuple(replace(tensor, scaling=each) for tensor, each in zip(tensors, scalings, strict=True))

    return replace(
        graph,
        inputs=scaled(graph.inputs, imported.input_scalings),
        outputs=scaled(graph.outputs, imported.output_scalings),
        initial=tuple(each.initial for each in imported.kept),
    )


def _kind(function: str, body: Any) -> Kind:
    """Return what a TIRx function computes, as its maker says, or as it is called."""
    attributes = dict(body.attrs.items()) if body.attrs else {}
    return Kind(
        str(attributes.get(OPERATOR, function)),
        int(attributes.get("utvm.macs", 0)),
        str(attributes.get(KERNEL, "")),
    )


def _arguments(graph: Graph, functions: Mapping[str, Any]) -> dict[str, list[Argument]]:
    """Return for each function what it reads and writes."""
    written = {step.function: len(step.writes) for step in graph.steps if step.function}
    arguments = {}
    for function, body in functions.items():
        parameters = list(body.params)
        arguments[function] = [
            Argument(
                math.prod(int(extent) for extent in parameter.ty.shape) * item_bytes(element_type(parameter)),
                item_bytes(element_type(parameter)),
                number >= len(parameters) - written[function],
            )
            for number, parameter in enumerate(parameters)
        ]
    return arguments
