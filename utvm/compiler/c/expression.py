# SPDX-License-Identifier: Apache-2.0
"""Print TIRx expressions as C expressions."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from utvm.compiler.c.helpers import is_helper
from utvm.compiler.c_files import C_TYPES, literal
from utvm.compiler.schedule.lower import WITHIN
from utvm.compiler.tvm_types import element_type
from utvm.errors import CompileError

OUTSIDE = "outside"  # The variable a helper sets if an index was out of range.
_POSTFIX, _UNARY, _CONDITIONAL = 15, 14, 3
_ARITHMETIC = {"Mul": ("*", 13), "Div": ("/", 13), "Mod": ("%", 13), "Add": ("+", 12), "Sub": ("-", 12)}
_SHIFTS_AND_BITS = {
    "LShift": ("<<", 11),
    "RShift": (">>", 11),
    "BitwiseAnd": ("&", 8),
    "BitwiseXor": ("^", 7),
    "BitwiseOr": ("|", 6),
}
_COMPARISONS = {"LT": ("<", 10), "LE": ("<=", 10), "GT": (">", 10), "GE": (">=", 10), "EQ": ("==", 9), "NE": ("!=", 9)}
_LOGIC = {"And": ("&&", 5), "Or": ("||", 4)}
_DIVISIONS = {"Div": "quotient", "Mod": "remainder"}
_HELPERS = {"Max": "max", "Min": "min", "FloorDiv": "floordiv", "FloorMod": "floormod"}
_WRAPPING = {"Add": "add", "Sub": "sub", "Mul": "mul", "LShift": "shl"}
_LOG = logging.getLogger("utvm.compiler")
_OPERATOR_CALLS = {
    "shift_left": "LShift",
    "shift_right": "RShift",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
}
# Intrinsics left after lowering that <math.h> provides, by their C name for double.
_MATH_CALLS = ("fabs", "fmod", "exp2", "isnan")
_POINTERS = ("address_of", "buffer_data", "reinterpret")
_FLOATS = ("float32", "float64")
_NARROW = ("int8", "uint8", "int16", "uint16")


def no_form(what: str) -> CompileError:
    """Return the error of a lowered function that this printer cannot write; details go to the log."""
    _LOG.debug("the printer lacks %s", what)
    return CompileError(
        "a part of it has no form in C",
        "replace the operator by others, and report it; the log (--log-level debug) shows the part",
    )


@dataclass(frozen=True)
class Text:
    """A printed expression; ``is_data``: it depends on tensor elements, so it is not bounded like an index."""

    text: str
    precedence: int = _POSTFIX
    is_data: bool = False

    def at_least(self, precedence: int) -> str:
        """Return the text, in parentheses unless it binds at least this tightly."""
        return self.text if self.precedence >= precedence else f"({self.text})"


class ExpressionPrinter:
    """Prints expressions; collects the helpers and variables they need."""

    def __init__(self, variable_name: Callable[[Any], str], buffer_name: Callable[[Any], str]) -> None:
        self._variable_name = variable_name
        self._buffer_name = buffer_name
        self._replaced: dict[int, Text] = {}
        self._index_depth = 0
        self.helpers: set[str] = set()
        self.data_variables: set[str] = set()

    def print(self, node: Any) -> Text:
        kind = type(node).__name__
        if kind in _HELPERS:
            return self._call_helper(_HELPERS[kind], element_type(node.a), self.print(node.a), self.print(node.b))
        if kind in _ARITHMETIC or kind in _SHIFTS_AND_BITS:
            return self._arithmetic(kind, node.a, node.b)
        if kind in _COMPARISONS or kind in _LOGIC:
            return self._condition(kind, node)
        method = getattr(self, f"_print_{kind}", None)
        if method is None:
            raise no_form(f"an expression {kind}: {str(node)[:200]}")
        printed: Text = method(node)
        return printed

    def index(self, node: Any) -> str:
        self._index_depth += 1
        try:
            return self.print(node).text
        finally:
            self._index_depth -= 1

    def _print_IntImm(self, node: Any) -> Text:
        text = literal(node.value, element_type(node))
        return Text(text, _UNARY if text.startswith("-") else _POSTFIX)

    _print_FloatImm = _print_IntImm  # noqa: N815

    def _print_Var(self, node: Any) -> Text:
        if hash(node) in self._replaced:
            return self._replaced[hash(node)]
        name = self._variable_name(node)
        return Text(name, is_data=name in self.data_variables)

    def _print_TensorLoad(self, node: Any) -> Text:
        (index,) = node.indices
        return Text(f"{self._buffer_name(node.source)}[{self.index(index)}]", is_data=True)

    def _print_Cast(self, node: Any) -> Text:
        value = self.print(node.value)
        return Text(f"({C_TYPES[element_type(node)]}){value.at_least(_UNARY)}", _UNARY, value.is_data)

    def _print_Not(self, node: Any) -> Text:
        value = self.print(node.a)
        return Text(f"!{value.at_least(_UNARY)}", _UNARY, value.is_data)

    def _print_BitwiseNot(self, node: Any) -> Text:
        return self._bitwise_not(node.a, element_type(node))

    def _print_Select(self, node: Any) -> Text:
        return self._choice(node.condition, node.true_value, node.false_value)

    def _print_Let(self, node: Any) -> Text:
        # C has no let expression: print the value in place of the variable.
        self._replaced[hash(node.var)] = self.print(node.value)
        return self.print(node.body)

    def _print_Call(self, node: Any) -> Text:
        name = str(getattr(node.op, "name", node.op)).rpartition(".")[2]
        arguments = list(node.args)
        if name in _OPERATOR_CALLS:
            return self._arithmetic(_OPERATOR_CALLS[name], *arguments)
        if name == "bitwise_not":
            return self._bitwise_not(arguments[0], element_type(node))
        if name == "if_then_else":
            return self._choice(*arguments)
        if name in ("call_pure_extern", "call_extern"):
            printed = [self.print(argument) for argument in arguments[1:]]
            function = str(arguments[0].value)
            texts = [item.text for item in printed]
            if is_helper(function):
                self.helpers.add(function)
            if function.startswith(f"{WITHIN}_"):
                texts.append(f"&{OUTSIDE}")
            return Text(f"{function}({', '.join(texts)})", is_data=any(item.is_data for item in printed))
        if name in _MATH_CALLS:
            return self._math_call(name, *arguments)
        if name in _POINTERS:
            return self._pointer(name, *arguments)
        raise no_form(f"a call of {name}")

    def _pointer(self, name: str, of: Any) -> Text:
        if name == "reinterpret":  # As a pointer of another type: C converts it implicitly.
            return self.print(of)
        return Text(self._buffer_name(of)) if name == "buffer_data" else self._address(of)

    def _address(self, element: Any) -> Text:
        (index,) = element.indices
        name, offset = self._buffer_name(element.source), self.index(index)
        return Text(name) if offset == "0" else Text(f"{name} + {offset}", _ARITHMETIC["Add"][1])

    def _arithmetic(self, kind: str, a: Any, b: Any) -> Text:
        left, right = self.print(a), self.print(b)
        is_data = left.is_data or right.is_data
        dtype = element_type(a)
        if kind == "Mod" and dtype in _FLOATS:
            return self._math_call("fmod", a, b)
        if kind in _DIVISIONS and dtype not in _FLOATS and type(b).__name__ != "IntImm":
            return self._call_helper(_DIVISIONS[kind], dtype, left, right)
        # Index arithmetic cannot overflow, but it may be negative, and C has no left shift of negative numbers.
        wraps = is_data and (not self._index_depth or kind == "LShift")
        if kind in _WRAPPING and dtype in ("int32", "int64") and wraps:
            return self._call_helper(_WRAPPING[kind], dtype, left, right)
        symbol, precedence = _ARITHMETIC.get(kind) or _SHIFTS_AND_BITS[kind]
        if kind in _SHIFTS_AND_BITS:
            # Parentheses for readers and gcc where bit operators and sums meet.
            text = f"{left.at_least(_UNARY)} {symbol} {right.at_least(_UNARY)}"
        else:
            text = f"{left.at_least(precedence)} {symbol} {right.at_least(precedence + 1)}"
        if dtype in _NARROW:
            # C computes in int; convert back to the result's width. Unsigned in between, where int could overflow
            # or a negative number would be shifted left.
            if kind in ("Mul", "LShift"):
                text = f"(uint32_t){left.at_least(_UNARY)} {symbol} {right.at_least(_UNARY)}"
            return Text(f"({C_TYPES[dtype]})({text})", _UNARY, is_data)
        return Text(text, precedence, is_data)

    def _condition(self, kind: str, node: Any) -> Text:
        known = _known_by_type(kind, node)
        if known is not None:
            return Text("true" if known else "false")
        left, right = self.print(node.a), self.print(node.b)
        is_data = left.is_data or right.is_data
        if kind in _LOGIC:
            symbol, precedence = _LOGIC[kind]
            # A chain of one operator needs no parentheses, a mixture does.
            texts = [
                item.text if item.precedence in (precedence, *range(9, _POSTFIX + 1)) else f"({item.text})"
                for item in (left, right)
            ]
        else:
            symbol, precedence = _COMPARISONS[kind]
            texts = [left.at_least(12), right.at_least(12)]
        return Text(f" {symbol} ".join(texts), precedence, is_data)

    def _choice(self, condition: Any, true_value: Any, false_value: Any) -> Text:
        test, yes, no = (self.print(item) for item in (condition, true_value, false_value))
        # Always in parentheses: a conditional never appears bare in a larger expression.
        return Text(
            f"({test.at_least(_CONDITIONAL + 1)} ? {yes.text} : {no.text})",
            _POSTFIX,
            test.is_data or yes.is_data or no.is_data,
        )

    def _math_call(self, name: str, *arguments: Any) -> Text:
        printed = [self.print(argument) for argument in arguments]
        # isnan is a macro for all types.
        suffix = "f" if element_type(arguments[0]) == "float32" and name != "isnan" else ""
        return Text(
            f"{name}{suffix}({', '.join(item.text for item in printed)})", is_data=any(item.is_data for item in printed)
        )

    def _bitwise_not(self, a: Any, dtype: str) -> Text:
        value = self.print(a)
        text = f"~{value.at_least(_UNARY)}"
        return Text(f"({C_TYPES[dtype]})({text})" if dtype in _NARROW else text, _UNARY, value.is_data)

    def _call_helper(self, operation: str, dtype: str, left: Text, right: Text) -> Text:
        name = f"{operation}_{dtype}"
        self.helpers.add(name)
        return Text(f"{name}({left.text}, {right.text})", is_data=left.is_data or right.is_data)


def _known_by_type(kind: str, node: Any) -> bool | None:
    dtype = element_type(node.a)
    if kind not in ("LT", "LE", "GT", "GE") or not dtype.startswith(("int", "uint")):
        return None
    if type(node.a).__name__ == "IntImm":
        kind = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}[kind]
    end = node.a if type(node.a).__name__ == "IntImm" else node.b
    if type(end).__name__ != "IntImm":
        return None
    limits = np.iinfo(dtype)
    if kind in ("LT", "GE") and int(end.value) == limits.min:
        return kind == "GE"
    if kind in ("GT", "LE") and int(end.value) == limits.max:
        return kind == "LE"
    return None
