# SPDX-License-Identifier: Apache-2.0
"""The board's serial line."""

from collections.abc import Iterator
from contextlib import contextmanager

from utvm.drivers import Connection
from utvm.errors import BoardError
from utvm.firmware import Firmware
from utvm.session.pipes.wire import Wire


@contextmanager
def opened(connection: Connection, _firmware: Firmware) -> Iterator[Wire]:
    """Use the console, which is open as long as the bench is."""
    if connection.console is None:
        raise BoardError(
            f"the serial line of {connection.board.name} is not found",
            "RPC goes over it: is the probe's virtual COM port there (ls /dev/serial/by-id)?",
        )
    yield Wire(connection.console, lambda: connection.reset(halt=False))
