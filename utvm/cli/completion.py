# SPDX-License-Identifier: Apache-2.0
"""Completion of the command line for bash, zsh and fish: a script with all that there is, so that no key waits."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from invoke.parser.context import ParserContext

from utvm import boards
from utvm.base.text.quoting import fish
from utvm.base.text.templates import templates_of
from utvm.environment.location import Kind
from utvm.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class _Flag:
    """An option: ``values`` is what it may be, empty for a file or anything else."""

    name: str
    letter: str
    takes_value: bool
    values: str
    help: str


@dataclass(frozen=True)
class _Command:
    """A command: ``values`` is what its first word may be, empty for a file."""

    name: str
    help: str
    values: str
    flags: list[_Flag]

    @property
    def spelled(self) -> str:
        return " ".join(f"--{flag.name}" for flag in self.flags)


def script(shell: str, commands: Iterable[tuple[ParserContext, str]], core: ParserContext) -> str:
    """Return what a shell is to read.

    Args:
        commands: each with its summary.
        core: the options of every command.
    """
    if shell not in SHELLS:
        raise ConfigError(f"there is no completion for {shell!r}", f"it is there for {', '.join(SHELLS)}")
    board_names = " ".join(boards.names())
    values = {
        "board": board_names,
        "validate-against": board_names,
        "in": " ".join(get_args(Kind)),
        "executor": "aot graph",
    }
    return (
        templates_of("utvm.cli")
        .get_template(f"completion.{shell}")
        .render(
            commands=[
                _Command(
                    str(context.name),
                    summary,
                    board_names if context.name == "board.show" else "",
                    _flags(context, values),
                )
                for context, summary in commands
            ],
            core=_Command("", "", "", _flags(core, {})),
            values=values,
            fish=fish,
        )
    )


def _flags(context: ParserContext, values: dict[str, str]) -> list[_Flag]:
    return [
        _Flag(
            names[0], "".join(names[1:2]), argument.takes_value, values.get(names[0], ""), str(argument.help or "")
        )
        for argument in context.args.values()
        if len((names := [each.replace("_", "-") for each in argument.names])[0]) > 1
    ]
