# SPDX-License-Identifier: Apache-2.0
"""Host side of each RPC byte stream; the board's side is ``utvm/runtime/ARCHITECTURE/rpc/PIPE/pipe.c``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from utvm import drivers, errors, runtime
from utvm.firmware import Firmware
from utvm.session.pipes import process, rtt, semihosting
from utvm.session.transport import Wire


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
    "stdio": process.open_wire,
    "tcp": process.open_wire,
}


def open_pipe(connection: drivers.Connection, firmware: Firmware) -> AbstractContextManager[Wire]:
    """Context manager of the byte stream to a firmware built for RPC; flash it before :attr:`Wire.restart`."""
    if firmware.pipe is None:
        raise RuntimeError("the firmware was not built for RPC")
    return _OPENERS[firmware.pipe](connection, firmware)
