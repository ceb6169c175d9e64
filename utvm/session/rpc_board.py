"""Boards that answer RPC: a firmware with the RPC server on a bench, or a process in its place."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm.attach import Bench
from utvm.boards import ProcessBoard, Timeouts
from utvm.firmware import Firmware
from utvm.runtime import Pipe
from utvm.session.fault import DeviceFault, FaultRecord
from utvm.session.link import BoardFaulted, Link
from utvm.session.pipes import open_pipe
from utvm.session.transport import ChildProcess, Transport


@dataclass(frozen=True)
class RpcBoard:
    """A board that answers RPC.

    Attributes:
        description: one line that says what it is.
        connect: begins a session.
        restart: resets the board and begins a session.
    """

    description: str
    connect: Callable[[], Link]
    restart: Callable[[], Link]


class _FirmwareLink(Link):
    """A link whose faults are explained: the record's meaning and, with an image at hand, the source line."""

    def __init__(
        self,
        transport: Transport,
        timeouts: Timeouts,
        on_log: Callable[[str], None] | None,
        source_line: Callable[[int], str],
    ) -> None:
        super().__init__(transport, start_timeout=timeouts.start, resend_after=timeouts.resend, on_log=on_log)
        self._source_line = source_line

    def request(self, packet: bytes, timeout: float) -> bytes:
        try:
            return super().request(packet, timeout)
        except BoardFaulted as fault:
            record = FaultRecord.parse(fault.record_bytes)
            if record is None:
                raise
            line = self._source_line(record.pc) if record.pc is not None else ""
            raise DeviceFault(record, line) from fault


@contextlib.contextmanager
def on_bench(
    bench: Bench, firmware: Firmware, on_log: Callable[[str], None] | None = None, *, pipe: Pipe = "console"
) -> Iterator[RpcBoard]:
    """Program a firmware that was built for RPC, and let it answer.

    Args:
        on_log: receives what the board logs.
        pipe: what the firmware was built to talk through.

    Raises:
        BoardError: it cannot be programmed, or lacks what the pipe needs.
        ProbeError: the probe or OpenOCD failed.
    """
    with open_pipe(bench, firmware, pipe) as wire:
        bench.program(firmware)

        def connect() -> Link:
            link = _FirmwareLink(wire.transport, bench.board.timeouts, on_log, firmware.source_line)
            link.start()
            return link

        def restart() -> Link:
            wire.restart()
            return connect()

        wire.restart()
        yield RpcBoard(f"{bench.describe()}, RPC through {pipe}", connect, restart)


@contextlib.contextmanager
def as_process(
    board: ProcessBoard, program: Path, log_directory: Path, on_log: Callable[[str], None] | None = None
) -> Iterator[RpcBoard]:
    """Start a program that :func:`utvm.firmware.build_process` has made: it answers on its standard streams.

    Args:
        log_directory: where what it prints on standard error goes.
        on_log: receives what the board logs.

    Raises:
        TransportError: it cannot be started.
    """
    with contextlib.ExitStack() as running:

        def start() -> Link:
            running.close()
            child = ChildProcess(board.name, [program], log=log_directory / f"{board.name}.log")
            return _FirmwareLink(running.enter_context(child), board.timeouts, on_log, lambda _address: "")

        link = start()

        def connect() -> Link:
            link.start()
            return link

        def restart() -> Link:
            nonlocal link
            link = start()
            return connect()

        yield RpcBoard(f"{board.name}: {board.title}", connect, restart)
