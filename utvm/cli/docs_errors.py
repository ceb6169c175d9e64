# SPDX-License-Identifier: Apache-2.0
"""The page of error messages, read out of the sources, so that it is complete.

Each call that builds an error of the project's tree is one entry: its message and hint, with ``…`` for values
filled
in at run time, and the meaning of its class.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from utvm import errors
from utvm.base.text.templates import templates_of
from utvm.errors import UtvmError
from utvm.paths import PACKAGE

_GAP = "…"


@dataclass(frozen=True, order=True)
class ErrorText:
    """An error that a user can meet.

    Attributes:
        room: the package that raises it.
        message: the text printed behind ``error:``.
        cause: the meaning of its class.
        hint: the text printed behind ``hint:``; may be empty.
        exit_code: the exit code of the command.
    """

    room: str
    message: str
    cause: str
    hint: str
    exit_code: int


@dataclass(frozen=True)
class _ErrorClass:
    meaning: str
    exit_code: int


def entries(package: Path = PACKAGE) -> tuple[ErrorText, ...]:
    """Return every error in the sources of a package once, sorted."""
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    classes = _error_classes(modules.values())
    texts: set[ErrorText] = set()
    for path, module in modules.items():
        room = path.relative_to(package).parts[0].removesuffix(".py")
        texts.update(_errors_in(module, room, classes))
    return tuple(sorted(texts))


def page() -> str:
    """Return the page, in Markdown."""
    rooms: dict[str, list[ErrorText]] = {}
    for entry in entries():
        rooms.setdefault(entry.room, []).append(entry)
    return templates_of("utvm.cli").get_template("errors.md.j2").render(rooms=rooms, cell=_cell)


def _error_classes(modules: Iterable[ast.Module]) -> Mapping[str, _ErrorClass]:
    """Return the classes of the error tree by name; a class in another module is found by its base."""
    known = {
        name: _ErrorClass(_first_line(kind.__doc__), int(kind.usual_exit_code))
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, UtvmError)
    }
    classes = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    count = -1
    while count != len(known):
        count = len(known)
        for node in classes:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in known]
            if bases and node.name not in known:
                meaning = _first_line(ast.get_docstring(node)) or known[bases[0]].meaning
                known[node.name] = _ErrorClass(meaning, known[bases[0]].exit_code)
    return known


def _errors_in(module: ast.Module, room: str, classes: Mapping[str, _ErrorClass]) -> Iterator[ErrorText]:
    constants = {
        node.targets[0].id: node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        kind = classes.get(node.func.id)
        message = _text(node.args[0], constants)
        if kind and re.search(r"\w{3}", message):
            hints = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "hint")]
            yield ErrorText(
                room, message, kind.meaning, _text(hints[0], constants) if hints else "", kind.exit_code
            )


def _text(node: ast.expr, constants: Mapping[str, ast.expr]) -> str:
    """Return the text of an expression as far as it is known before it runs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value, constants) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left, constants) + _text(node.right, constants)
    if isinstance(node, ast.IfExp):
        return " / ".join(dict.fromkeys(_text(branch, constants) for branch in (node.body, node.orelse)))
    if isinstance(node, ast.Name) and isinstance(value := constants.get(node.id), ast.Constant):
        return str(value.value)
    return _GAP


def _first_line(docstring: str | None) -> str:
    return (docstring or "").partition("\n")[0]


def _cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    plain = " ".join(text.split())
    for sign in "\\`*_[]|<>#{}":
        plain = plain.replace(sign, f"&#{ord(sign)};")
    return plain
