# SPDX-License-Identifier: Apache-2.0
"""Print lowered TIRx functions as C functions."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir

from utvm.compiler.accelerator import INCLUDE
from utvm.compiler.c.expression import OUTSIDE, ExpressionPrinter, no_form
from utvm.compiler.c.helpers import is_helper
from utvm.compiler.c_files import C_TYPES
from utvm.compiler.kernels.functions import OPERATOR, OVERLAP, RESULTS
from utvm.compiler.library import item_bytes
from utvm.compiler.names import Scope
from utvm.compiler.schedule.lower import CHECKED
from utvm.compiler.tvm_types import element_type

ALIGNMENT = 16  # Bytes; alignment of every buffer in the arena.
_LOCAL_BYTES = 64  # Buffers up to this size are on the stack; C compilers keep them in registers.
_WORKSPACE = "workspace"
_LINE = 110  # Columns; longer prototypes are broken.


@dataclass(frozen=True)
class CFunction:
    """One operator in C; if ``checked``, it returns 1 (int32_t) for an index out of range, else 0."""

    name: str
    prototype: str
    definition: str
    workspace_bytes: int
    helpers: frozenset[str]
    checked: bool
    include: str = ""
    headers: tuple[str, ...] = ()


def print_function(name: str, function: Any) -> CFunction:
    """Print a ``tirx.PrimFunc``. Pointers are ``restrict`` unless the output may overlap an input."""
    return _FunctionPrinter(function).print(name)


class _Names:
    """C names of variables and buffers; TIRx compares them by identity, not by name."""

    def __init__(self, reserved: Sequence[str]) -> None:
        self._scope = Scope(reserved)
        self._names_by_thing: dict[int, str] = {}
        self._claimed: list[str] = []

    def of(self, thing: Any) -> str:
        key = hash(thing)
        if key not in self._names_by_thing:
            text = str(thing.name)
            name = self._scope.claim(f"{text}_" if is_helper(text) else text, "v")
            self._names_by_thing[key] = name
            self._claimed.append(name)
        return self._names_by_thing[key]

    def alias(self, thing: Any, name: str) -> None:
        self._names_by_thing[hash(thing)] = name

    def mark(self) -> int:
        return len(self._claimed)

    def release_since(self, mark: int) -> None:
        while len(self._claimed) > mark:
            self._scope.release(self._claimed.pop())


class _FunctionPrinter:
    def __init__(self, function: Any) -> None:
        self._function = function
        self._checked = bool(function.attrs and CHECKED in function.attrs)
        self._include = str(function.attrs[INCLUDE]) if function.attrs and INCLUDE in function.attrs else ""
        self._names = _Names([_WORKSPACE, OUTSIDE] if self._checked else [_WORKSPACE])
        self._expressions = ExpressionPrinter(self._names.of, self._touch)
        self._lines: list[str] = []
        self._depth = 1
        self._workspace_bytes = 0
        self._touched: set[str] = set()
        self._written: set[str] = set()
        self._dtypes: dict[str, str] = {}
        self._mentions: Counter[int] = Counter()
        tvm_ffi.structural_walk(function.body, (ir.Var, self._count), order="pre")

    def print(self, name: str) -> CFunction:
        parameters = {self._names.of(item): element_type(item) for item in self._function.params}
        self._dtypes.update(parameters)
        if self._function.attrs and OPERATOR in self._function.attrs:
            # C helpers write its outputs through pointers.
            self._written.update(list(parameters)[-int(self._function.attrs.get(RESULTS, 1)) :])
        self._statement(self._function.body)
        sharing = self._sharing()
        declared = [
            f"{'' if text in self._written else 'const '}{C_TYPES[dtype]} *{'' if shared else 'restrict '}{text}"
            for (text, dtype), shared in zip(parameters.items(), sharing, strict=True)
        ]
        if self._workspace_bytes:
            declared.append(f"uint8_t *restrict {_WORKSPACE}")
        unused = [f"    (void){text};" for text in parameters if text not in self._touched]
        head = f"{'int32_t' if self._checked else 'void'} {name}("
        prototype = f"{head}{', '.join(declared)})"
        if len(prototype) > _LINE:
            prototype = f"{head}\n    " + ",\n    ".join(declared) + ")"
        lines = unused + self._lines
        if self._checked:
            lines = [f"    int32_t {OUTSIDE} = 0;", *lines, f"    return {OUTSIDE};"]
        body = "\n".join(lines)
        return CFunction(
            name,
            prototype,
            f"{prototype}\n{{\n{body}\n}}\n",
            self._workspace_bytes,
            frozenset(self._expressions.helpers),
            self._checked,
            self._include,
        )

    def _sharing(self) -> list[bool]:
        attributes = self._function.attrs
        distances = [int(value) for value in attributes[OVERLAP]] if attributes and OVERLAP in attributes else []
        sharing = [distance >= 0 for distance in distances]
        others = len(self._function.params) - len(sharing) - 1
        return [*sharing, *[False] * others, any(sharing)]

    def _count(self, variable: Any) -> None:
        self._mentions[hash(variable)] += 1

    def _touch(self, buffer: Any) -> str:
        name = self._names.of(buffer)
        self._touched.add(name)
        return name

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _statement(self, node: Any) -> None:
        kind = type(node).__name__
        method = getattr(self, f"_print_{kind}", None)
        if method is None:
            raise no_form(f"a statement {kind}")
        method(node)

    def _block(self, head: str, body: Any) -> None:
        self._line(head)
        self._depth += 1
        mark = self._names.mark()
        self._statement(body)
        self._names.release_since(mark)
        self._depth -= 1

    def _print_SeqStmt(self, node: Any) -> None:
        for statement in node.seq:
            self._statement(statement)

    def _print_AttrStmt(self, node: Any) -> None:
        self._statement(node.body)

    def _print_For(self, node: Any) -> None:
        first = self._expressions.index(node.min)
        end = self._expressions.index(node.extent if first == "0" else node.min + node.extent)
        step = "1" if node.step is None else self._expressions.index(node.step)
        mark = self._names.mark()
        variable = self._names.of(node.loop_var)
        advance = f"++{variable}" if step == "1" else f"{variable} += {step}"
        c_type = C_TYPES[element_type(node.loop_var)]
        self._block(f"for ({c_type} {variable} = {first}; {variable} < {end}; {advance}) {{", node.body)
        self._names.release_since(mark)
        self._line("}")

    def _print_While(self, node: Any) -> None:
        self._block(f"while ({self._expressions.print(node.condition).text}) {{", node.body)
        self._line("}")

    def _print_IfThenElse(self, node: Any) -> None:
        self._block(f"if ({self._expressions.print(node.condition).text}) {{", node.then_case)
        if node.else_case is not None:
            self._block("} else {", node.else_case)
        self._line("}")

    def _print_BufferStore(self, node: Any) -> None:
        (index,) = node.indices
        name = self._touch(node.buffer)
        self._written.add(name)
        self._line(f"{name}[{self._expressions.index(index)}] = {self._expressions.print(node.value).text};")

    def _print_Bind(self, node: Any) -> None:
        if self._mentions[hash(node.var)] == 1:
            return  # Only declared.
        value = self._expressions.print(node.value)
        name = self._names.of(node.var)
        if value.is_data:
            self._expressions.data_variables.add(name)
        self._line(f"const {C_TYPES[element_type(node.var)]} {name} = {value.text};")

    def _print_Evaluate(self, node: Any) -> None:
        if type(node.value).__name__ != "IntImm":  # An evaluation of 0 is an empty statement.
            # Ignore the results of driver calls: a fault stops the program.
            ignored = "(void)" if self._include else ""
            self._line(f"{ignored}{self._expressions.print(node.value).text};")

    def _print_DeclBuffer(self, node: Any) -> None:
        (owner,) = node.data.args
        name = self._names.of(owner)
        if element_type(node.buffer) != self._dtypes[name]:
            raise no_form("a buffer that changes its element type")
        self._names.alias(node.buffer, name)

    def _print_AllocBuffer(self, node: Any) -> None:
        name, dtype = self._names.of(node.buffer), element_type(node.buffer)
        elements = math.prod(int(extent) for extent in node.buffer.shape)
        size = elements * item_bytes(dtype)
        self._dtypes[name] = dtype
        if size <= _LOCAL_BYTES:
            self._line(f"{C_TYPES[dtype]} {name}[{elements}];")
            return
        place = f"({C_TYPES[dtype]} *)({_WORKSPACE} + {self._workspace_bytes})"
        self._line(f"{C_TYPES[dtype]} *restrict {name} = {place};")
        self._workspace_bytes += -(-size // ALIGNMENT) * ALIGNMENT
