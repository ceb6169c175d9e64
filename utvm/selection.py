# SPDX-License-Identifier: Apache-2.0
"""Options that are defined once, and the records of those shared by commands and pytest: board, suites, reports, place.

Related options are fields of a frozen dataclass, described by :func:`option` and :func:`switches`:

- :func:`parameters`, :func:`helps`, :func:`optional` and :func:`repeatable`: Invoke's options;
- :func:`add_to_pytest`: pytest's options;
- :func:`build_record`: the record, from values parsed by Invoke or pytest;
- :func:`words` and :func:`parts`: the same options as a command line, here or in another location.

A record read from a file, such as an entry of the nightly list, inherits the dataclass.
"""

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from utvm.errors import ConfigError

ChoiceT = TypeVar("ChoiceT")
Parts = tuple[str | Path, ...]


def option(
    default: Any,
    help: str,  # noqa: A002
    *,
    bare: Any = None,
    spelled: Callable[[str], Parts] | None = None,
    required: bool = False,
    **metadata: Any,
) -> Any:
    """Describe a field that is one option. A default of None means not given; a tuple default makes it repeatable.

    Args:
        help: text of ``--help``.
        required: must be given; its value may be given without the option's name.
        bare: value of the option without a value; None if a value is required.
        spelled: splits a value around its paths, which are translated for another location.
    """
    metadata |= {"help": help, "bare": bare, "spelled": spelled, "required": required}
    return dataclasses.field(default=default, metadata=metadata)


def switches(default: str, **helps: str) -> Any:
    """Describe a field with a fixed set of values; each except the default has a flag of its own."""
    return dataclasses.field(default=default, metadata={"switches": helps})


@dataclass(frozen=True)
class _Option:
    """One option of a command line; for a switch, ``sets`` is the value it gives its field."""

    name: str
    field: "dataclasses.Field[Any]"
    kind: type
    help: str
    sets: str | None = None

    @property
    def flag(self) -> str:
        return ("-" if len(self.name) == 1 else "--") + self.name.rstrip("_").replace("_", "-")

    @property
    def bare(self) -> Any:
        return self.field.metadata.get("bare")

    @property
    def required(self) -> bool:
        return bool(self.field.metadata.get("required"))

    @property
    def unset(self) -> Any:
        """Parsed value of an option that was not given."""
        if self.sets is not None:
            return False
        if self.bare is not None or self.kind is tuple:
            return None
        return "" if self.field.default is None else self.field.default

    def value(self, text: object) -> Any:
        """Convert a parsed value to the field's type."""
        if text in (self.unset, []):
            return self.field.default
        if text is True and self.bare is not None:
            return self.bare
        with ConfigError.on(ValueError, f"{self.flag} {text!r} is not a number", f"{self.flag}: {self.help}"):
            return self.kind(text)

    def spell(self, record: object) -> Iterator[Parts]:
        """Yield the option for a command line, in parts; nothing if its value is the default."""
        value = getattr(record, self.field.name)
        if value is True or (self.sets and value == self.sets):
            yield (self.flag,)
        elif not self.sets and value != self.field.default:
            split = self.field.metadata["spelled"] or (lambda item: (str(item),))
            for item in value if self.kind is tuple else (value,):
                yield (f"{self.flag}=", *split(item))


def parameters(choice: type) -> list[inspect.Parameter]:
    """Return the function parameters of the options, as Invoke reads them."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(item.name, kind, default=inspect.Parameter.empty if item.required else item.unset)
        for item in _options(choice)
    ]


def helps(choice: type) -> dict[str, str]:
    return {item.name: item.help for item in _options(choice)}


def optional(choice: type) -> list[str]:
    return [item.name for item in _options(choice) if item.bare is not None]


def repeatable(choice: type) -> list[str]:
    return [item.name for item in _options(choice) if item.kind is tuple]


def add_to_pytest(add: Callable[..., None], choice: type) -> None:
    """Add the options to pytest by ``addoption`` of a parser or group."""
    for item in _options(choice):
        text = item.help.replace("%", "%%")
        if item.unset is False:
            add(item.flag, dest=item.name, action="store_true", help=text)
        elif item.bare is not None:
            add(item.flag, dest=item.name, nargs="?", const=True, default=None, help=text)
        else:
            add(item.flag, dest=item.name, default=item.unset, help=text)


def build_record(choice: type[ChoiceT], entries: Mapping[str, object]) -> ChoiceT:
    """Build the record from values parsed by Invoke or pytest; extra values are ignored."""
    values: dict[str, Any] = {}
    switches: dict[str, str] = {}
    for item in _options(choice):
        if item.sets is None:
            values[item.field.name] = item.value(entries.get(item.name, item.unset))
        elif entries.get(item.name):
            if other := switches.get(item.field.name):
                raise ConfigError(f"{other} and {item.flag} exclude each other", "give one, or neither")
            switches[item.field.name] = item.flag
            values[item.field.name] = item.sets
    return choice(**values)


def narrow(choice: type[ChoiceT], record: object) -> ChoiceT:
    """Build the record from a larger one that has the same fields."""
    fields = dataclasses.fields(typing.cast(Any, choice))
    return choice(**{field.name: getattr(record, field.name) for field in fields})


def parts(record: object) -> tuple[Parts, ...]:
    """Return the options for a command line, each in parts; paths of this computer are ``Path``."""
    return tuple(part for item in _options(type(record)) for part in item.spell(record))


def words(record: object) -> list[str]:
    """Return the options for a command line on this computer."""
    return ["".join(map(str, word)) for word in parts(record)]


def _options(choice: type) -> Iterator[_Option]:
    hints = typing.get_type_hints(choice)
    for field in dataclasses.fields(typing.cast(Any, choice)):
        if texts := field.metadata.get("switches"):
            for name, text in texts.items():
                yield _Option(name, field, bool, text, sets=name)
        elif text := field.metadata.get("help"):
            yield _Option(field.name, field, _kind(hints[field.name]), text)


def _kind(hint: Any) -> type:
    if isinstance(hint, types.UnionType):
        (hint,) = (kind for kind in hint.__args__ if kind is not types.NoneType)
    return typing.cast(type, typing.get_origin(hint) or hint)


BoardKind = Literal["auto", "virtual", "physical"]

BOARD = "board name (see board.list) or path of a board folder; NAME:SETTING=VALUE selects a setting"


def split_name(name: str) -> tuple[str, str]:
    """Split a board's name or path from its settings, which keep their colon."""
    head, _, tail = name.rpartition(":")
    return (head, f":{tail}") if head and "=" in tail else (name, "")


def _board(name: str) -> Parts:
    head, settings = split_name(name)
    return (Path(head).resolve(), settings) if "/" in head else (name,)


def _folder(path: str) -> Parts:
    return (Path(path).resolve(),)


def _folders(paths: str) -> Parts:
    return tuple(part for path in paths.split(":") if path for part in (":", Path(path).resolve()))[1:]


@dataclass(frozen=True)
class BoardSelection:
    """The board of a command.

    Attributes:
        board: name or path, with settings; see :func:`utvm.boards.load`.
        kind: ``physical``, ``virtual``, or ``auto`` for a physical board if one is plugged in.
        serial: serial number of the probe; empty for any.
        wait: seconds to wait for a busy physical board.
        latency_us: microseconds per command of a virtual probe.
    """

    board: str = option("", BOARD, spelled=_board)
    kind: BoardKind = switches(
        "auto",
        physical="use only a board that is plugged in",
        virtual="use the virtual board, even if a physical one is plugged in",
    )
    serial: str = option("", "serial number or USB path of the probe, if several are plugged in (see board.detect)")
    wait: float = option(0.0, "wait for a busy physical board: this many seconds, or until it is free", bare=math.inf)
    latency_us: int = 0


@dataclass(frozen=True)
class BoardFolders:
    """Folders that are searched for boards, besides those of utvm and the project."""

    board_path: str = option(
        "", "folders with your own boards, separated by colons (default: UTVM_BOARD_PATH)", spelled=_folders
    )


@dataclass(frozen=True)
class ReportChoice:
    """The folder of the reports."""

    report_dir: str = option("", "folder of all reports (default: build/reports)", spelled=_folder)


@dataclass(frozen=True)
class SuiteChoice:
    """The suites and tests to run."""

    suite: str = option(
        "",
        "run only these suites, comma-separated: health, flash, memory, debug, counter, operators, int8, "
        "digits, cifar10, faults, ram, rpc, rpc_faults, standing_alone, vta; in your own project, its suites, "
        "or paths: FILE or FILE::TEST",
    )
    k: str = option("", "run only tests whose names match this expression, as pytest -k")
    m: str = option("", "run only tests whose marks match this expression, as pytest -m")
    last_failed: bool = option(False, "run only tests that failed in the last run on this board, if any did")
    jobs: int = option(
        0, "number of virtual boards that share the suites (default: one for each CPU core and GiB of free memory)"
    )
    reruns: int = option(0, "times to repeat a run without a verdict, at most 5; failed tests do not run again")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the suites; empty for all."""
        return tuple(filter(None, map(str.strip, self.suite.split(","))))

    @property
    def expressions(self) -> tuple[str, ...]:
        """Arguments for pytest that select tests."""
        filters = {"-k": self.k, "-m": self.m}
        words = [word for flag, value in filters.items() if value for word in (flag, value)]
        return (*words, *(["--last-failed"] if self.last_failed else []))


def as_file(name: str) -> Parts:
    """Mark a file of this computer for translation; other text is unchanged."""
    return (Path(name).resolve(),) if Path(name).is_file() else (name,)


def as_path(name: str) -> Parts:
    """Mark a file or folder of this computer for translation; other text is unchanged."""
    return (Path(name).resolve(),) if Path(name).is_dir() else as_file(name)


@dataclass(frozen=True)
class FarmChoice:
    """The farm and its board; ``in_`` is empty to run here."""

    in_: str = option("", "farm: run on a board of a farm (see farm.list); default: this computer")
    tags: str = option(
        "", "with --in farm: a board with these tags, NAME=VALUE, comma-separated; name=PLACE chooses one board"
    )

    def require_farm(self) -> None:
        """Refuse other locations, and tags without a farm."""
        if self.in_ != "farm" and (self.in_ or self.tags):
            problem = f"--in {self.in_}: this command runs here or in a farm" if self.in_ else "--tags is for a farm"
            raise ConfigError(problem, "use --in farm")


@dataclass(frozen=True)
class PlaceChoice(FarmChoice):
    """The location of a run; ``in_`` is empty to run here."""

    in_: str = option(
        "",
        "where to run: host (this computer), docker (a container of the locked environment), vm (its virtual "
        "machine) or farm (the host of a farm's board); default: here",
    )
    usb: str = option("", "with --in vm: plug a virtual board's probe, st-link or cmsis-dap, into the machine's USB")
