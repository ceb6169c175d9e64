# SPDX-License-Identifier: Apache-2.0
"""The commands as a page and as man pages, of the very text that ``--help`` prints."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from invoke.collection import Collection
from invoke.parser.context import ParserContext

from utvm.base.storage.files import write_whole
from utvm.base.text.templates import templates_of
from utvm.cli import Command
from utvm.errors import ConfigError
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


def write_man(folder: Path) -> int:
    """Write a man page for the program and one for each command; return how many."""
    known = manuals()
    template = templates_of("utvm.cli").get_template("manual.1.j2")
    texts = {"utvm": templates_of("utvm.cli").get_template("utvm.1.j2").render(manuals=known, roff=_roff)}
    texts |= {f"utvm-{each.name.replace('.', '-')}": template.render(manual=each, roff=_roff) for each in known}
    try:
        (folder / "man1").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {error.strerror}", "choose another folder") from error
    for name, text in texts.items():
        write_whole(folder / "man1" / f"{name}.1", text.encode())
    return len(texts)


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


def _roff(text: str) -> str:
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in plain.splitlines())
