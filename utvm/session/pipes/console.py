# SPDX-License-Identifier: Apache-2.0
"""The board's serial line."""

from collections.abc import Iterator
from contextlib import contextmanager

from utvm.bench import Bench
from utvm.errors import BoardError
from utvm.firmware import Firmware
from utvm.session.pipes.wire import Wire


@contextmanager
def opened(bench: Bench, _firmware: Firmware) -> Iterator[Wire]:
    """Use the console, which is open as long as the bench is."""
    if bench.console is None:
        raise BoardError(
            f"the serial line of {bench.board.name} is not found",
            "RPC goes over it: is the probe's virtual COM port there (ls /dev/serial/by-id)?",
        )
    yield Wire(bench.console, lambda: bench.reset(halt=False))
