# SPDX-License-Identifier: Apache-2.0
"""The reference page of all commands, from the texts of ``--help``."""

import sys
from dataclasses import dataclass
from typing import cast

from invoke.collection import Collection
from invoke.parser.context import ParserContext

from utvm.base.text.templates import templates_of
from utvm.cli import Command
from utvm.paths import DATA


@dataclass(frozen=True)
class Manual:
    """What there is to say of a command.

    Attributes:
        name: as it is called.
        text: what it does; the first sentence is the summary.
        files: what it takes without an option's name, as in ``FILE``.
        options: each as help writes it, and what it is for.
        example: a command line, without the program.
        page: of the documentation, that says more.
    """

    name: str
    text: str
    files: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    example: str
    page: str

    @property
    def summary(self) -> str:
        """The first sentence, on one line."""
        return " ".join(self.text.split("\n\n")[0].split())


def manuals() -> tuple[Manual, ...]:
    """Return the manual of each command, sorted by name."""
    known = namespace()
    return tuple(sorted((_manual(known, each) for each in known.to_contexts()), key=lambda one: one.name))


def namespace() -> Collection:
    """Return all commands, as ``tasks.py`` has them."""
    sys.path.insert(0, str(DATA))
    try:
        return cast(Collection, __import__("tasks").namespace)
    finally:
        del sys.path[0]


def page() -> str:
    """Return the page with all commands, in Markdown."""
    return templates_of("utvm.cli").get_template("commands.md.j2").render(manuals=manuals(), cell=_cell)


def _manual(known: Collection, context: ParserContext) -> Manual:
    name = str(context.name)
    command = cast(Command, known[name])
    return Manual(
        name,
        str(command.__doc__),
        tuple(str(each.name).upper() for each in context.positional_args),
        tuple((str(flags), " ".join(str(told or "").split())) for flags, told in context.help_tuples()),
        command.example,
        command.page,
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
