# SPDX-License-Identifier: Apache-2.0
"""The record of a driver and the boards that it returns."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from utvm import boards, errors, selection
from utvm.base.storage.config import Record, validate
from utvm.boards.parts import Identity, Kind
from utvm.drivers.connection import Connection
from utvm.probe import console, usb
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd
from utvm.probe.virtual import read_clock, read_unmodelled

_BlockT = TypeVar("_BlockT", bound=Record)

Say = Callable[[str], None]
"""Called with a message for the waiting user."""


@dataclass(frozen=True)
class Setup:
    """Context of a driver's processes: the stack that ends them, their log folder, a function for messages."""

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
    def full_name(self) -> str:
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

    board: boards.Board
    identity: BoardIdentity
    capabilities: frozenset[str]
    driver: str
    start: Callable[[Setup], Connection]
    probe: usb.Probe | None = None

    @property
    def kind(self) -> Kind:
        """``virtual``, ``physical`` or ``process``."""
        return cast(Kind, self.identity.kind)

    @contextlib.contextmanager
    def open(self, log_directory: Path, say: Say = lambda _: None) -> Iterator[Connection]:
        """Open the board for the length of a ``with`` block."""
        with contextlib.ExitStack() as stack:
            yield self.start(Setup(stack, log_directory, say))
        if (clock := read_clock(log_directory)) and clock != self.board.clock_hz:
            say(f"the core's clock is {clock / 1e6:g} MHz, not {self.board.clock_hz / 1e6:g} as in the board's file")
        if unmodelled := "; ".join(f"{name} {place}" for name, place in read_unmodelled(log_directory).items()):
            say(f"the firmware uses peripherals that the virtual board does not model: {unmodelled}")


@dataclass(frozen=True)
class Driver:
    """A method to connect to a board.

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
    supports: Callable[[boards.Board], bool]
    find: Callable[[boards.Board, selection.BoardSelection], ReachableBoard | None]
    describe: Callable[[boards.Board], tuple[str, str] | None]
    refusal: str
    has_latency: bool = False


def settings_of(board: boards.Board, name: str, record: type[_BlockT]) -> _BlockT:
    """Settings of a driver in a board's file."""
    return validate(record, board.drivers[name], f"{board.directory / 'board.yaml'}: drivers.{name}")


WORTH_MOVING_BY_BITBANG = 256 * 1024
"""See :class:`utvm.drivers.Connection`: OpenOCD transfers bit by bit, at some tens of KiB/s."""


def start_openocd(
    setup: Setup, board: boards.Board, commands: Sequence[str], config: str = "", within: Sequence[str] = ()
) -> tuple[OpenOcd, GdbClient]:
    """Start OpenOCD and connect to it.

    Args:
        commands: OpenOCD commands after its script.
        config: name of the script, if not the usual one.
        within: command prefix that runs it elsewhere.
    """
    script = board.directory / config if config else board.openocd_config
    openocd = setup.stack.enter_context(
        OpenOcd(script, commands=commands, log=setup.logs / "openocd.log", within=within)
    )
    gdb = setup.stack.enter_context(GdbClient(openocd.gdb, breakpoint_kind=board.cpu_row.breakpoint_kind))
    return openocd, gdb


def open_console(setup: Setup, board: boards.Board, line: str | socket.socket) -> console.Console:
    """Open a serial line by URL or socket; its speed is the board's, else the usual one."""
    baud, flow_control = (board.line.baud, board.line.flow_control) if board.line else (115200, "none")
    return setup.stack.enter_context(console.Console(line, baud, flow_control))


def check_identity(board: str, expected: Identity, gdb: GdbClient, serial: str) -> None:
    """Raise BoardError if the chip's identity register has another value."""
    try:
        value = int.from_bytes(gdb.read_memory(expected.address, 4), "little") & expected.mask
        mismatch = f"reads {value:#x}, not {expected.value:#x}"
    except errors.BoardError as error:
        value, mismatch = None, f"cannot be read: {error.message}"
    if value != expected.value:
        raise errors.BoardError(
            f"the board at probe {serial} is not {board}: {expected.register_name} {mismatch}",
            "name the right probe with --serial (./inv board.detect lists them), or use --virtual",
        )
