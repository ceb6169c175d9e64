# SPDX-License-Identifier: Apache-2.0
"""What a way to a board is, and what it finds."""

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
    """What a way gets to start what it needs.

    Attributes:
        stack: ends it.
        logs: folder for what it says.
        say: receives a line where there is something to wait for.
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
        capabilities: what suites may need and it has.
        driver: the tool that drives it: a key of a report's ``tools``, or nothing that is listed there.
        start: connects to it.
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
    def opened(self, log_directory: Path, say: Say = lambda _: None) -> Iterator[Connection]:
        """Put it on the bench for the length of a ``with`` block.

        Args:
            log_directory: where what is started for it keeps its logs.
        """
        with contextlib.ExitStack() as stack:
            yield self.start(Setup(stack, log_directory, say))


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
    find: Callable[[Board, BoardSelection], ReachableBoard | None]
    tell: Callable[[Board], tuple[str, str] | None]
    refusal: str
    slows: bool = False


def block_of(board: Board, name: str, record: type[_BlockT]) -> _BlockT:
    """Return what a board's file says for a way below ``ways``."""
    return validate(record, board.ways[name], f"{board.directory / 'board.yaml'}: ways.{name}")
