# SPDX-License-Identifier: Apache-2.0
"""What ``./inv`` prints: the command line's words, kept out of the rooms that do the work.

Each namespace of commands is a module of this room, as the table in ``tasks.py`` says: it holds the tasks and what
they print. What would make it too long stands in modules whose names begin as its own. :func:`task` makes an
Invoke task of a function and turns the project's errors into one message, a hint and an exit code.

``./inv --list`` imports all of these modules: what takes long to import is imported where it is used.
"""

import dataclasses
import functools
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
from utvm.cli.scarcity import explained
from utvm.errors import ExitCode, ProvisionError, UtvmError
from utvm.paths import COMMAND, need_checkout, work
from utvm.selection import FarmChoice

FunctionT = TypeVar("FunctionT", bound=Callable[..., int | None])

_LETTERS = {"board": "b", "input": "i", "output": "o", "json": "j"}
"""The options that have a letter: wherever one stands, it means the same."""


class Command(Task[Any]):
    """An Invoke task that shows how it is used.

    Attributes:
        example: a command line, without the program.
        page: the page that says more.
        several: its file may be several, separated by commas.
        file_optional: its file may be left out and is empty then.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        *,
        example: str,
        page: str,
        several: bool = False,
        file_optional: bool = False,
        **settings: Any,
    ) -> None:
        self.example = example
        self.page = page
        self.several = several
        self.file_optional = file_optional
        settings["auto_shortflags"] = False
        super().__init__(body, **settings)

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        made = super().arg_opts(name, default, taken_names)
        if letter := _LETTERS.get(name):
            made["names"] = [*made["names"], letter]
        return made

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        # Invoke takes each text away as it hands it out; manuals are made after --help has looked.
        told = self.help.copy()
        try:
            return super().get_arguments(ignore_unknown_help)
        finally:
            self.help = told


def task(
    *,
    example: str,
    page: str,
    in_checkout: bool = False,
    in_farm: bool = False,
    help: Mapping[str, str] = MappingProxyType({}),  # noqa: A002  Invoke's word
    **settings: Any,
) -> Callable[[FunctionT], FunctionT]:
    """Make an Invoke task of a function that returns an exit code, or None for success.

    Takes Invoke's own settings, such as ``name`` and ``help``. An error of the project becomes one message with
    its hint, without a traceback unless ``--debug`` is given. Ctrl-C and SIGTERM end with the exit code for
    infrastructure: there is no verdict.

    A parameter whose type is a dataclass of options (see :mod:`utvm.options`) stands for all of them.

    Args:
        example: a command line that shows it, without the program.
        page: the page of the documentation that says more.
        in_checkout: whether the command works only in a checkout.
        in_farm: whether it has ``--in farm``: it drives one board, and can be run where a farm has that.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        choices = _choices(signature)
        owned = [
            (f"{name}: {choices[name].__name__}", options.parameters(choices[name]))
            if name in choices
            else (f"the parameter {name}", [parameter])
            for name, parameter in signature.parameters.items()
        ]
        added = [FarmChoice] if in_farm else []
        owned += [(record.__name__, options.parameters(record)) for record in added]
        read = [*choices.values(), *added]
        body = _ending_in_order(function, choices, in_checkout, in_farm)
        if clash := _find_clash(owned):
            # Only this command fails; the others still load.
            body = _failing(function, clash)
        context, *others = {parameter.name: parameter for _, fields in owned for parameter in fields}.values()
        body.__dict__["__signature__"] = signature.replace(
            parameters=[context, *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others)]
        )
        helps = {name: text for choice in read for name, text in options.helps(choice).items()}
        optional = [name for choice in read for name in options.optional(choice)]
        shown = {"example": example, "page": page, "help": {**helps, **help}}
        return cast(FunctionT, invoke_task(body, klass=Command, optional=optional, **shown, **settings))

    return decorate


def _ending_in_order(
    function: Callable[..., int | None],
    choices: Mapping[str, type],
    in_checkout: bool,
    in_farm: bool,
) -> Callable[..., None]:
    """Return what a task runs: the function, given its records of options, whose every end is one of a command."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def body(*args: Any, **kwargs: Any) -> None:
        try:
            if in_checkout:
                need_checkout(".".join(_called(function)))
            # A record may be called as one of its fields is.
            own = {name: value for name, value in kwargs.items() if name in parameters and name not in choices}
            records: dict[str, Any] = {name: options.build_record(each, kwargs) for name, each in choices.items()}
            if in_farm and (there := options.build_record(FarmChoice, kwargs)) != FarmChoice():
                from utvm.cli.farm_run import run_in_farm

                code: int | None = run_in_farm(".".join(_called(function)), there, list(records.values()), own)
            else:
                # A record may be called as one of its fields is.
                code = function(*args, **own | records)
        except (Exception, KeyboardInterrupt) as error:
            raise end_of(error) from None
        if code:
            raise Exit(code=int(code))

    return body


def _find_clash(owned: Sequence[tuple[str, Sequence[inspect.Parameter]]]) -> str:
    """Name the first option that two records of a command share, and both records; empty if there is none."""
    owners: dict[str, str] = {}
    for owner, fields in owned:
        for field in fields:
            if (first := owners.setdefault(field.name, owner)) != owner:
                return f"{first} and {owner} both have the option --{field.name.replace('_', '-')}"
    return ""


def _failing(function: Callable[..., int | None], clash: str) -> Callable[..., None]:
    @functools.wraps(function)
    def body(*_: Any, **__: Any) -> None:
        name = ".".join(_called(function))
        raise end_of(ProvisionError(f"the command {name} cannot run: {clash}", "rename or drop one of the two"))

    return body


def _choices(signature: inspect.Signature) -> dict[str, type]:
    """Return the dataclasses of options among a command's parameters."""
    return {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation)
    }


def _called(function: Callable[..., object]) -> tuple[str, ...]:
    module = function.__module__.rpartition(".")[2]
    name = function.__name__.rstrip("_").replace("_", "-")
    return (name,) if module == "root" else (module, name)


def end_of(error: BaseException) -> Exit:
    """Return how a command ends that ended with an error: what is printed, and the exit code."""
    infrastructure = int(ExitCode.INFRASTRUCTURE)
    if not isinstance(error, UtvmError) and not was_interrupted():
        error = explained(error) or error
    if isinstance(error, UtvmError):
        if "--debug" in sys.argv or "-d" in sys.argv:
            traceback.print_exception(error)
        # An interruption may be what is behind it.
        return Exit(
            printable_lines(f"error: {error}").replace("./inv ", f"{COMMAND} "),
            infrastructure if was_interrupted() else int(error.exit_code),
        )
    if isinstance(error, KeyboardInterrupt) or was_interrupted():
        return Exit("interrupted", infrastructure)
    # A fault of ours: Python's own exit code for it would say that a test failed.
    traceback.print_exception(error)
    return Exit(f"internal error, please report it{_logged(error)}", infrastructure)


def _logged(error: BaseException) -> str:
    """Keep in a log what a report of a fault of ours needs, and return where; nothing where that cannot be."""
    try:
        log = log_folder(work() / "logs" / f"internal-error-{os.getpid()}") / FILE
        told = "".join(traceback.format_exception(error))
        log.write_text(encodable(f"utvm {__version__}: {shlex.join(sys.argv)}\n{told}"), encoding="utf-8")
    except (OSError, UtvmError):
        return ""
    return f" with its log, {log}"
