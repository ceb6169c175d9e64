# SPDX-License-Identifier: Apache-2.0
"""Standard streams of a process that acts as a board, or its TCP connection."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from utvm import drivers, errors
from utvm.base.process import peer, service
from utvm.firmware import Firmware
from utvm.session.transport import ChildProcess, TcpConnection, Transport, Wire


class Program:
    """A program as a :class:`utvm.session.transport.Transport`; a reset starts a new process."""

    def __init__(self, connection: drivers.Connection, firmware: Firmware) -> None:
        self._firmware = firmware
        self._log = connection.logs / f"{connection.board.name}.log"
        self._running = ExitStack()
        self._pipe: Transport | None = None

    def restart(self) -> None:
        self.close()
        self._pipe = self._running.enter_context(self._start_program())

    def read(self, timeout: float) -> bytes:
        return self._running_pipe().read(timeout)

    def write(self, data: bytes) -> None:
        self._running_pipe().write(data)

    def close(self) -> None:
        self._pipe = None
        self._running.close()

    def _running_pipe(self) -> Transport:
        if self._pipe is None:
            raise errors.TransportError(f"{self._firmware.board.name} is not running")
        return self._pipe

    @contextmanager
    def _start_program(self) -> Iterator[Transport]:
        name, program = self._firmware.board.name, self._firmware.elf
        if self._firmware.pipe == "tcp":
            ours, theirs = peer.tcp_pair()
            with (
                TcpConnection(ours) as stream,
                service.Service(name, [program], log=self._log, health="", stdin=theirs, error=errors.TransportError),
            ):
                yield stream
        else:
            with ChildProcess(name, [program], log=self._log) as child:
                yield child


@contextmanager
def open_wire(connection: drivers.Connection, firmware: Firmware) -> Iterator[Wire]:
    """Connect to the program; end it on leaving."""
    program = Program(connection, firmware)
    try:
        yield Wire(program, program.restart)
    finally:
        program.close()
