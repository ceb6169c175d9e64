# SPDX-License-Identifier: Apache-2.0
"""Small changes to Python source that a test should notice."""

import ast
import hashlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_IGNORED = ("_log.", "time.sleep(")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Mutant:
    """One change to one file.

    Attributes:
        scope: dotted name of the function or class that is changed.
        before, after: the source text that is replaced, and its replacement.
        occurrence: how many equal changes come before it in the same scope.
        start, end: offsets of ``before`` in the file, in bytes.
    """

    file: str
    scope: str
    before: str
    after: str
    occurrence: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """Name that stays the same while other parts of the file change."""
        number = f" #{self.occurrence + 1}" if self.occurrence else ""
        return f"{self.file}:{self.scope}{number}: {' '.join(self.before.split())} -> {self.after}"

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants(root: Path, file: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of its text."""
    source = (root / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    result: list[Mutant] = []
    counts: dict[tuple[str, str, str], int] = {}
    for scope, node, after in _changes(ast.parse(source), ""):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = source[start:end].decode()
        key = (scope, before, after)
        counts[key] = counts.get(key, -1) + 1
        result.append(Mutant(file, scope, before, after, counts[key], start, end))
    return result


def draw(candidates: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants by the digests of their names: a change of the code replaces few of them."""
    return sorted(candidates, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())[:count]


def _changes(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    for child in _children(node):
        inner = f"{scope}.{child.name}".lstrip(".") if isinstance(child, _DEFINITIONS) else scope
        if isinstance(child, ast.expr):
            for changed in _expressions(child):
                yield scope, child, f"({ast.unparse(changed)})"
        elif isinstance(child, ast.stmt):
            for text in _statements(child):
                yield scope, child, text
        yield from _changes(child, inner)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Return the parts of a node that decide something.

    Annotations, decorators, parts of f-strings, log messages and pauses are left out.
    """
    if isinstance(node, ast.JoinedStr):
        return
    skipped: list[object] = list(getattr(node, "decorator_list", []))
    skipped += [part for part in ast.iter_child_nodes(node) if ast.unparse(part).startswith(_IGNORED)]
    skipped += [getattr(node, name, None) for name in ("annotation", "returns")]
    for child in ast.iter_child_nodes(node):
        if not any(child is part for part in skipped):
            yield child


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                changed = deepcopy(node)
                changed.ops[index] = _COMPARISONS[type(operator)]()
                yield changed
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
        case ast.IfExp():
            yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            for index in range(len(list(chain(*(generator.ifs for generator in node.generators))))):
                changed = deepcopy(node)
                _drop_condition(changed.generators, index)
                yield changed


def _drop_condition(generators: list[ast.comprehension], index: int) -> None:
    for generator in generators:
        if index < len(generator.ifs):
            del generator.ifs[index]
            return
        index -= len(generator.ifs)


def _statements(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Return(value=ast.Constant(value=None)):
            return
        case ast.Return(value=ast.expr()):
            yield "return None"
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield "pass"
