# SPDX-License-Identifier: Apache-2.0
"""What a way to a board is, and what it finds."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from utvm.base.storage.config import Record, validate
from utvm.boards import Board, Kind
from utvm.drivers.connection import Connection
from utvm.probe.usb import Probe
from utvm.selection import BoardKind

_BlockT = TypeVar("_BlockT", bound=Record)

Say = Callable[[str], None]
"""Receives a line for whoever waits."""


@dataclass(frozen=True)
class DriverOptions:
    """What is wished for, where there are several of a board.

    Attributes:
        wish: ``auto`` takes a physical one if one is plugged in.
        serial: of its probe, where several are plugged in; a virtual board's on USB is taken only with it.
        latency_us: microseconds that every command of a virtual probe takes.
        wait: seconds to wait in line for a board that somebody else uses.
        waits: a virtual one is to count how long the core waits for flash, too, by a model of that.
    """

    wish: BoardKind = "auto"
    serial: str = ""
    latency_us: int = 0
    wait: float = 0.0
    waits: bool = False


@dataclass(frozen=True)
class Setup:
    """What a way gets to start what it needs.

    Attributes:
        stack: ends it.
        logs: folder for what it says.
        say: receives a line where there is something to wait for.
        gdb_port: the TCP port where its debug port is to be served; 0 for any.
    """

    stack: contextlib.ExitStack
    logs: Path
    say: Say
    gdb_port: int = 0


@dataclass(frozen=True)
class BoardIdentity:
    """Which board it was. ``kind`` is ``virtual``, ``physical`` or ``process``; ``probe`` says what drove it."""

    name: str
    kind: str
    probe: str
    serial: str

    @property
    def spoken(self) -> str:
        """The board as the first and the last line call it."""
        return f"{self.kind.upper()} {self.name}"


@dataclass(frozen=True)
class ReachableBoard:
    """A board that can be opened.

    Attributes:
        kind: what it is in the end.
        capabilities: what suites may need and it has.
        driver: the tool that drives it: a key of a report's ``tools``, or nothing that is listed there.
        start: puts it on the bench.
        probe: the probe on this computer's USB that drives it.
        serial: of its probe, there or not.
    """

    board: Board
    kind: Kind
    capabilities: frozenset[str]
    driver: str
    start: Callable[[Setup], Connection]
    probe: Probe | None = None
    serial: str = ""

    @property
    def identity(self) -> BoardIdentity:
        """Which board it is."""
        return BoardIdentity(self.board.full_name, self.kind, self.probe.kind if self.probe else "", self.serial)

    @contextlib.contextmanager
    def opened(self, log_directory: Path, say: Say = lambda _: None, gdb_port: int = 0) -> Iterator[Connection]:
        """Put it on the bench for the length of a ``with`` block.

        Args:
            log_directory: where what is started for it keeps its logs.
            gdb_port: the TCP port where its debug port is to be served; 0 for any.
        """
        with contextlib.ExitStack() as stack:
            yield self.start(Setup(stack, log_directory, say, gdb_port))


@dataclass(frozen=True)
class Driver:
    """A way to get a board onto the bench.

    Attributes:
        name: one word; what it needs to know of a board may stand below ``ways`` in its file, under this name.
        rank: where several can, the lowest goes first.
        serves: whether a board's file says what the way needs.
        find: returns what can be opened, or None where the way has nothing that is wished for.
        tell: a heading and what to say under it, for ``board.show``; nothing where there is nothing to say.
        refusal: what the board is, and what it is therefore not, where no way has what is wished for.
        slows: whether its probe can be told to be slow.
    """

    name: str
    rank: int
    serves: Callable[[Board], bool]
    find: Callable[[Board, DriverOptions], ReachableBoard | None]
    tell: Callable[[Board], tuple[str, str] | None]
    refusal: str
    slows: bool = False


def block_of(board: Board, name: str, record: type[_BlockT]) -> _BlockT:
    """Return what a board's file says for a way below ``ways``."""
    return validate(record, board.ways[name], f"{board.directory / 'board.yaml'}: ways.{name}")
