# SPDX-License-Identifier: Apache-2.0
"""The commands of ``./inv`` and their output; other packages do the work.

Each namespace of commands is a module, listed in ``tasks.py``; longer commands have modules of their own, prefixed
with the namespace. :func:`task` turns a function into an Invoke task, and errors into a message, a hint and an
exit code.

``./inv --list`` imports the modules of all namespaces, so slow imports are inside functions.
"""

import dataclasses
import functools
import importlib
import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task
from invoke.tasks import task as invoke_task

from utvm import __version__, options
from utvm.base.log import FILE, log_folder
from utvm.base.process.signals import was_interrupted
from utvm.base.text.quoting import encodable, printable_lines
from utvm.cli.scarcity import explain_scarcity
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.paths import COMMAND, need_checkout, work
from utvm.selection import FarmChoice

FunctionT = TypeVar("FunctionT", bound=Callable[..., int | None])

_LETTERS = {"board": "b", "input": "i", "output": "o"}
"""Short options, the same in every command."""


class Command(Task[Any]):
    """An Invoke task with an example and a page of the documentation.

    Attributes:
        example: a command line, without the program.
        json: whether it has results for ``--json``.
        runs: see :func:`task`.
        several: whether it takes several files, which are joined by commas.
        file_optional: whether its file may be omitted and is then empty.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        example: str,
        page: str,
        json: bool = False,
        runs: str = "",
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
        settings["auto_shortflags"] = False
        super().__init__(body, **settings)

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


def task(
    *,
    example: str,
    page: str,
    runs: str = "",
    in_checkout: bool = False,
    in_farm: bool = False,
    iterable: Sequence[str] = (),
    help: Mapping[str, str] = MappingProxyType({}),  # noqa: A002  Invoke's word
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    """Turn a function that returns an exit code, or None for success, into an Invoke task.

    An error of the project becomes one message with its hint, without a traceback unless ``--debug`` is given.
    Ctrl-C and SIGTERM exit with the code for infrastructure: there is no verdict. A parameter whose type is a
    dataclass (see :mod:`utvm.options`) stands for one option per field.

    Args:
        example: a command line, without the program.
        page: the page of the documentation.
        runs: ``MODULE:FUNCTION`` of this package with the same parameters, imported when the command runs; the
            decorated function has a docstring only.
        in_checkout: whether the command works only in a checkout.
        in_farm: whether it drives one board and has ``--in farm``.
        settings: of :class:`Command` and Invoke.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        choices = _choices(signature)
        groups = [
            (f"{name}: {choices[name].__name__}", options.parameters(choices[name]))
            if name in choices
            else (f"the parameter {name}", [parameter])
            for name, parameter in signature.parameters.items()
        ]
        farm_records = [FarmChoice] if in_farm else []
        groups += [(record.__name__, options.parameters(record)) for record in farm_records]
        records = [*choices.values(), *farm_records]
        body = _with_exit_code(function, runs, choices, in_checkout, in_farm)
        if clash := _find_clash(groups):
            # Only this command fails; the others still load.
            body = _body_that_fails(function, clash)
        context, *others = {parameter.name: parameter for _, fields in groups for parameter in fields}.values()
        body.__dict__["__signature__"] = signature.replace(
            parameters=[context, *(other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others)]
        )
        helps = {name: text for choice in records for name, text in options.helps(choice).items()}
        settings["optional"] = [name for choice in records for name in options.optional(choice)]
        settings["iterable"] = [name for choice in records for name in options.repeatable(choice)] + list(iterable)
        extras = {"example": example, "page": page, "runs": runs, "help": {**helps, **help}}
        return cast(FunctionT, invoke_task(body, klass=Command, **extras, **settings))

    return decorate


def _with_exit_code(
    function: Callable[..., int | None], runs: str, choices: Mapping[str, type], in_checkout: bool, in_farm: bool
) -> Callable[..., None]:
    """Return the task body: call the function with its option records, and map errors to exit codes."""
    signature = inspect.signature(function)
    fields = signature.parameters.keys() - choices.keys()  # A record may have the name of one of its fields.
    module, _, implementation = runs.partition(":")

    @functools.wraps(function)
    def body(*args: Any, **kwargs: Any) -> None:
        try:
            if in_checkout:
                need_checkout(_command_name(function))
            own = {name: value for name, value in kwargs.items() if name in fields}
            records: dict[str, Any] = {name: options.build_record(kind, kwargs) for name, kind in choices.items()}
            if in_farm and (farm := options.build_record(FarmChoice, kwargs)) != FarmChoice():
                from utvm.cli.farm_run import run_in_farm

                code: int | None = run_in_farm(_command_name(function), farm, list(records.values()), own)
            elif runs:
                arguments = signature.bind(*args, **own | records)
                arguments.apply_defaults()
                _, *values = arguments.arguments.items()  # without the context
                code = getattr(importlib.import_module(f"{__name__}.{module}"), implementation)(**dict(values))
            else:
                code = function(*args, **own | records)
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, ConfigError):
                error.hint = error.hint or f"{COMMAND} {_command_name(function)} --help"
            raise exit_for(error) from None
        if code:
            raise Exit(code=int(code))

    return body


def _find_clash(groups: Sequence[tuple[str, Sequence[inspect.Parameter]]]) -> str:
    """Return an error for the first option that two records share; empty if none."""
    owners: dict[str, str] = {}
    for owner, fields in groups:
        for field in fields:
            if (first := owners.setdefault(field.name, owner)) != owner:
                return f"{first} and {owner} both have the option --{field.name.replace('_', '-')}"
    return ""


def _body_that_fails(function: Callable[..., int | None], clash: str) -> Callable[..., None]:
    @functools.wraps(function)
    def body(*_: Any, **__: Any) -> None:
        name = _command_name(function)
        raise exit_for(ProvisionError(f"the command {name} cannot run: {clash}", "rename or drop one of the two"))

    return body


def _choices(signature: inspect.Signature) -> dict[str, type]:
    return {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation)
    }


def _command_name(function: Callable[..., object]) -> str:
    module = function.__module__.rpartition(".")[2]
    name = function.__name__.rstrip("_").replace("_", "-")
    return name if module == "root" else f"{module}.{name}"


def exit_for(error: BaseException) -> Exit:
    """Return the message and exit code of a command that ended with an error."""
    infrastructure = int(ExitCode.INFRASTRUCTURE)
    if not isinstance(error, UtvmError) and not was_interrupted():
        error = explain_scarcity(error) or error
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
