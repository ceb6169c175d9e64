# SPDX-License-Identifier: Apache-2.0
"""The record of a driver, and the boards that it finds."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from utvm.base.storage.config import Record, validate
from utvm.boards import Board, Kind
from utvm.drivers.connection import Connection
from utvm.probe.usb import Probe
from utvm.selection import BoardSelection

_BlockT = TypeVar("_BlockT", bound=Record)

Say = Callable[[str], None]
"""Receives a line for whoever waits."""


@dataclass(frozen=True)
class Setup:
    """The context in which a driver starts its processes.

    Attributes:
        stack: stops them.
        logs: folder of their log files.
        say: receives a line when the user has to wait.
    """

    stack: contextlib.ExitStack
    logs: Path
    say: Say


@dataclass(frozen=True)
class BoardIdentity:
    """The board of a result. ``kind`` is ``virtual``, ``physical`` or ``process``."""

    name: str
    kind: str
    probe: str = ""
    serial: str = ""

    @property
    def spoken(self) -> str:
        """Kind and name, as the first and the last line print them."""
        return f"{self.kind.upper()} {self.name}"


@dataclass(frozen=True)
class ReachableBoard:
    """A board that can be opened.

    Attributes:
        capabilities: features that suites may require.
        driver: the tool that drives it: a key of a report's ``tools``, or a name not in it.
        start: opens it.
        probe: the probe on this computer's USB that drives it.
    """

    board: Board
    identity: BoardIdentity
    capabilities: frozenset[str]
    driver: str
    start: Callable[[Setup], Connection]
    probe: Probe | None = None

    @property
    def kind(self) -> Kind:
        """``virtual``, ``physical`` or ``process``."""
        return cast(Kind, self.identity.kind)

    @contextlib.contextmanager
    def open(self, log_directory: Path, say: Say = lambda _: None) -> Iterator[Connection]:
        """Open the board for the length of a ``with`` block."""
        with contextlib.ExitStack() as stack:
            yield self.start(Setup(stack, log_directory, say))


@dataclass(frozen=True)
class Driver:
    """A way to connect to a board.

    Attributes:
        name: one word; the key of its settings under ``drivers`` in a board's file.
        rank: drivers are tried in ascending order.
        supports: True if a board's file has the data that the driver needs.
        find: returns the board to open, or None if the driver has none that matches the selection.
        describe: a heading and a text for ``board.show``, or None.
        refusal: predicate of the error message if no driver has a match.
        has_latency: True if its probe can simulate latency.
    """

    name: str
    rank: int
    supports: Callable[[Board], bool]
    find: Callable[[Board, BoardSelection], ReachableBoard | None]
    describe: Callable[[Board], tuple[str, str] | None]
    refusal: str
    has_latency: bool = False


def settings_of(board: Board, name: str, record: type[_BlockT]) -> _BlockT:
    """Settings of a driver in a board's file."""
    return validate(record, board.drivers[name], f"{board.directory / 'board.yaml'}: drivers.{name}")
