# SPDX-License-Identifier: Apache-2.0
"""What is asked of a run: which board, where boards of one's own are, where reports go.

Each is an option of a command, and more besides: see :mod:`utvm.options`.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from utvm.options import Parts, option, switches

BoardKind = Literal["auto", "virtual", "physical"]

BOARD = "name of a board (see board.list) or path of its folder; NAME:SETTING=VALUE chooses (see board.show)"


def split_name(name: str) -> tuple[str, str]:
    """Take what names a board apart: a name or a path, and the settings behind it with their colon."""
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
    """Which board is meant, and which one of those there are.

    Attributes:
        kind: one that is plugged in, the virtual one, or what there is.
        serial: of the probe; empty where any will do.
        wait: seconds to wait in line for a physical one that somebody else uses.
    """

    board: str = option("", BOARD, spelled=_board)
    kind: BoardKind = switches(
        "auto",
        physical="insist on a board that is plugged in",
        virtual="use the virtual board even if a physical one is plugged in",
    )
    serial: str = option("", "serial number of the probe, where several are plugged in (see board.detect)")
    wait: float = option(
        0.0,
        "wait in line for a physical board that is busy: for so many seconds, or until it is free",
        bare=math.inf,
    )


@dataclass(frozen=True)
class BoardFolders:
    """Where boards are looked for that are not the project's."""

    board_path: str = option(
        "",
        "folders with boards of your own, with colons between them (default: the environment's UTVM_BOARD_PATH)",
        spelled=_folders,
    )


@dataclass(frozen=True)
class ReportChoice:
    """Where reports are written."""

    report_dir: str = option("", "folder of all reports (default: build/reports)", spelled=_folder)


@dataclass(frozen=True)
class SuiteChoice:
    """Which suites are run."""

    suite: str = option(
        "",
        "only these suites, comma-separated: health, flash, memory, debug, counter, operators, int8, "
        "digits, cifar10, faults, ram, rpc, rpc_faults, standing_alone, vta; in a project of your own, its names, "
        "or paths: FILE or FILE::TEST",
    )
    k: str = option("", "only tests whose names fit this expression, as pytest's -k")
    m: str = option("", "only tests whose marks fit this expression, as pytest's -m")
    last_failed: bool = option(False, "only tests that failed the last time on this board, if any did")

    @property
    def names(self) -> tuple[str, ...]:
        """Their names; none where all are meant."""
        return tuple(filter(None, map(str.strip, self.suite.split(","))))

    @property
    def expressions(self) -> tuple[str, ...]:
        """The words by which pytest chooses among their tests."""
        words = (*(("-k", self.k) if self.k else ()), *(("-m", self.m) if self.m else ()))
        return (*words, "--last-failed") if self.last_failed else words


def as_file(name: str) -> Parts:
    """Take a file's name for what another place calls it; what is no file of this computer stays as it is."""
    return (Path(name).resolve(),) if Path(name).is_file() else (name,)


def as_path(name: str) -> Parts:
    """As :func:`as_file`, of a file or a folder."""
    return (Path(name).resolve(),) if Path(name).is_dir() else as_file(name)


@dataclass(frozen=True)
class FarmChoice:
    """Which board of which farm, for commands that can be given to one; ``in_`` is empty for here."""

    in_: str = option("", "farm: run where a board of a farm is (see farm.list); default: here")
    farm: str = option(
        "", "with --in farm: HOST:PORT of its coordinator (default: LG_COORDINATOR, else 127.0.0.1:20408)"
    )
    place: str = option("", "with --in farm: this board, by the name that farm.list shows")
    tags: str = option("", "with --in farm: a board with these tags: NAME=VALUE, comma-separated")


@dataclass(frozen=True)
class PlaceChoice(FarmChoice):
    """Where a run is made; ``in_`` is empty for here."""

    in_: str = option(
        "",
        "where to run: host, this computer as it is; docker, a container of the locked environment (see "
        "docker.build); vm, its virtual machine (see vm.box); farm, where a board of a farm is (see farm.list); "
        "default: here",
    )
    usb: str = option(
        "",
        "with --in vm: st-link or cmsis-dap, the probe of a virtual board that stays on this computer, "
        "plugged into the machine's USB",
    )
