# SPDX-License-Identifier: Apache-2.0
"""Buffers in the board's memory, which OpenOCD reads and writes while the core runs: SEGGER's RTT.

OpenOCD's own RTT server does the work. It is told the address of the control block, which is a symbol of the
firmware, so that it takes no other block for ours.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from utvm.bench import Bench
from utvm.errors import BoardError, ProbeError
from utvm.firmware import Firmware
from utvm.session.pipes.wire import Wire
from utvm.session.tcp import TcpConnection

_ID = b"SEGGER RTT"
_ID_BYTES = 16
_POLLING_INTERVAL = 1  # Milliseconds between two looks of OpenOCD at the board's buffer; its own choice is 100.
_PAUSE = 0.005  # Seconds between two looks for the control block.
_LISTENING = re.compile(r"Listening on port (\d+) for rtt connections")


@contextmanager
def opened(bench: Bench, firmware: Firmware) -> Iterator[Wire]:
    """Start OpenOCD's RTT server, and stop it in the end."""
    monitor = bench.gdb.monitor
    block = firmware.symbols["utvm_rtt"]
    monitor(f'rtt setup {block:#x} {_ID_BYTES} "{_ID.decode()}"')
    monitor(f"rtt polling_interval {_POLLING_INTERVAL}")
    # Port 0: any free one, which OpenOCD then names.
    said = monitor("rtt server start 0 0")
    try:
        listening = _LISTENING.search(said)
        if listening is None:
            raise ProbeError(f"OpenOCD does not say where its RTT server listens, but: {said!r}")
        with TcpConnection("127.0.0.1", int(listening[1])) as connection:
            yield Wire(connection, lambda: _restart(bench, block))
    finally:
        monitor("rtt stop")
        monitor("rtt server stop 0")


def _restart(bench: Bench, block: int) -> None:
    """Reset the board and have OpenOCD find the control block that it makes then.

    What is known of the old block must not be used on the new one, and memory outlives a reset: so OpenOCD stops,
    and the old id is wiped before the core runs.

    Raises:
        BoardError: the board has made no control block in time.
    """
    bench.gdb.monitor("rtt stop")
    bench.reset(halt=True)
    bench.write_memory(block, bytes(_ID_BYTES))
    bench.gdb.monitor("resume")
    patience = bench.board.timeouts.start
    deadline = time.monotonic() + patience
    while bench.read_memory(block, len(_ID)) != _ID:
        if time.monotonic() > deadline:
            raise BoardError(
                f"{bench.board.name} has set up no RTT buffers at {block:#010x} within {patience:g} s of a reset",
                "does the core get as far? ./inv board.serve without --transport rtt shows whether it runs",
            )
        time.sleep(_PAUSE)
    bench.gdb.monitor("rtt start")
