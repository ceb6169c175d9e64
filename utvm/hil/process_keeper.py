"""Keeps the process that is a run's board: starts it, notices that it ended, ends it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from utvm.attach import Bench
from utvm.boards import ProcessBoard
from utvm.compiler import Library
from utvm.errors import ProbeError, ProvisionError, ToolchainError, TransportError
from utvm.firmware import Firmware, build
from utvm.hil.results import BoardIdentity
from utvm.session.rpc import RpcSession
from utvm.session.rpc_board import RpcBoard, as_process


class ProcessKeeper:
    """The board of one run, where that is a process on this computer; see :class:`utvm.hil.keeper.Keeper`.

    Args:
        log_directory: where the process's standard error goes.
    """

    driver = "gcc"

    def __init__(self, board: ProcessBoard, log_directory: Path) -> None:
        self.board = board
        self.log_directory = log_directory
        self.attached = 0
        self.auto = False
        self.identity = BoardIdentity(board.name, "process", "", "")
        self._session: RpcSession | None = None
        self._image = ""
        self._running = contextlib.ExitStack()

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need and a process has."""
        return self.board.capabilities

    def choose(self) -> None:
        """There is one of it, and it is always there."""

    def attach(self) -> str:
        """Begin anew: a process is started when an image is known."""
        self.release()
        self.attached += 1
        return f"{self.board.name}: {self.board.title}"

    def fresh(self) -> Bench:
        """A process has no debug port.

        Raises:
            ProbeError: always; suites that need one say so.
        """
        raise ProbeError(f"{self.board.name} has no debug port", 'mark the test with needs("debug port")')

    def link(self, libraries: Sequence[Library]) -> Firmware:
        """Build the program; raises as :func:`utvm.firmware.build`."""
        return build(self.board, libraries, "rpc")

    def session(self, firmware: Firmware) -> RpcSession:
        """Return a session on an image; the process that runs it already is taken as it is.

        Raises:
            UtvmError: as :class:`utvm.session.rpc.RpcSession`.
        """
        if self._session is None or self._image != firmware.digest:
            self.release()
            served = self._running.enter_context(self.serve(firmware))
            self._session = self._running.enter_context(RpcSession(served, firmware.libraries))
            self._image = firmware.digest
        return self._session

    def serve(self, firmware: Firmware) -> contextlib.AbstractContextManager[RpcBoard]:
        """Start a process that answers RPC."""
        return as_process(firmware, self.log_directory)

    def distrust(self) -> None:
        """Have the next test begin with a new process."""
        self.release()

    def release(self) -> None:
        """End the process. Safe to call again."""
        self._session = None
        # A process that has ended cannot be told that its session is over.
        with contextlib.suppress(TransportError):
            self._running.close()

    def trouble_behind(self, error: BaseException) -> str:
        """Return what is wrong with the infrastructure, or an empty string."""
        broken = isinstance(error, ProbeError | TransportError | ToolchainError | ProvisionError)
        return str(error) if broken else ""
