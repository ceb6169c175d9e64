# SPDX-License-Identifier: Apache-2.0
"""Emit a library's C files, and graph descriptions (``utvm/runtime/portable/graph_executor.h``)."""

import functools
import json
import math
import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt

from utvm import errors, runtime
from utvm.base import fields_of
from utvm.base.text import templates
from utvm.compiler.c.calls import Calls, constant_name
from utvm.compiler.c.helpers import helper_definitions, is_helper
from utvm.compiler.c.printer import ALIGNMENT, CFunction
from utvm.compiler.c_files import C_TYPES, CFiles, is_large, literal, stand_in
from utvm.compiler.c_files import rows as rows_of
from utvm.compiler.library import INDEX_OUT_OF_RANGE, Arena, Call, EntryPoint, Library, Placement, Tensor, item_bytes
from utvm.compiler.memory.graph import Graph, Location, Step
from utvm.compiler.memory.plan import WORKSPACE_ALIGNMENT, Plan

_KINDS = {"input": 0, "output": 1, "constant": 2, "region": 3}
_COPY = 0xFFFF
_MOST = 0xFFFE  # Largest 16-bit number, the copy count excluded.


@dataclass(frozen=True)
class Argument:
    """One argument of an operator."""

    bytes: int
    alignment: int
    written: bool


@dataclass(frozen=True)
class _TensorPlace:
    """A tensor in the description: container and offset."""

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
    tensors: dict[_TensorPlace, int] = {}

    def number_of(tensor: _TensorPlace) -> int:
        return tensors.setdefault(tensor, len(tensors))

    def in_region(kind: str, number: int, offset: int, size: int) -> _TensorPlace:
        placement = plan.placement(kind, number)
        return _TensorPlace("region", regions[placement.region], placement.offset + offset, size)

    def locate(place: Location, size: int) -> _TensorPlace:
        if place.kind == "buffer":
            return in_region("buffer", place.number, place.offset, size)
        if place.kind == "state":
            # To the executor, the library's states are regions after those of the plan.
            return _TensorPlace("region", len(regions) + place.number, place.offset, size)
        return _TensorPlace(place.kind, place.number, place.offset, size)

    steps: list[tuple[int, list[int]]] = []
    for index, step in enumerate(graph.steps):
        places = (*step.reads, *step.writes)
        if not step.function:
            steps.append((_COPY, [number_of(locate(place, step.copied_bytes)) for place in places]))
            continue
        sizes = [argument.bytes for argument in arguments[step.function]]
        used = [number_of(locate(place, size)) for place, size in zip(places, sizes, strict=False)]
        if len(sizes) > len(places):
            used.append(number_of(in_region("workspace", index, 0, sizes[-1])))
        steps.append((operators[step.function], used))
    if max(len(tensors), len(steps), len(operators)) > _MOST:
        raise errors.CompileError(
            f"the graph executor cannot number {len(tensors)} tensors and {len(steps)} steps", "use the executor aot"
        )
    return Description(_binary(list(tensors), steps), _text(list(tensors), steps, list(operators), names))


def _binary(tensors: Sequence[_TensorPlace], steps: Sequence[tuple[int, list[int]]]) -> bytes:
    parts = [struct.pack("<4sHH", b"UGR1", len(tensors), len(steps))]
    parts += [struct.pack("<HHII", _KINDS[item.kind], item.number, item.offset, item.size) for item in tensors]
    parts += [struct.pack(f"<HH{len(used)}H", number, len(used), *used) for number, used in steps]
    return b"".join(parts)


def _text(
    tensors: Sequence[_TensorPlace],
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
            {"operator": "copy" if number == _COPY else operators[number], "tensors": used} for number, used in steps
        ],
    }
    return json.dumps(content, indent=1) + "\n"


@dataclass(frozen=True)
class CalledGraph:
    """A graph run by an operator."""

    library: Library
    checked: bool


def print_control(name: str, kind: str, parts: tuple[CalledGraph, CalledGraph]) -> tuple[CFunction, list[Argument]]:
    """Print an ``if`` or ``while``, with its arguments; its graphs use the workspace as their arena."""
    first, second = (part.library for part in parts)
    results = second.outputs
    conditions = [("condition", Tensor("", (), "bool"))] if kind == "if" else []
    conditions += [(f"input_{number}", tensor) for number, tensor in enumerate(second.inputs)]
    outputs = [(f"output_{number}", tensor) for number, tensor in enumerate(results)]
    declared = [f"const {C_TYPES[tensor.dtype]} *restrict {label}" for label, tensor in conditions]
    declared += [f"{C_TYPES[tensor.dtype]} *restrict {label}" for label, tensor in outputs]
    checked = any(part.checked for part in parts)
    head = f"{'int32_t' if checked else 'void'} {name}("
    prototype = head + "\n    " + ",\n    ".join([*declared, "uint8_t *restrict workspace"]) + ")"
    end = "    return (code != 0) ? 1 : 0;\n" if checked else "    (void)code;\n"
    definition = (
        f"{prototype}\n{{\n{_tables(kind, first, second)}    int32_t code;\n\n{_body(kind, first, second)}{end}}}"
    )
    arguments = [_argument(item, False) for _, item in conditions] + [_argument(item, True) for _, item in outputs]
    size = max(first.arena_bytes, second.arena_bytes)
    headers = (f"{first.name}.h", f"{second.name}.h")
    return CFunction(name, prototype, definition, size, frozenset(), checked, headers=headers), arguments


def _tables(kind: str, first: Library, second: Library) -> str:
    outputs = [f"output_{number}" for number in range(len(second.outputs))]
    if kind == "if":
        inputs = [f"input_{number}" for number in range(len(second.inputs))]
        tables = [("const void *const inputs", inputs or ["condition"]), ("void *const outputs", outputs)]
    else:
        tables = [
            ("const void *const inputs", outputs),
            ("void *const next", [f"workspace + {place.offset}" for place in second.output_places]),
            ("void *const conditions", [f"workspace + {first.output_places[0].offset}"]),
        ]
    return "".join(f"    {declared}[] = {{{', '.join(items)}}};\n" for declared, items in tables)


def _body(kind: str, first: Library, second: Library) -> str:
    copies = [
        (f"output_{number}", f"input_{number}", f"workspace + {place.offset}", tensor.size_bytes)
        for number, (tensor, place) in enumerate(zip(second.outputs, second.output_places, strict=True))
    ]
    template = templates.templates_of("utvm.compiler.c").get_template(f"{kind}.c")
    return template.render(first=first, second=second, place=first.output_places[0].offset, copies=copies)


def _argument(tensor: Tensor, is_output: bool) -> Argument:
    return Argument(tensor.size_bytes, item_bytes(tensor.dtype), is_output)


@dataclass(frozen=True)
class Kind:
    """Description of an operator, for people; ``kernel`` is empty if there is no choice of kernels."""

    name: str
    macs: int
    kernel: str = ""


def emit(
    name: str,
    graph: Graph,
    plan: Plan,
    operators: Mapping[str, CFunction],
    kinds: Mapping[str, Kind],
    arguments: Mapping[str, Sequence[Argument]],
    executor: str,
    stepped: bool = True,
    in_ram: Sequence[int] = (),
) -> Library:
    """Emit a library; start-up code copies the constants ``in_ram`` to RAM."""
    used = {function: list(arguments[function]) for function in operators}
    for function, operator in operators.items():
        if operator.workspace_bytes:
            used[function].append(Argument(operator.workspace_bytes, WORKSPACE_ALIGNMENT, True))
    library = Library(
        name=name,
        sources={},
        inputs=graph.inputs,
        outputs=graph.outputs,
        arenas=tuple(Arena(region, size) for region, size in plan.region_bytes.items()),
        input_places=(Placement(),)
        if graph.has_input_rows
        else tuple(plan.placement("input", number) for number in range(len(graph.inputs))),
        output_places=tuple(plan.placement("output", number) for number in range(len(graph.outputs))),
        calls=tuple(_call(graph, step, operators, kinds) for step in graph.steps),
        weights_bytes=sum(array.nbytes for array in graph.constants)
        + sum(len(item) for item in graph.initial if _one_byte(item) is None),
        blocks=tuple(plan.blocks.values()),
        lower_bound_bytes=plan.lower_bound_bytes,
        states=graph.states,
        executor=executor,
        entry_points=tuple(
            EntryPoint(operator.name, _parameter_types(operator), tuple(item.bytes for item in used[function]))
            for function, operator in operators.items()
        ),
    )
    values = _values(library, graph, plan, operators, stepped) | {"in_ram": in_ram}
    large = {constant_name(name, number): data for number, data in enumerate(graph.constants) if is_large(data)}
    if executor == "aot":
        return replace(library, sources=CFiles(_render(library, values), large))
    description = describe(graph, plan, used)
    values |= {
        "description": list(description.content),
        "wrappers": [_wrapper(operator, used[key]) for key, operator in operators.items()],
        "argument_limit": max([2, *map(len, used.values())]),
    }
    more = _executor_files(name) | {f"{name}_graph.json": description.text}
    return replace(library, sources=CFiles(_render(library, values) | more, large))


def _values(
    library: Library, graph: Graph, plan: Plan, operators: Mapping[str, CFunction], stepped: bool
) -> dict[str, object]:
    calls = Calls(library.name, graph, plan, operators)
    lines = [
        line
        for index, step in enumerate(graph.steps)
        for line in (*([f"UTVM_STEP({index}u)"] if stepped else []), *calls.step(index, step))
    ]
    text = "\n".join(["inputs"] * graph.has_input_rows + lines)
    helpers = set().union(*(operator.helpers for operator in operators.values()))
    regions = [arena.region for arena in library.arenas]
    return {
        **fields_of(library, "name", "inputs", "outputs", "arenas", "input_places", "output_places"),
        **fields_of(library, "executor", "state_bytes"),
        "by_rows": graph.has_input_rows,
        "parameters": ", ".join(
            ["const void *const *inputs", "void *const *outputs", *(f"uint8_t *{region}" for region in regions)]
        ),
        "index_out_of_range": INDEX_OUT_OF_RANGE if any(operator.checked for operator in operators.values()) else 0,
        "alignment": ALIGNMENT,
        "stepped": stepped,
        "includes": sorted({operator.include for operator in operators.values() if operator.include}),
        "headers": sorted({header for operator in operators.values() for header in operator.headers}),
        "operators": list(operators.values()),
        "helpers": helper_definitions(helpers),
        "movers": helper_definitions(["move_rows"] * ("move_rows(" in text)),
        "constants": [_constant(library.name, number, array) for number, array in enumerate(graph.constants)],
        "states": [_state(library.name, number, graph) for number in range(len(graph.states))],
        "lines": lines,
        "unused": [word for word in ("inputs", "outputs", *regions) if not re.search(rf"\b{word}\b", text)],
    }


def prepare() -> None:
    """Read templates and names of helpers, which forks of this process then have."""
    for name in ("library.h", "library.c", "operators.h", "operators.c"):
        _environment().get_template(name)
    is_helper("")


def _render(library: Library, values: Mapping[str, object]) -> dict[str, str]:
    files = {
        f"{library.name}.h": "library.h",
        f"{library.name}.c": "library_graph.c" if library.executor == "graph" else "library.c",
        f"{library.name}_operators.h": "operators.h",
        f"{library.name}_operators.c": "operators.c",
    }
    environment = _environment()
    return {
        file: environment.get_template(template).render(guard=file.upper().replace(".", "_"), **values)
        for file, template in files.items()
    }


def _call(graph: Graph, step: Step, operators: Mapping[str, CFunction], kinds: Mapping[str, Kind]) -> Call:
    tensors = {"input": graph.inputs, "buffer": graph.buffers, "output": graph.outputs, "state": graph.states}
    reads, writes = (
        tuple(tensors[place.kind][place.number].name for place in places if place.kind in tensors)
        for places in (step.reads, step.writes)
    )
    if not step.function:
        return Call("memcpy", "copy", 0, reads, writes)
    if step.parts:
        layers = [kinds[part.function] for part in step.parts if part.function]
        macs = sum(kind.macs for kind in layers)
        name = ", ".join(dict.fromkeys(kind.name for kind in layers))
        kernel = ", ".join(dict.fromkeys(kind.kernel for kind in layers))
        return Call(step.function, f"{name} by rows", macs, reads, writes, kernel)
    kind = kinds[step.function]
    return Call(operators[step.function].name, kind.name, kind.macs, reads, writes, kind.kernel)


def _wrapper(operator: CFunction, table: Sequence[Argument]) -> dict[str, object]:
    # From the prototype: pass array elements as parameters.
    arguments = [f"({c_type})tensors[{number}]" for number, c_type in enumerate(_parameter_types(operator))]
    return {"operator": operator.name, "arguments": arguments, "table": table, "checked": operator.checked}


def _parameter_types(operator: CFunction) -> tuple[str, ...]:
    declared = operator.prototype[operator.prototype.index("(") + 1 : -1].split(",")
    return tuple(re.sub(r"\b(restrict\s*)?\w+$", "", item.strip()).strip() for item in declared)


def _executor_files(name: str) -> dict[str, str]:
    files = {}
    for suffix in ("h", "c"):
        text = (runtime.PORTABLE / f"graph_executor.{suffix}").read_text(encoding="utf-8")
        text = re.sub(r"\butvm_graph", f"{name}_graph", text)
        text = re.sub(r"\bUTVM_GRAPH", f"{name.upper()}_GRAPH", text)
        files[f"{name}_graph_executor.{suffix}"] = text.replace('"graph_executor.h"', f'"{name}_graph_executor.h"')
    return files


def _state(name: str, number: int, graph: Graph) -> dict[str, object]:
    tensor, initial = graph.states[number], graph.initial[number]
    byte = _one_byte(initial)  # None where bytes differ; the rows are its elements then.
    rows = "" if byte is not None else rows_of(np.frombuffer(initial, tensor.dtype))
    return _array(f"{name}_state_{number}", tensor.dtype, math.prod(tensor.shape), rows) | {"byte": byte}


def _array(name: str, dtype: str, elements: int, rows: str) -> dict[str, object]:
    return {"name": name, "c_type": C_TYPES[dtype], "elements": elements, "rows": rows}


def _one_byte(content: bytes) -> int | None:
    return content[0] if len(set(content)) == 1 else None


def choose_in_ram(
    graph: Graph, kinds: Mapping[str, Kind], arguments: Mapping[str, Sequence[Argument]], size: int
) -> list[int]:
    """Choose constants of at most ``size`` bytes that are read most often: those with the most products a byte.

    An operator without products, such as one that reads a table, counts the bytes of its outputs.
    """
    reads: Counter[int] = Counter()
    for step in graph.calls:
        for place in step.reads:
            if place.kind == "constant" and step.function:
                outputs = sum(item.bytes for item in arguments[step.function] if item.written)
                reads[place.number] += max(kinds[step.function].macs, outputs)
    chosen = []
    for number in sorted(reads, key=lambda item: reads[item] / graph.constants[item].nbytes, reverse=True):
        if graph.constants[number].nbytes <= size:
            chosen.append(number)
            size -= graph.constants[number].nbytes
    return chosen


def _constant(name: str, number: int, array: npt.NDArray[Any]) -> dict[str, object]:
    own = constant_name(name, number)
    text = stand_in(own, number) if is_large(array) else rows_of(array)
    return _array(own, str(array.dtype), array.size, text)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = templates.templates_of("utvm.compiler.c")
    environment.filters["float_literal"] = lambda value: literal(value, "float32")
    return environment
