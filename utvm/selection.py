# SPDX-License-Identifier: Apache-2.0
"""Option records shared by commands and pytest: board, suites, reports, location; see :mod:`utvm.options`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from utvm.errors import ConfigError
from utvm.options import Parts, option, switches

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
