"""Keeps the run's one board: attaches it, notices that it went away, attaches it once more, lets go of it."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from utvm.attach import Bench, attach
from utvm.boards import Board, Kind, ProbeMatch, ProcessBoard
from utvm.compiler import Library
from utvm.errors import ProbeError, ProvisionError, ToolchainError, TransportError, UtvmError
from utvm.firmware import Firmware, build
from utvm.hil.results import BoardIdentity
from utvm.probe.choice import Wish, find_probe, match_of
from utvm.session import DeviceFault, HostDriven, Session
from utvm.session.rpc_board import RpcBoard, on_bench


class Keeper(Protocol):
    """The board of one run, whatever it is.

    Attributes:
        board: its data.
        identity: which one it is; before it was reached, which one was looked for.
        auto: whether nobody said which of several kinds to take.
        attached: how often it was attached.
    """

    attached: int

    @property
    def board(self) -> Board | ProcessBoard: ...

    @property
    def identity(self) -> BoardIdentity: ...

    @property
    def auto(self) -> bool: ...

    @property
    def driver(self) -> str:
        """What drives the chosen board, a key of :attr:`utvm.hil.results.Place.tools`."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need and the chosen board has."""

    def choose(self) -> None:
        """Decide which board, once; raises UtvmError where there is none."""

    def attach(self) -> str:
        """Put the chosen board on the bench and return one line that says what it is; raises UtvmError."""

    def fresh(self) -> Bench:
        """Return the board reset and halted; raises UtvmError."""

    def link(self, libraries: Sequence[Library]) -> Firmware:
        """Build what :meth:`session` takes; raises UtvmError."""

    def session(self, firmware: Firmware) -> Session:
        """Return a session on an image; raises UtvmError."""

    def serve(self, firmware: Firmware) -> contextlib.AbstractContextManager[RpcBoard]:
        """Put an image that answers RPC on the board; entering raises UtvmError."""

    def distrust(self) -> None:
        """Have the next test begin with a reset."""

    def release(self) -> None:
        """Let go of the board. Safe to call again."""

    def trouble_behind(self, error: BaseException) -> str:
        """Return what is wrong with the infrastructure, or an empty string."""


class BenchKeeper:
    """The board of one run, on the bench.

    Args:
        wish: ``auto`` takes a physical board if one is plugged in.
        serial: of the probe on USB to take, or an empty string.
        latency_us: microseconds that every command of a virtual probe takes.
        log_directory: where OpenOCD's, the virtual board's and QEMU's logs go.
    """

    def __init__(self, board: Board, wish: Wish, *, serial: str, latency_us: int, log_directory: Path) -> None:
        self.board = board
        self.auto = wish == "auto" and board.physical is not None and not serial
        self._wish = wish
        self.log_directory = log_directory
        self.attached = 0
        self._serial = serial
        self._latency_us = latency_us
        physical = wish == "physical" or bool(serial and wish == "auto")
        self._identity = BoardIdentity(board.spoken, "physical" if physical else "virtual", "", serial)
        self._match: ProbeMatch | None = None
        self._bench: Bench | None = None
        self._session: HostDriven | None = None
        self._stack = contextlib.ExitStack()

    @property
    def identity(self) -> BoardIdentity:
        """Which board it is; before it was reached, which one was looked for."""
        return self._identity

    @property
    def _kind(self) -> Kind:
        return "physical" if self._identity.kind == "physical" else "virtual"

    @property
    def driver(self) -> str:
        """OpenOCD, or the emulator that is the board."""
        emulated = self.board.virtual.emulator and not self.board.simulator
        return "qemu" if self._kind == "virtual" and emulated else "openocd"

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need and the chosen board has."""
        return self.board.capabilities_of(self._kind, self._match)

    @property
    def bench(self) -> Bench:
        """The board.

        Raises:
            ProbeError: it is not attached, or something that it needs has died.
        """
        if self._bench is None:
            raise ProbeError(f"{self.board.name} is not attached")
        self._bench.check()
        return self._bench

    def attach(self) -> str:
        """Put the chosen board on the bench and describe it; the second time it is the same board or none.

        Raises:
            UtvmError: as :func:`utvm.attach.attach`.
        """
        self.release()
        self.attached += 1
        bench = self._stack.enter_context(
            attach(
                self.board,
                self._kind,
                log_directory=self.log_directory / f"attached-{self.attached}",
                serial=self._serial,
                latency_us=self._latency_us,
            )
        )
        self._bench = bench
        self._identity = BoardIdentity(self.board.spoken, bench.kind, bench.probe, bench.serial)
        return bench.describe()

    def choose(self) -> None:
        """Decide between physical and virtual, once: a board that vanishes is not replaced by another.

        Raises:
            ConfigError: several boards are plugged in and none was named.
            ProbeError: the board that was asked for is not plugged in.
        """
        probe = find_probe(self.board, self._wish, self._serial)
        if probe is None:
            self._identity = BoardIdentity(self.board.spoken, "virtual", "", self.board.virtual_serial)
        else:
            self._serial = probe.serial
            self._match = match_of(self.board, probe)
            kind = "virtual" if probe.virtual else "physical"
            self._identity = BoardIdentity(self.board.spoken, kind, probe.kind, probe.serial)

    def fresh(self) -> Bench:
        """Return the board reset and halted, without breakpoints.

        Raises:
            UtvmError: it does not answer, or refuses.
        """
        bench = self.bench
        self._session = None
        bench.clear_breakpoints()
        bench.reset(halt=True)
        return bench

    def session(self, firmware: Firmware) -> HostDriven:
        """Return a session on an image, waiting for its first request.

        A board that already waits with that image is taken as it is: programming and resetting it for each of a
        hundred tests would take most of their time.

        Raises:
            UtvmError: as :class:`utvm.session.HostDriven`.
        """
        bench = self.bench
        running = self._session
        if running is not None and running.firmware.digest == firmware.digest and running.waiting:
            return running
        self._session = None
        bench.clear_breakpoints()
        # Left without __exit__: what takes the board next clears the breakpoints, as above.
        self._session = HostDriven(bench, firmware).__enter__()
        return self._session

    def link(self, libraries: Sequence[Library]) -> Firmware:
        """Build a host-driven image; raises as :func:`utvm.firmware.build`."""
        return build(self.board, libraries)

    def serve(self, firmware: Firmware) -> contextlib.AbstractContextManager[RpcBoard]:
        """Program an image that answers RPC on the console; entering raises as :func:`on_bench`."""
        return on_bench(self.fresh(), firmware)

    def distrust(self) -> None:
        """Have the next test begin with a reset, whatever the board seems to be doing."""
        self._session = None

    def release(self) -> None:
        """Let go of the board and end what it needed. Safe to call again."""
        self._bench = self._session = None
        self._stack.close()

    def trouble_behind(self, error: BaseException) -> str:
        """Tell infrastructure trouble from an answer of the board.

        A probe, a transport or a tool that broke is trouble; a fault that the device reported is an answer.
        Anything else, an assertion as well, is the test's own business as long as the board still answers: when
        OpenOCD has died under a test, how the test noticed does not matter.

        Returns:
            what is wrong with the infrastructure, or an empty string.
        """
        if isinstance(error, DeviceFault):
            return ""
        if self._bench is not None:
            try:
                # First: a probe that is gone, or an OpenOCD that died, is what all else comes from.
                self._bench.check()
            except UtvmError as cause:
                return str(cause)
        if isinstance(error, ProbeError | TransportError | ToolchainError | ProvisionError):
            return str(error)
        if self._bench is None:
            return ""
        try:
            self._bench.read_memory(self.board.region(self.board.layout.code).address, 4)
        except UtvmError as silence:
            return str(silence)
        return ""
