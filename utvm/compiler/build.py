# SPDX-License-Identifier: Apache-2.0
"""Compile a model to a library, without the cache."""

import itertools
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from utvm.compiler import accelerator, c_files, notes, quantised, refusal, tvm_types
from utvm.compiler.c.emit import Argument, CalledGraph, Kind, choose_in_ram, emit, print_control
from utvm.compiler.c.printer import ALIGNMENT, CFunction, print_function
from utvm.compiler.frontend import import_model, least_bytes
from utvm.compiler.frontend.imported import Imported
from utvm.compiler.kernels.functions import KERNEL, OPERATOR, THRIFTY
from utvm.compiler.library import Library, Model, Scaling, Tensor, item_bytes
from utvm.compiler.memory.graph import Graph, Location, extract, overlaps_of, with_overlaps
from utvm.compiler.memory.plan import Plan, Saving, peak, plan_memory, save
from utvm.compiler.memory.regions import Memory
from utvm.compiler.memory.rows import by_rows, with_input_rows
from utvm.compiler.names import Scope
from utvm.compiler.schedule.legalize import legalize
from utvm.compiler.schedule.lower import MACS, lower, macs_of, with_tuned_loops
from utvm.compiler.target import ANY, Storage, Target
from utvm.errors import CompileError, UtvmError

_LOG = logging.getLogger("utvm.compiler")

_LEAST_BY_ROWS = 4096  # Bytes; models that need less are computed layer by layer.
_MOST_HANDED = 17 / 16  # Of the least memory, if the application hands over rows: kernels need not save the rest.
_MOST_BY_ROWS = 7 / 8  # Share of the memory that computing by rows may need.


@dataclass(frozen=True)
class _Request:
    """Options of a graph, as in ``compile_model``; ``stepped`` unless an operator of another graph runs it."""

    origin: str
    name: str
    target: Target
    memory: Memory | None = None
    executor: str = "aot"
    assistant: accelerator.Assistant | None = None
    stepped: bool = True


def build_library(
    model: Model,
    name: str,
    target: Target = ANY,
    memory: Memory | None = None,
    executor: str = "aot",
    storage: Storage | None = None,
    assistant: accelerator.Assistant | None = None,
) -> Library:
    """Compile a model; arguments as :func:`utvm.compiler.compile.compile_model`."""
    request = _Request(model.origin, name, target, memory, executor, assistant)
    return replace(_build(import_model(model, target), request, storage).library, model=model.digest)


def _build(imported: Imported, request: _Request, storage: Storage | None = None) -> CalledGraph:
    with refusal.tvm_errors(request.origin, "compile the model"):
        if storage:
            storage.check(least_bytes(imported.module, storage.size_bytes, imported.layers))
        target, layers = request.target, imported.layers
        integerized = quantised.integerize(imported.module, target, request.assistant, layers)
        graph = _extract_graph(integerized, imported, target)
        if storage:
            storage.check(sum(constant.nbytes for constant in graph.constants))
    return _emit_graph(graph, integerized, imported, request)


def graph_of(model: Model, target: Target) -> Graph:
    """Return the graph of a model for a target; used by tuning."""
    imported = import_model(model, target)
    with refusal.tvm_errors(model.origin, "compile the model"):
        return _extract_graph(quantised.integerize(imported.module, target, layers=imported.layers), imported, target)


def library_of(name: str, graph: Graph, target: Target) -> Library:
    """Compile a graph of :func:`graph_of`, or a part of one, without operators that run other graphs."""
    unchanged = Imported(None, (), ())
    return _emit_graph(graph, quantised.Integerized(None, ()), unchanged, _Request(name, name, target)).library


def _emit_graph(graph: Graph, integerized: quantised.Integerized, imported: Imported, request: _Request) -> CalledGraph:
    name, assistant = request.name, request.assistant
    with refusal.tvm_errors(request.origin, "compile the model"):
        lowered, enough = _lower_forms(graph.functions, request.target), 0
        handed = request.target.input_rows and request.stepped
        if handed and (request.executor != "aot" or assistant):
            raise CompileError(
                "only generated calls, without an accelerator, take the input by rows",
                "leave out --set input-rows, or set executor=aot and accelerator=off",
            )
        graph = with_input_rows(graph) if handed else graph
        if handed or (request.executor == "aot" and request.target.goal != "speed" and not request.target.tuned):
            graph, lowered, enough = _with_rows(graph, lowered, request.target)
        kinds = {function: _kind(function, body, lowered[0][function]) for function, body in graph.functions.items()}
        _note(graph, kinds, integerized)
        scope = Scope([f"{name}_run", f"{name}_reset"])
        symbols = {function: scope.claim(f"{name}_{function}", name) for function in lowered[0]}
        printed = [_print(form, symbols, graph) for form in lowered]
        operators = dict(printed[0])
    arguments = _arguments(graph, lowered[0])
    parts: list[Library] = []
    for function in dict.fromkeys(step.function for step in graph.steps if step.function in imported.control):
        control, symbol = imported.control[function], scope.claim(f"{name}_{function}", name)
        first, second = (
            _build(graph, _Request(request.origin, f"{symbol}_{word}", request.target, stepped=False))
            for word, graph in zip(("first", "second"), control.graphs, strict=True)
        )
        operators[function], arguments[function] = print_control(symbol, control.kind, (first, second))
        kinds[function] = Kind(control.kind, 0)
        parts += [first.library, second.library]
    assisted = any(operator.include for operator in operators.values())
    # An accelerator accesses memory in whole bus words.

    def plan_with(saving: Saving) -> Plan:
        variants = operators | {item: printed[form][item] for item, form in saving.items()}
        bodies = {item: lowered[saving.get(item, 0)][item] for item in lowered[0]}
        return plan_memory(
            graph,
            {function: operator.workspace_bytes for function, operator in variants.items()},
            {function: overlaps_of(body) for function, body in bodies.items()},
            request.memory,
            ALIGNMENT if assisted else 1,
        )

    enough = sys.maxsize if request.target.goal == "speed" and not handed else enough
    plan, saving = save(graph, {item: sum(item in form for form in lowered) for item in lowered[0]}, plan_with, enough)
    operators |= {item: printed[form][item] for item, form in saving.items()}
    room = request.target.weights_room(sum(plan.region_bytes.values())) if request.stepped else 0
    in_ram = choose_in_ram(graph, kinds, arguments, room)
    notes.note("memory", f"no plan needs less than {plan.lower_bound_bytes:,} bytes of work")
    library = replace(
        emit(name, graph, plan, operators, kinds, arguments, request.executor, request.stepped, in_ram),
        leftovers=integerized.leftovers,
        removals=integerized.removals,
        target=replace(request.target, weights_in_ram=sum(graph.constants[item].nbytes for item in in_ram), ram_room=0),
        accelerator=assistant.identity if assistant and assisted else "",
        decisions=integerized.decisions,
    )
    return CalledGraph(_with_parts(library, parts), any(operator.checked for operator in operators.values()))


def _with_parts(library: Library, parts: Sequence[Library]) -> Library:
    files = [item.sources for item in (library, *parts)]
    own, *others = [file for file in files if isinstance(file, c_files.CFiles)]
    return replace(
        library,
        sources=own.join(others),
        weights_bytes=library.weights_bytes + sum(part.weights_bytes for part in parts),
        leftovers=(*library.leftovers, *(leftover for part in parts for leftover in part.leftovers)),
        removals=(*library.removals, *(removal for part in parts for removal in part.removals)),
    )


def _print(form: Mapping[str, Any], symbols: Mapping[str, str], graph: Graph) -> dict[str, CFunction]:
    printed = {}
    for function, body in form.items():
        try:
            printed[function] = print_function(symbols[function], body)
        except CompileError as error:
            steps = [step for step in graph.calls if step.function == function]
            tensors = [_tensor_name(graph, place) for step in steps for place in step.writes]
            raise CompileError(
                f"the operator of {', '.join(tensors) or function}: {error.message}", error.hint
            ) from error
    return printed


def _note(graph: Graph, kinds: Mapping[str, Kind], integerized: quantised.Integerized) -> None:
    # A layer that is computed by rows has many calls.
    for step in {(call.function, replace(call.writes[0], offset=0)): call for call in graph.calls}.values():
        if step.function in graph.functions:
            kind, attributes = kinds[step.function], graph.functions[step.function].attrs or {}
            in_integers = "integers, as TensorFlow Lite's kernel" if OPERATOR in attributes else "TVM's loops"
            tensors = ", ".join(_tensor_name(graph, place) for place in step.writes)
            notes.note("kernel", f"{tensors}: {kind.name}, {kind.kernel or in_integers}")
    for leftover in integerized.leftovers:
        notes.note("in float", f"{leftover.operator} ({leftover.tensor}): {leftover.reason}")
    for removal in integerized.removals:
        notes.note("removed", str(removal))
    for decision in integerized.decisions:
        notes.note("where", f"{decision.tensor}: {decision.where}: {decision.reason}")


def _tensor_name(graph: Graph, place: Location) -> str:
    tensors = {"buffer": graph.buffers, "output": graph.outputs}.get(place.kind, graph.states)
    return tensors[place.number].name


def _extract_graph(integerized: quantised.Integerized, imported: Imported, target: Target) -> Graph:
    names = (imported.input_names, imported.output_names, imported.state_names)
    graph = extract(legalize(integerized.module), *names, imported.control, integerized.layers)
    graph = replace(graph, functions=with_tuned_loops(graph.functions, target))
    return _with_scalings(graph, imported)


def _lower_functions(functions: Mapping[str, Any], target: Target) -> dict[str, Any]:
    try:
        return lower(functions, target)
    except UtvmError:
        raise
    except Exception as error:  # TVM raises nearly every built-in kind, and its own
        refused = []
        for name, function in functions.items():
            try:
                lower({name: function}, target)
            except Exception:
                refused.append(name)
        if not refused:
            raise
        _LOG.debug("%s cannot be compiled to C: %r", refused, error)
        raise CompileError(
            f"{', '.join(refused)} cannot be compiled to C: it is used in a way that is not supported",
            "replace it in the model, or give it another shape or element type",
        ) from error


def _with_rows(graph: Graph, forms: list[dict[str, Any]], target: Target) -> tuple[Graph, list[dict[str, Any]], int]:
    """Compute chains of layers by rows if this saves much; return graph, functions, and the bytes that are enough."""
    plain, handed = _least(forms), graph.has_input_rows
    least, _ = peak(graph, *plain)
    fewer = by_rows(graph, target, lambda item: peak(item, *plain)) if handed or least >= _LEAST_BY_ROWS else None
    if fewer is None:
        return graph, forms, 0
    added = _lower_forms({name: body for name, body in fewer.functions.items() if name not in forms[0]}, target)
    pairs = itertools.zip_longest(forms, added, fillvalue=dict[str, Any]())
    both = [{name: body for name, body in (known | more).items() if name in fewer.functions} for known, more in pairs]
    enough, needed = int(_MOST_BY_ROWS * least), peak(fewer, *_least(both))[0]
    if needed > enough and not handed:
        return graph, forms, 0
    count = sum(len(step.writes) for step in fewer.steps if step.parts)
    notes.note("memory", f"{count} layers are computed by rows")
    if handed:
        enough = int(_MOST_HANDED * needed)
    return fewer, both, {"ram": 1, "speed": 1 << 30}.get(target.goal, enough)


def _least(forms: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], dict[str, tuple[int | None, ...]]]:
    """Return workspaces and overlaps of functions in their forms that need least memory."""
    bodies = {name: body for form in forms for name, body in form.items()}
    workspaces = {name: print_function(name, body).workspace_bytes for name, body in bodies.items()}
    return workspaces, {name: overlaps_of(body) for name, body in bodies.items()}


def _lower_forms(functions: Mapping[str, Any], target: Target) -> list[dict[str, Any]]:
    forms: list[dict[str, Any]] = []
    while functions or not forms:
        forms.append({name: with_overlaps(body) for name, body in _lower_functions(functions, target).items()})
        attributes = {name: body.attrs or {} for name, body in functions.items()}
        functions = {name: known[THRIFTY] for name, known in attributes.items() if THRIFTY in known}
    return forms


def _with_scalings(graph: Graph, imported: Imported) -> Graph:
    def add_scalings(tensors: tuple[Tensor, ...], scalings: tuple[Scaling | None, ...]) -> tuple[Tensor, ...]:
        if not scalings:
            return tensors
        return tuple(replace(tensor, scaling=scaling) for tensor, scaling in zip(tensors, scalings, strict=True))

    return replace(
        graph,
        inputs=add_scalings(graph.inputs, imported.input_scalings),
        outputs=add_scalings(graph.outputs, imported.output_scalings),
        initial=tuple(item.initial for item in imported.states),
    )


def _kind(function: str, body: Any, lowered: Any) -> Kind:
    attributes = dict(body.attrs.items()) if body.attrs else {}
    return Kind(
        str(attributes.get(OPERATOR, function)),
        int(attributes[MACS]) if MACS in attributes else macs_of(body),
        str((lowered.attrs or {}).get(KERNEL, "")),
    )


def _arguments(graph: Graph, functions: Mapping[str, Any]) -> dict[str, list[Argument]]:
    output_counts = {step.function: len(step.writes) for step in graph.calls if step.function}
    arguments = {}
    for function, body in functions.items():
        parameters = list(body.params)
        arguments[function] = [
            Argument(
                math.prod(int(extent) for extent in parameter.ty.shape) * item_bytes(tvm_types.element_type(parameter)),
                item_bytes(tvm_types.element_type(parameter)),
                number >= len(parameters) - output_counts[function],
            )
            for number, parameter in enumerate(parameters)
        ]
    return arguments
