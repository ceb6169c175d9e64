# SPDX-License-Identifier: Apache-2.0
"""The page of error messages: read out of the sources, so that it has those that there are, and no others.

Each place that makes an error of the project's tree is one entry: its message and hint, with ``…`` where something
is filled in, and the cause that the function's docstring gives below ``Raises``, or that of the nearest function
of its module that calls it, or else the docstring of the error's class.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from utvm import errors
from utvm.errors import UtvmError
from utvm.paths import PACKAGE
from utvm.templates import templates_of

_GAP = "…"


@dataclass(frozen=True, order=True)
class ErrorText:
    """An error that a user can meet.

    Attributes:
        room: the package that raises it.
        message: what is printed behind ``error:``.
        cause: what the sources say of when it is raised; empty where they do not.
        hint: what is printed behind ``hint:``; may be empty.
        exit_code: what the command ends with.
    """

    room: str
    message: str
    cause: str
    hint: str
    exit_code: int


def entries(package: Path = PACKAGE) -> tuple[ErrorText, ...]:
    """Return every error in the sources of a package once, sorted."""
    modules = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    codes = _exit_codes(modules.values())
    rooms = {path: path.relative_to(package).parts[0].removesuffix(".py") for path in modules}
    found: set[ErrorText] = set()
    for path, module in modules.items():
        found.update(_Errors(rooms[path], codes, module).below(module, ""))
    return tuple(sorted(found))


def page() -> str:
    """Return the page, in Markdown."""
    rooms: dict[str, list[ErrorText]] = {}
    for entry in entries():
        rooms.setdefault(entry.room, []).append(entry)
    return templates_of("utvm.cli").get_template("errors.md.j2").render(rooms=rooms, cell=_cell)


def _exit_codes(modules: Iterable[ast.Module]) -> Mapping[str, int]:
    """Return the errors of the tree by name, with what a command ends with."""
    tree = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    codes = {name: int(kind.usual_exit_code) for name, kind in tree.items() if issubclass(kind, UtvmError)}
    classes = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    before = -1
    while before != len(codes):
        before = len(codes)
        for node in classes:
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in codes]
            if bases:
                codes.setdefault(node.name, codes[bases[0]])
    return codes


class _Errors:
    """The errors of a module."""

    def __init__(self, room: str, codes: Mapping[str, int], module: ast.Module) -> None:
        self._room = room
        self._codes = codes
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        self._raises = {node.name: _raises(node) for node in functions}
        self._constants = {
            node.targets[0].id: node.value
            for node in module.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        self._callers: dict[str, list[str]] = {}
        for node in functions:
            for inner in ast.walk(node):
                name = getattr(inner, "id", "") or getattr(inner, "attr", "")
                if name in self._raises and name != node.name:
                    self._callers.setdefault(name, []).append(node.name)

    def below(self, node: ast.AST, function: str) -> Iterator[ErrorText]:
        """Yield the errors that are made in a part of the module, in a function or in none."""
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and (name := getattr(node.func, "id", "")) in self._codes and node.args:
            message = self._text(node.args[0])
            hints = [*node.args[1:2], *(word.value for word in node.keywords if word.arg == "hint")]
            if re.search(r"\w{3}", message):
                hint = self._text(hints[0]) if hints else ""
                yield ErrorText(self._room, message, self._cause(function, name), hint, self._codes[name])
        for child in ast.iter_child_nodes(node):
            yield from self.below(child, function)

    def _cause(self, function: str, name: str) -> str:
        """Return what is said of an error where it is raised, or else by the nearest who calls that."""
        asked = [function]
        for each in asked:
            if cause := _cause(self._raises.get(each, ""), name):
                return cause
            asked += [caller for caller in self._callers.get(each, ()) if caller not in asked]
        return (getattr(errors, name, None).__doc__ or "").partition("\n")[0]

    def _text(self, node: ast.expr) -> str:
        """Return what an expression says, as far as it is known before it runs."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self._text, node.values))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._text(node.left) + self._text(node.right)
        if isinstance(node, ast.IfExp):
            return " / ".join(dict.fromkeys((self._text(node.body), self._text(node.orelse))))
        if isinstance(node, ast.Name) and isinstance(value := self._constants.get(node.id), ast.Constant):
            return str(value.value)
        return _GAP


def _raises(function: ast.FunctionDef) -> str:
    """Return what a docstring says below ``Raises``."""
    return (ast.get_docstring(function) or "").partition("Raises:")[2]


def _cause(raises: str, name: str) -> str:
    """Return what a docstring says of an error, below ``Raises``."""
    named = r"^\s*(?:\w+, )*{}(?:, \w+)*: "
    pattern = named.format(name) + "(.*?)(?=" + named.format(r"\w+") + r"|\n\n|\Z)"
    entry = re.search(pattern, raises, re.MULTILINE | re.DOTALL)
    return " ".join(entry[1].split()) if entry else ""


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    plain = " ".join(text.split())
    for sign in "\\`*_[]|<>#{}":
        plain = plain.replace(sign, f"&#{ord(sign)};")
    return plain
