# SPDX-License-Identifier: Apache-2.0
"""Opens boards of every kind.

:func:`choose` selects a board and its driver. :func:`attach` also opens it: it locks a physical board, starts the
processes that it needs (a virtual board and OpenOCD, QEMU, the console) and stops them at the end of its ``with``
block. Other packages use a board through :class:`Connection`. A driver is a module of ``builtin/`` or of an
installed package; no other code lists them.
"""

import contextlib
import functools
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from utvm import boards, errors, plugins, selection
from utvm.base.storage.config import Record, validate
from utvm.boards.parts import Identity, Kind
from utvm.drivers import builtin
from utvm.drivers.connection import Connection
from utvm.probe import console, usb, virtual
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd
from utvm.selection import BoardKind, BoardSelection

__all__ = ["BoardIdentity", "Connection", "Driver", "ReachableBoard", "Setup", "all_drivers", "attach"]
__all__ += ["capabilities_of", "choose", "drivers_for", "settings_of"]

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
        if (clock := virtual.read_clock(log_directory)) and clock != self.board.clock_hz:
            say(f"the core's clock is {clock / 1e6:g} MHz, not {self.board.clock_hz / 1e6:g} as in the board's file")
        if unmodelled := "; ".join(f"{name} {place}" for name, place in virtual.read_unmodelled(log_directory).items()):
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


GROUP = "utvm.drivers"
"""Entry point group of the drivers in other packages."""


@functools.cache
def all_drivers() -> tuple[Driver, ...]:
    """All drivers, in the order in which they are tried."""
    known = plugins.discover(builtin, "DRIVER", GROUP, Driver).values()
    return tuple(sorted(known, key=lambda driver: (driver.rank, driver.name)))


def drivers_for(board: boards.Board) -> tuple[Driver, ...]:
    """Drivers that support a board, or the one named by its setting ``driver``."""
    known = [driver.name for driver in all_drivers()]
    for name in board.drivers:
        if name not in known:
            raise errors.ConfigError(
                f"{board.directory / 'board.yaml'}: drivers.{name}: no such driver",
                f"choose from: {', '.join(known)}; is the package that provides it installed?",
            )
    supporting = tuple(driver for driver in all_drivers() if driver.supports(board))
    name = board.settings.get(boards.DRIVER, "")
    selection = tuple(driver for driver in supporting if name in ("", driver.name))
    if supporting and not selection:
        raise errors.ConfigError(
            f"{board.name}: driver cannot be {name!r}",
            f"choose from: {', '.join(driver.name for driver in supporting)}",
        )
    return selection


def choose(board: boards.Board, selection: BoardSelection) -> ReachableBoard:
    """Select a board and its driver; nothing is started."""
    drivers = drivers_for(board)
    for driver in drivers:
        reachable = driver.find(board, selection)
        if reachable is None:
            continue
        if selection.latency_us and not driver.has_latency:
            raise errors.ConfigError(f"{board.name} {driver.refusal.partition(':')[0]}: it has no probe with a latency")
        return reachable
    if not drivers:
        raise errors.ConfigError(f"no driver supports {board.name}: its file has no data for one")
    restricted = selection.kind != "auto" or selection.serial or selection.latency_us
    hint = "leave that out" if restricted else "plug it in; ./inv board.detect lists probes"
    raise errors.ConfigError(f"{board.name} {drivers[-1].refusal}", hint)


def capabilities_of(board: boards.Board) -> frozenset[str]:
    """Capabilities of the board that is selected by default."""
    return choose(board, BoardSelection()).capabilities


@contextlib.contextmanager
def attach(
    board: boards.Board,
    kind: BoardKind = "auto",
    *,
    log_directory: Path,
    serial: str = "",
    latency_us: int = 0,
    wait: float = 0.0,
    say: Say = lambda _: None,
) -> Iterator[Connection]:
    """Open a board for the length of a ``with`` block.

    Args:
        log_directory: folder for the logs of OpenOCD, the virtual board and emulators.
        kind, serial, latency_us, wait: see :class:`utvm.selection.BoardSelection`.
        say: called with a message before waiting.
    """
    selection = BoardSelection("", kind, serial, wait, latency_us=latency_us)
    with choose(board, selection).open(log_directory, say) as connection:
        yield connection
