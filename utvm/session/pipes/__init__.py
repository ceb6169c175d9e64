# SPDX-License-Identifier: Apache-2.0
"""Host side of each RPC byte stream, here a program's; the board's is ``utvm/runtime/ARCHITECTURE/rpc/PIPE/pipe.c``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from utvm import drivers, errors, runtime
from utvm.base.process import Service, peer
from utvm.firmware import Firmware
from utvm.session.pipes import rtt, semihosting
from utvm.session.transport import ChildProcess, TcpConnection, Transport, Wire


class _Program:
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
                Service(name, [program], log=self._log, health="", stdin=theirs, error=errors.TransportError),
            ):
                yield stream
        else:
            with ChildProcess(name, [program], log=self._log) as child:
                yield child


@contextmanager
def _open_program(connection: drivers.Connection, firmware: Firmware) -> Iterator[Wire]:
    """Connect to the program; end it on leaving."""
    program = _Program(connection, firmware)
    try:
        yield Wire(program, program.restart)
    finally:
        program.close()


@contextmanager
def _open_console(connection: drivers.Connection, _firmware: Firmware) -> Iterator[Wire]:
    if connection.console is None:
        raise errors.BoardError(
            f"the serial line of {connection.board.name} is not found",
            "RPC goes over it: is the probe's virtual COM port there (ls /dev/serial/by-id)?",
        )
    yield Wire(connection.console, lambda: connection.reset(halt=False))


_OPENERS: dict[runtime.Pipe, Callable[[drivers.Connection, Firmware], AbstractContextManager[Wire]]] = {
    "console": _open_console,
    "rtt": rtt.open_wire,
    "semihosting": semihosting.open_wire,
    "stdio": _open_program,
    "tcp": _open_program,
}


def open_pipe(connection: drivers.Connection, firmware: Firmware) -> AbstractContextManager[Wire]:
    """Context manager of the byte stream to a firmware built for RPC; flash it before :attr:`Wire.restart`."""
    if firmware.pipe is None:
        raise RuntimeError("the firmware was not built for RPC")
    return _OPENERS[firmware.pipe](connection, firmware)
