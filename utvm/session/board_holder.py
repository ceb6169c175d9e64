# SPDX-License-Identifier: Apache-2.0
"""Holds the board of a run: opens it, detects its loss, opens it again, releases it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from utvm.base.log import log_into
from utvm.boards import Board
from utvm.compiler import Library
from utvm.drivers import BoardIdentity, Connection, ReachableBoard, choose
from utvm.errors import ProbeError, TransportError, UtvmError
from utvm.firmware import Firmware, build
from utvm.runtime import Executor
from utvm.selection import BoardSelection
from utvm.session.fault import DeviceFault
from utvm.session.host_driven import HostDriven
from utvm.session.rpc import RpcBoard, RpcSession, start_rpc
from utvm.session.running import Session


class BoardHolder:
    """The board of one run, whatever it is.

    Args:
        log_directory: where the logs go of what is started for it.
        say: receives a line where there is something to wait for.

    Attributes:
        board: its data.
        identity: which one it is; before it was reached, which one was looked for.
        auto: whether nobody said which of several kinds to take.
        attached: how often it was opened.
    """

    def __init__(
        self,
        board: Board,
        wanted: BoardSelection,
        log_directory: Path,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.board = board
        self.auto = wanted.kind == "auto" and board.physical is not None and not wanted.serial
        self.log_directory = log_directory
        self.attach_count = 0
        physical = wanted.kind == "physical" or bool(wanted.serial and wanted.kind == "auto")
        self.identity = BoardIdentity(board.full_name, "physical" if physical else "virtual", "", wanted.serial)
        self._wanted = wanted
        self._say = say
        self._chosen: ReachableBoard | None = None
        self._bench: Connection | None = None
        self._image = ""
        self._session: Session | None = None
        self._opened, self._running = contextlib.ExitStack(), contextlib.ExitStack()

    @property
    def _selected(self) -> ReachableBoard:
        if self._chosen is None:
            self.choose()
        assert self._chosen
        return self._chosen

    @property
    def driver(self) -> str:
        """The tool that drives the board: see :attr:`utvm.drivers.ReachableBoard.driver`."""
        return self._selected.driver

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the selected board; before that, of its file."""
        return self._chosen.capabilities if self._chosen else self.board.capabilities

    @property
    def connection(self) -> Connection:
        """The board."""
        if self._bench is None:
            raise ProbeError(f"{self.board.name} is not attached")
        self._bench.check()
        return self._bench

    def choose(self) -> None:
        """Decide which one it is, once: a board that vanishes is not replaced by another."""
        found = choose(self.board, self._wanted)
        self._chosen = found
        self.identity = found.identity
        # A serial number names a probe on USB.
        self._wanted = dataclasses.replace(
            self._wanted,
            kind="auto" if found.kind == "process" else found.kind,
            serial=found.identity.serial if found.probe else self._wanted.serial,
        )

    def attach(self) -> str:
        """Put the chosen board on the bench and describe it; the second time it is the same board or none."""
        self.release()
        self.attach_count += 1
        if self.attach_count > 1 or self._chosen is None:
            self.choose()
        logs = self.log_directory / f"attached-{self.attach_count}"
        bench = self._opened.enter_context(self._selected.open(logs, self._say))
        self._bench = bench
        self.identity = BoardIdentity(self.board.full_name, bench.kind, bench.probe, bench.serial)
        return bench.describe()

    def reset_board(self) -> Connection:
        """Return the board reset and halted, without breakpoints."""
        self._end_session()
        bench = self.connection
        bench.clear_breakpoints()
        bench.reset(halt=True)
        return bench

    def link(self, libraries: Sequence[Library]) -> Firmware:
        """Build what :meth:`session` takes; raises as :func:`utvm.firmware.build`."""
        return build(self.board, libraries, executor_for(self.capabilities), able=self.capabilities)

    def session(self, firmware: Firmware) -> Session:
        """Return a session on an image, waiting for its first request.

        A board that already waits with that image is taken as it is: programming and resetting it for each of a
        hundred tests would take most of their time.
        """
        bench = self.connection
        if self._session is not None and self._image == firmware.digest and self._session.waiting:
            return self._session
        self._end_session()
        self._session = self._running.enter_context(start_session(bench, firmware))
        self._image = firmware.digest
        return self._session

    def serve(self, libraries: Sequence[Library], pipe: str = "") -> contextlib.AbstractContextManager[RpcBoard]:
        """Put libraries behind the RPC server on the board; raises UtvmError, also on entering."""
        self._end_session()
        image = build(self.board, libraries, "rpc", pipe=pipe, able=self.capabilities)
        return start_rpc(self.connection, image)

    def force_reset(self) -> None:
        """Have the next test begin with a reset, whatever the board seems to be doing."""
        self._end_session()

    def release(self) -> None:
        """Let go of the board and end what it needed. Safe to call again."""
        self._end_session()
        self._bench = None
        self._opened.close()

    def _end_session(self) -> None:
        self._session = None
        # A board that is gone cannot be told that its session is over; whoever takes it next finds out.
        with contextlib.suppress(UtvmError):
            self._running.close()

    def board_failure(self, error: BaseException) -> str:
        """Tell trouble with the board from an answer of it.

        A probe or a transport that broke is trouble; a fault that the device reported is an answer. Anything else,
        an assertion as well, is of no concern here as long as the board still answers: when OpenOCD has died under
        a test, how the test noticed does not matter.

        Returns:
            why the board cannot be used any more, or an empty string.
        """
        if isinstance(error, DeviceFault):
            return ""
        if self._bench is not None:
            try:
                # First: a probe that is gone, or an OpenOCD that died, is what all else comes from.
                self._bench.check()
            except UtvmError as cause:
                return str(cause)
        if isinstance(error, ProbeError | TransportError):
            return str(error)
        if self._bench is None or not self._bench.has_debug_port:
            return ""
        try:
            self._bench.read_memory(self.board.region(self.board.layout.code).address, 4)
        except UtvmError as silence:
            return str(silence)
        return ""


def executor_for(capabilities: frozenset[str]) -> Executor:
    """Executor for a board: its debug port, or RPC if it has none."""
    return "host_driven" if "debug port" in capabilities else "rpc"


def start_session(connection: Connection, firmware: Firmware) -> contextlib.AbstractContextManager[Session]:
    """Context manager that programs a firmware and starts a session by its executor."""
    return HostDriven(connection, firmware) if firmware.pipe is None else _start_rpc_session(connection, firmware)


@contextlib.contextmanager
def _start_rpc_session(connection: Connection, firmware: Firmware) -> Iterator[Session]:
    with start_rpc(connection, firmware) as board, RpcSession(board, firmware.libraries) as session:
        yield session


@contextlib.contextmanager
def open_session(
    found: ReachableBoard, firmware: Firmware, logs: Path, say: Callable[[str], None]
) -> Iterator[Session]:
    """Open a board and a session on it, for the length of a ``with`` block.

    Args:
        say: receives lines for whoever waits: what the board is, before it is programmed.
    """
    with log_into(logs), found.open(logs, say) as connection:
        say(connection.describe())
        with start_session(connection, firmware) as session:
            yield session
