# SPDX-License-Identifier: Apache-2.0
"""Holds the board of a run: opens it, detects its loss, reopens it, releases it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from utvm import boards, compiler, errors, runtime
from utvm.base.log import log_into
from utvm.drivers import BoardIdentity, Connection, ReachableBoard, choose
from utvm.firmware import Firmware, build
from utvm.probe.virtual import read_clock, read_unmodelled
from utvm.selection import BoardSelection
from utvm.session.fault import DeviceFault
from utvm.session.host_driven import HostDriven
from utvm.session.rpc import RpcBoard, RpcSession, start_rpc
from utvm.session.running import Session


class BoardHolder:
    """The board of one run; ``say`` is called with progress messages.

    ``identity`` is the board in use or, before it is opened, the selection. ``auto`` is set if neither a kind nor
    a serial number was selected for a board that also exists as hardware.
    """

    def __init__(
        self,
        board: boards.Board,
        selection: BoardSelection,
        log_directory: Path,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.board = board
        self.auto = selection.kind == "auto" and board.physical is not None and not selection.serial
        self.log_directory = log_directory
        self.attach_count = 0
        physical = selection.kind == "physical" or bool(selection.serial and selection.kind == "auto")
        self.identity = BoardIdentity(board.full_name, "physical" if physical else "virtual", "", selection.serial)
        self._selection = selection
        self._say = say
        self._reachable: ReachableBoard | None = None
        self._connection: Connection | None = None
        self._image = ""
        self._session: Session | None = None
        self._opened, self._running = contextlib.ExitStack(), contextlib.ExitStack()

    def copy(self, log_directory: Path, say: Callable[[str], None]) -> "BoardHolder":
        """Return a holder of a further board, not yet opened, by the same selection."""
        return BoardHolder(self.board, self._selection, log_directory, say)

    @property
    def _require_reachable(self) -> ReachableBoard:
        if self._reachable is None:
            self.choose()
        assert self._reachable
        return self._reachable

    @property
    def driver(self) -> str:
        """The driver: see :attr:`utvm.drivers.ReachableBoard.driver`."""
        return self._require_reachable.driver

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the selected board; before selection, of its description."""
        return self._reachable.capabilities if self._reachable else self.board.capabilities

    @property
    def connection(self) -> Connection:
        """Connection to the board. Raises ProbeError if it is not attached or a process it needs has died."""
        if self._connection is None:
            raise errors.ProbeError(f"{self.board.name} is not attached")
        self._connection.check()
        return self._connection

    def choose(self) -> None:
        """Select the board. Later calls only accept the same one: a lost board is not replaced by another."""
        reachable = choose(self.board, self._selection)
        self._reachable = reachable
        self.identity = reachable.identity
        # A serial number names a probe on USB.
        self._selection = dataclasses.replace(
            self._selection,
            kind="auto" if reachable.kind == "process" else reachable.kind,
            serial=reachable.identity.serial if reachable.probe else self._selection.serial,
        )

    def attach(self) -> str:
        """Open the board and return its description. Later calls reopen the same board or fail."""
        self.release()
        self.attach_count += 1
        if self.attach_count > 1 or self._reachable is None:
            self.choose()
        logs = self.log_directory / f"attached-{self.attach_count}"
        connection = self._opened.enter_context(self._require_reachable.open(logs, self._say))
        self._connection = connection
        self.identity = BoardIdentity(self.board.full_name, connection.kind, connection.probe, connection.serial)
        return connection.describe()

    @property
    def console_tail(self) -> str:
        """Last output of the board's console; empty without a console, or if it is not ASCII text."""
        connection = self._connection  # Another thread may read this while the board is released.
        tail = connection.console.tail if connection and connection.console else b""
        return tail.decode().strip() if tail.isascii() and b"\0" not in tail else ""

    @property
    def unmodelled(self) -> dict[str, str]:
        """Peripherals without a model that the firmware of a virtual board accessed, and where."""
        return {name: place for folder in self._logs for name, place in read_unmodelled(folder).items()}

    @property
    def clock_hz(self) -> int | None:
        """Clock that the firmware of a virtual board has set last; None if it is not modelled."""
        return next((clock for folder in reversed(self._logs) if (clock := read_clock(folder))), None)

    @property
    def _logs(self) -> list[Path]:
        return sorted(self.log_directory.rglob("attached-*"))  # Those of further boards, too.

    def reset_board(self) -> Connection:
        """Reset and halt the board, without breakpoints, and return its connection."""
        self._end_session()
        connection = self.connection
        connection.clear_breakpoints()
        connection.reset(halt=True)
        return connection

    def link(self, libraries: Sequence[compiler.Library]) -> Firmware:
        """Build the firmware for :meth:`session`; raises as :func:`utvm.firmware.build`."""
        return build(self.board, libraries, executor_for(self.capabilities), able=self.capabilities)

    def session(self, firmware: Firmware) -> Session:
        """Return a session for a firmware, waiting for its first request.

        A session already waiting with this firmware is reused: flashing and resetting the board for each of a
        hundred tests would take most of their time.
        """
        connection = self.connection
        if self._session is not None and self._image == firmware.digest and self._session.waiting:
            return self._session
        self._end_session()
        self._session = self._running.enter_context(start_session(connection, firmware))
        self._image = firmware.digest
        return self._session

    def serve(
        self, libraries: Sequence[compiler.Library], pipe: str = ""
    ) -> contextlib.AbstractContextManager[RpcBoard]:
        """Serve libraries over RPC on the board; raises UtvmError, also on entering."""
        self._end_session()
        image = build(self.board, libraries, "rpc", pipe=pipe, able=self.capabilities)
        return start_rpc(self.connection, image)

    def force_reset(self) -> None:
        """Force a reset before the next session."""
        self._end_session()

    def release(self) -> None:
        """Close the board and end the processes it needed. Safe to call again."""
        self._end_session()
        self._connection = None
        self._opened.close()

    def _end_session(self) -> None:
        self._session = None
        # Ending the session fails if the board is lost; the next user detects that.
        with contextlib.suppress(errors.UtvmError):
            self._running.close()

    def board_failure(self, error: BaseException) -> str:
        """Return why the board is unusable after an error; empty if it still works.

        Probe and transport errors mean that it is lost; a fault reported by the device does not. After any other
        error, assertions included, the board is probed: when OpenOCD dies during a test, the error itself may be
        anything.
        """
        if isinstance(error, DeviceFault):
            return ""
        if self._connection is not None:
            try:
                # First: a dead probe or OpenOCD causes all other errors.
                self._connection.check()
            except errors.UtvmError as cause:
                return str(cause)
        if isinstance(error, errors.ProbeError | errors.TransportError):
            return str(error)
        if self._connection is None or not self._connection.has_debug_port:
            return ""
        try:
            self._connection.read_memory(self.board.region(self.board.layout.code).address, 4)
        except errors.UtvmError as cause:
            return str(cause)
        return ""


def executor_for(capabilities: frozenset[str]) -> runtime.Executor:
    """Executor for a board: its debug port, or RPC if it has none."""
    return "host_driven" if "debug port" in capabilities else "rpc"


def start_session(connection: Connection, firmware: Firmware) -> contextlib.AbstractContextManager[Session]:
    """Context manager that flashes a firmware and starts a session with its executor."""
    return HostDriven(connection, firmware) if firmware.pipe is None else _start_rpc_session(connection, firmware)


@contextlib.contextmanager
def _start_rpc_session(connection: Connection, firmware: Firmware) -> Iterator[Session]:
    with start_rpc(connection, firmware) as board, RpcSession(board, firmware.libraries) as session:
        yield session


@contextlib.contextmanager
def open_session(
    reachable: ReachableBoard, firmware: Firmware, logs: Path, say: Callable[[str], None]
) -> Iterator[Session]:
    """Context manager of a session on a newly opened board; ``say`` gets the board's description before flashing."""
    with log_into(logs), reachable.open(logs, say) as connection:
        say(connection.describe())
        with start_session(connection, firmware) as session:
            yield session
