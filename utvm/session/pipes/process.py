# SPDX-License-Identifier: Apache-2.0
"""The streams of a process that is a board, or a TCP port on which it listens."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from utvm.base.process.service import Service
from utvm.drivers import Connection
from utvm.errors import TransportError
from utvm.firmware import Firmware
from utvm.session.pipes.wire import Wire
from utvm.session.tcp import TcpConnection
from utvm.session.transport import ChildProcess, Transport


class Program:
    """A program as a :class:`utvm.session.transport.Transport`; a reset of this board is a new process."""

    def __init__(self, bench: Connection, firmware: Firmware) -> None:
        self._firmware = firmware
        self._log = bench.logs / f"{bench.board.name}.log"
        self._running = ExitStack()
        self._pipe: Transport | None = None

    def restart(self) -> None:
        """End it, if it runs, and start it."""
        self.close()
        self._pipe = self._running.enter_context(self._started())

    def read(self, timeout: float) -> bytes:
        """Return what has arrived."""
        return self._now().read(timeout)

    def write(self, data: bytes) -> None:
        """Send all bytes."""
        self._now().write(data)

    def close(self) -> None:
        """End it. Safe to call again."""
        self._pipe = None
        self._running.close()

    def _now(self) -> Transport:
        """Return the way to the program that runs."""
        if self._pipe is None:
            raise TransportError(f"{self._firmware.board.name} is not running")
        return self._pipe

    @contextmanager
    def _started(self) -> Iterator[Transport]:
        name, program = self._firmware.board.name, self._firmware.elf
        if self._firmware.pipe == "tcp":
            health = r"listening on (?P<port>\d+)"
            with Service(name, [program], log=self._log, health=health, error=TransportError) as running:
                assert running.health_match
                with TcpConnection("127.0.0.1", int(running.health_match["port"])) as connection:
                    yield connection
        else:
            with ChildProcess(name, [program], log=self._log) as child:
                yield child


@contextmanager
def opened(bench: Connection, firmware: Firmware) -> Iterator[Wire]:
    """Take the program's own pipe; in the end, end it."""
    program = Program(bench, firmware)
    try:
        yield Wire(program, program.restart)
    finally:
        program.close()
