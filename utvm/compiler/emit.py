"""Writing a library's C files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy.typing as npt

from utvm.compiler.graph import Graph, Place, Step
from utvm.compiler.helpers import helper_definition
from utvm.compiler.library import Library, Tensor
from utvm.compiler.literals import C_TYPES, literal
from utvm.compiler.plan import Plan
from utvm.compiler.printer import ALIGNMENT, CFunction

_LINE = 110  # Characters in a line of C.
_ROW = 8  # Numbers in a row of weights.


@dataclass(frozen=True)
class _Constant:
    name: str
    c_type: str
    elements: int
    rows: str


def emit(name: str, graph: Graph, plan: Plan, operators: Mapping[str, CFunction]) -> Library:
    """Write the C files of a library.

    Args:
        name: C identifier that begins every global symbol.
        operators: TIRx function name to printed operator.
    """
    calls = _Calls(name, graph, plan, operators)
    lines = [line for index, step in enumerate(graph.steps) for line in calls.step(index, step)]
    lines += [line for number, place in enumerate(graph.results) for line in calls.result(number, place)]
    helpers = sorted(set().union(*(operator.helpers for operator in operators.values())))
    text = "\n".join(lines)
    values: dict[str, Any] = {
        "name": name,
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "arena_bytes": plan.arena_bytes,
        "alignment": ALIGNMENT,
        "operators": list(operators.values()),
        "helpers": [helper_definition(helper) for helper in helpers],
        "constants": [_constant(name, number, array) for number, array in enumerate(graph.constants)],
        "lines": lines,
        "unused": [word for word in ("inputs", "outputs", "arena") if not re.search(rf"\b{word}\b", text)],
    }
    files = {
        f"{name}.h": "library.h",
        f"{name}.c": "library.c",
        f"{name}_operators.h": "operators.h",
        f"{name}_operators.c": "operators.c",
    }
    environment = _environment()
    return Library(
        name=name,
        sources={
            file: environment.get_template(template).render(guard=_guard(file), **values)
            for file, template in files.items()
        },
        inputs=graph.inputs,
        outputs=graph.outputs,
        arena_bytes=plan.arena_bytes,
        operators=tuple(operators[step.function].name for step in graph.steps),
        weights_bytes=sum(array.nbytes for array in graph.constants),
    )


class _Calls:
    """The statements of ``NAME_run``."""

    def __init__(self, name: str, graph: Graph, plan: Plan, operators: Mapping[str, CFunction]) -> None:
        self._name = name
        self._graph = graph
        self._plan = plan
        self._operators = operators

    def step(self, index: int, step: Step) -> list[str]:
        operator = self._operators[step.function]
        arguments = [self._address(place) for place in step.reads]
        arguments += [self._address(place, writable=True) for place in step.writes]
        if operator.workspace_bytes:
            arguments.append(f"arena + {self._plan.workspaces[index]}")
        # Long calls are broken between arguments.
        head = f"{operator.name}("
        whole = f"{head}{', '.join(arguments)});"
        if len(whole) + 4 <= _LINE:
            return [whole]
        return [head, *(f"    {argument}," for argument in arguments[:-1]), f"    {arguments[-1]});"]

    def result(self, number: int, place: Place) -> list[str]:
        """Copy an output that no operator wrote where the caller wants it."""
        if place.kind == "buffer" and self._plan.direct[place.number] == number:
            return []
        size = self._graph.outputs[number].size_bytes
        return [f"memcpy(outputs[{number}], {self._address(place)}, {size});"]

    def _address(self, place: Place, *, writable: bool = False) -> str:
        if place.kind == "constant":
            return _constant_name(self._name, place.number)
        if place.kind == "input":
            return f"(const {C_TYPES[self._graph.inputs[place.number].dtype]} *)inputs[{place.number}]"
        c_type = C_TYPES[self._graph.buffers[place.number].dtype]
        qualifier = "" if writable else "const "
        if place.number in self._plan.direct:
            return f"({qualifier}{c_type} *)outputs[{self._plan.direct[place.number]}]"
        return f"({qualifier}{c_type} *)(arena + {self._plan.offsets[place.number]})"


def _constant_name(name: str, number: int) -> str:
    return f"{name}_constant_{number}"


def _constant(name: str, number: int, array: npt.NDArray[Any]) -> _Constant:
    dtype = str(array.dtype)
    numbers = [literal(value, dtype) for value in array.ravel().tolist()]
    rows = (numbers[start : start + _ROW] for start in range(0, len(numbers), _ROW))
    text = ",\n".join("    " + ", ".join(row) for row in rows)
    return _Constant(_constant_name(name, number), C_TYPES[dtype], array.size, text)


def _guard(file: str) -> str:
    return file.upper().replace(".", "_")


def _describe(tensor: Tensor) -> str:
    # What a model file calls its tensors must not end the comment it is printed in.
    name = re.sub(r"[^ -~]|[*/\\?]", "_", tensor.name)
    return f"{name}, {tensor.dtype}[{', '.join(str(extent) for extent in tensor.shape)}]"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("utvm.compiler"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["describe"] = _describe
    return environment
