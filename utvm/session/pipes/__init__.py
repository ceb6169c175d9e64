# SPDX-License-Identifier: Apache-2.0
"""The host's end of each pipe that RPC goes through: a module a pipe, and its line in the table below.

The board's end is ``utvm/runtime/ARCHITECTURE/rpc/PIPE/pipe.c``.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from utvm.drivers import Connection
from utvm.firmware import Firmware
from utvm.runtime import Pipe
from utvm.session.pipes import console, process, rtt, semihosting
from utvm.session.pipes.wire import Wire

__all__ = ["Wire", "open_pipe"]

_OPENERS: dict[Pipe, Callable[[Connection, Firmware], AbstractContextManager[Wire]]] = {
    "console": console.opened,
    "rtt": rtt.opened,
    "semihosting": semihosting.opened,
    "stdio": process.opened,
    "tcp": process.opened,
}


def open_pipe(connection: Connection, firmware: Firmware) -> AbstractContextManager[Wire]:
    """Return the way to a board that runs a firmware built for RPC, to be entered with ``with``.

    Nothing is asked of the board before :attr:`Wire.restart`: the firmware may be programmed in between.
    """
    if firmware.pipe is None:
        raise RuntimeError("the firmware was not built for RPC")
    return _OPENERS[firmware.pipe](connection, firmware)
