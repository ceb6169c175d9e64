# SPDX-License-Identifier: Apache-2.0
"""Keeps a run's one board: opens it, notices that it went away, opens it once more, lets go of it."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from utvm.boards import Board
from utvm.compiler import Library
from utvm.drivers import BoardIdentity, Connection, DriverOptions, ReachableBoard, choose
from utvm.errors import ProbeError, TransportError, UtvmError
from utvm.firmware import Firmware, build
from utvm.session.fault import DeviceFault
from utvm.session.open_session import executor_for, session_on
from utvm.session.rpc_board import RpcBoard, on_bench
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
        self, board: Board, asked: DriverOptions, log_directory: Path, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.board = board
        self.auto = asked.wish == "auto" and board.physical is not None and not asked.serial
        self.log_directory = log_directory
        self.attached = 0
        physical = asked.wish == "physical" or bool(asked.serial and asked.wish == "auto")
        self.identity = BoardIdentity(board.full_name, "physical" if physical else "virtual", "", asked.serial)
        self._asked = asked
        self._say = say
        self._chosen: ReachableBoard | None = None
        self._bench: Connection | None = None
        self._image = ""
        self._session: Session | None = None
        self._opened, self._running = contextlib.ExitStack(), contextlib.ExitStack()

    @property
    def _found(self) -> ReachableBoard:
        if self._chosen is None:
            self.choose()
        assert self._chosen
        return self._chosen

    @property
    def driver(self) -> str:
        """What drives the chosen board: see :attr:`utvm.drivers.Found.driver`."""
        return self._found.driver

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need and the chosen board has; what its file says where there is none to choose."""
        return self._chosen.capabilities if self._chosen else self.board.capabilities

    @property
    def bench(self) -> Connection:
        """The board."""
        if self._bench is None:
            raise ProbeError(f"{self.board.name} is not attached")
        self._bench.check()
        return self._bench

    def choose(self) -> None:
        """Decide which one it is, once: a board that vanishes is not replaced by another."""
        found = choose(self.board, self._asked)
        self._chosen = found
        self.identity = found.identity
        # A serial number names a probe on USB.
        self._asked = dataclasses.replace(
            self._asked,
            wish="auto" if found.kind == "process" else found.kind,
            serial=found.serial if found.probe else self._asked.serial,
        )

    def attach(self) -> str:
        """Put the chosen board on the bench and describe it; the second time it is the same board or none."""
        self.release()
        self.attached += 1
        if self.attached > 1 or self._chosen is None:
            self.choose()
        logs = self.log_directory / f"attached-{self.attached}"
        bench = self._opened.enter_context(self._found.opened(logs, self._say))
        self._bench = bench
        self.identity = BoardIdentity(self.board.full_name, bench.kind, bench.probe, bench.serial)
        return bench.describe()

    def fresh(self) -> Connection:
        """Return the board reset and halted, without breakpoints."""
        self._end_session()
        bench = self.bench
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
        bench = self.bench
        if self._session is not None and self._image == firmware.digest and self._session.waiting:
            return self._session
        self._end_session()
        self._session = self._running.enter_context(session_on(bench, firmware))
        self._image = firmware.digest
        return self._session

    def serve(self, libraries: Sequence[Library], pipe: str = "") -> contextlib.AbstractContextManager[RpcBoard]:
        """Put libraries behind the RPC server on the board; raises UtvmError, also on entering."""
        self._end_session()
        image = build(self.board, libraries, "rpc", pipe=pipe, able=self.capabilities)
        return on_bench(self.bench, image)

    def distrust(self) -> None:
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

    def trouble_behind(self, error: BaseException) -> str:
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
