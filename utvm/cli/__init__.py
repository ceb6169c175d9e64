# SPDX-License-Identifier: Apache-2.0
"""The commands of ``./inv`` and their output; other packages do the work.

``commands/NAMESPACE.yaml`` describes commands, and names the functions of this package that do their work.
:func:`load_commands` makes Invoke tasks of them, which turn errors into a message, a hint and an exit code.
"""

import importlib
import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import yaml
from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from utvm import __version__, selection
from utvm.base.log import FILE, log_folder
from utvm.base.process.signals import was_interrupted
from utvm.base.text.quoting import encodable, printable_lines
from utvm.cli import choices, scarcity
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.paths import COMMAND, need_checkout, work
from utvm.selection import FarmChoice, build_record, helps, optional, parameters, repeatable

_LETTERS = {"board": "b", "input": "i", "output": "o"}
"""Short options, the same in every command."""


class Command(Task[Any]):
    """An Invoke task, as a file of ``commands`` describes it.

    Attributes:
        example: a command line, without the program.
        page: its guide in the documentation, if it has one.
        json: whether it has results for ``--json``.
        runs: ``MODULE:FUNCTION`` of this package with the command's options as parameters, imported when it runs.
        several: whether it takes several files, which are joined by commas.
        file_optional: whether its file may be omitted and is then empty.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        example: str,
        runs: str,
        page: str = "",
        json: bool = False,
        several: bool = False,
        file_optional: bool = False,
        **settings: Any,
    ) -> None:
        self.example = example
        self.page = page
        self.json = json
        self.runs = runs
        self.several = several
        self.file_optional = file_optional
        super().__init__(body, auto_shortflags=False, **settings)

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        settings = super().arg_opts(name, default, taken_names)
        if letter := _LETTERS.get(name):
            settings["names"] = [*settings["names"], letter]
        return settings

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        # Invoke removes the help texts that it returns; the manual needs them again.
        texts = self.help.copy()
        try:
            return super().get_arguments(ignore_unknown_help)
        finally:
            self.help = texts


def load_commands() -> Collection:
    """Return the commands of all files of ``commands``: a file is a namespace, ``root.yaml`` has those without."""
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    root = Collection()
    for path in sorted((Path(__file__).parent / "commands").glob("*.yaml")):
        namespace = root if path.stem == "root" else Collection(path.stem)
        for name, row in yaml.load(path.read_bytes(), loader).items():
            namespace.add_task(make_command(name if namespace is root else f"{path.stem}.{name}", **row), name)
        if namespace is not root:
            root.add_collection(namespace)
    return root


def make_command(
    name: str,
    *,
    help: str,  # noqa: A002  as in the file
    options: Mapping[str, Any] = MappingProxyType({}),
    in_checkout: bool = False,
    in_farm: bool = False,
    **settings: Any,
) -> Command:
    """Return a command whose function returns an exit code, or None for success.

    Args:
        help: its purpose, in one sentence.
        options: parameters of its function: a mapping for one option, with its ``help`` and either ``default``
            (its type is the option's; without it, an empty text) or ``required``; or the name of a dataclass
            with one option per field (see :mod:`utvm.selection`).
        in_checkout: whether the command works only in a checkout.
        in_farm: whether it drives one board and has ``--in farm``.
        settings: of :class:`Command`.
    """
    chosen = {key: _find_record(row) for key, row in options.items() if isinstance(row, str)}
    own = {key: row for key, row in options.items() if key not in chosen}
    farm_records = [FarmChoice] if in_farm else []
    groups = [
        (f"{key}: {chosen[key].__name__}", parameters(chosen[key]))
        if key in chosen
        else (f"the parameter {key}", [_parameter(key, row)])
        for key, row in options.items()
    ]
    groups += [(record.__name__, parameters(record)) for record in farm_records]
    clash = _find_clash(groups)

    def run(**values: Any) -> int | None:
        if clash:  # Only this command fails; the others still load.
            raise ProvisionError(f"the command {name} cannot run: {clash}", "rename or drop one of the two")
        if in_checkout:
            need_checkout(name)
        records: dict[str, Any] = {key: build_record(kind, values) for key, kind in chosen.items()}
        # A record may have the name of one of its fields.
        others = {key: values.get(key, row.get("default", "")) for key, row in own.items()}
        if in_farm and (farm := build_record(FarmChoice, values)) != FarmChoice():
            from utvm.cli.farm import run_in_farm

            return run_in_farm(name, farm, list(records.values()), others)
        module, _, function = command.runs.partition(":")
        code = getattr(importlib.import_module(f"{__name__}.{module}"), function)(**records, **others)
        return cast("int | None", code)

    records = [*chosen.values(), *farm_records]
    texts = {key: text for record in records for key, text in helps(record).items()}
    lists = [key for key, row in own.items() if isinstance(row.get("default"), list)]
    command = Command(
        _make_body(name, help, {field.name: field for _, fields in groups for field in fields}, run),
        help={**texts, **{key: row["help"] for key, row in own.items()}},
        optional=[key for record in records for key in optional(record)],
        iterable=[*lists, *(key for record in records for key in repeatable(record))],
        **settings,
    )
    return command


def _make_body(
    name: str, text: str, fields: Mapping[str, inspect.Parameter], run: Callable[..., int | None]
) -> Callable[..., None]:
    """Return the function that Invoke calls, which maps errors to exit codes.

    An error of the project becomes one message with its hint, without a traceback unless ``--debug`` is given.
    Ctrl-C and SIGTERM exit with the code for infrastructure: there is no verdict.
    """

    def body(_: Context, /, **values: Any) -> None:
        try:
            code = run(**values)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, ConfigError):
                error.hint = error.hint or f"{COMMAND} {name} --help"
            raise exit_for(error) from None
        if code:
            raise Exit(code=int(code))

    body.__doc__ = text
    body.__dict__["__signature__"] = inspect.Signature([_parameter("context", {}), *fields.values()])
    return body


def _find_record(name: str) -> type:
    return cast(type, getattr(choices, name, None) or getattr(selection, name))


def _parameter(name: str, row: Mapping[str, Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if row.get("required") else row.get("default", "")
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)


def _find_clash(groups: Sequence[tuple[str, Sequence[inspect.Parameter]]]) -> str:
    """Return an error for the first option that two records share; empty if none."""
    owners: dict[str, str] = {}
    for owner, fields in groups:
        for field in fields:
            if (first := owners.setdefault(field.name, owner)) != owner:
                return f"{first} and {owner} both have the option --{field.name.replace('_', '-')}"
    return ""


def exit_for(error: BaseException) -> Exit:
    """Return the message and exit code of a command that ended with an error."""
    infrastructure = int(ExitCode.INFRASTRUCTURE)
    if not isinstance(error, UtvmError) and not was_interrupted():
        error = scarcity.explain_scarcity(error) or error
    # After an interruption, an error of the user's input is a consequence, such as a compiler that was cut off.
    consequence = was_interrupted() and getattr(error, "exit_code", None) is ExitCode.USAGE
    if isinstance(error, UtvmError) and not consequence:
        if "--debug" in sys.argv or "-d" in sys.argv:
            traceback.print_exception(error)
        return Exit(
            printable_lines(f"error: {error}").replace("./inv ", f"{COMMAND} "),
            infrastructure if was_interrupted() else int(error.exit_code),
        )
    if isinstance(error, KeyboardInterrupt) or was_interrupted():
        return Exit("interrupted", infrastructure)
    # Python's own exit code, 1, would mean that a test failed.
    traceback.print_exception(error)
    return Exit(f"internal error, please report it{_write_log(error)}", infrastructure)


def _write_log(error: BaseException) -> str:
    """Write the traceback into a log and name it; empty if it cannot be written."""
    try:
        log = log_folder(work() / "logs" / f"internal-error-{os.getpid()}") / FILE
        text = "".join(traceback.format_exception(error))
        log.write_text(encodable(f"utvm {__version__}: {shlex.join(sys.argv)}\n{text}"), encoding="utf-8")
    except (OSError, UtvmError):
        return ""
    return f" with its log, {log}"
