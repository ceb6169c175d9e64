# SPDX-License-Identifier: Apache-2.0
"""SEGGER RTT: buffers in the board's memory, read and written through the debug port.

With OpenOCD, its RTT server is used while the core runs; it gets the control block's address from the firmware's
symbols, so that it uses no other block. With other debug ports, or if OpenOCD 0.12 cannot access memory while the
core runs, the buffers are read here, and the core is halted for each access if necessary.
"""

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from utvm import drivers, errors
from utvm.firmware import Firmware
from utvm.session.transport import Fifos, Wire

_ID = b"SEGGER RTT"
_ID_BYTES = 16
_POLLING_INTERVAL = 1  # Milliseconds between two polls of OpenOCD; its default is 100.
_PAUSE = 0.005  # Seconds between two polls for the control block.
_LONGEST_PAUSE = 0.02  # Longest time in seconds between two polls of the buffers; the first is immediate.
_RINGS = 24  # Offset of the rings in the control block, in bytes.
# A ring by the ELF class (byte 4 of the file): name and buffer (pointers), size, write and read offset, flags.
_RING = {1: struct.Struct("<6I"), 2: struct.Struct("<2Q4I")}
_IN, _OUT = -12, -8  # Offsets from the end of a ring.


@contextmanager
def open_wire(connection: drivers.Connection, firmware: Firmware) -> Iterator[Wire]:
    """Run OpenOCD's RTT server; without OpenOCD, access the buffers directly."""
    monitor = connection.gdb.monitor
    block = firmware.symbols.get("utvm_rtt")
    if block is None:
        raise errors.ConfigError(
            f"{firmware.elf.name} does not support RTT: it has no utvm_rtt",
            "your application must write with utvm_pipe_write(), as the project's app/main.c did",
        )
    if not _has_server(connection):
        with firmware.elf.open("rb") as file:
            buffers = Buffers(connection, block, _RING[file.read(5)[4]])
        yield Wire(buffers, lambda: _start(connection, block))
        return
    monitor(f'rtt setup {block:#x} {_ID_BYTES} "{_ID.decode()}"')
    monitor(f"rtt polling_interval {_POLLING_INTERVAL}")
    with Fifos() as fifos:
        monitor(f"rtt server start {{{fifos.path}}} 0")
        try:
            fifos.connect()
            yield Wire(fifos, lambda: _restart(connection, block))
        finally:
            monitor("rtt stop")
            monitor(f"rtt server stop {{{fifos.path}}}")


def _has_server(connection: drivers.Connection) -> bool:
    return {"OpenOCD", "memory while running"} <= connection.capabilities


def _restart(connection: drivers.Connection, block: int) -> None:
    """Reset the board and have OpenOCD search its new control block.

    Memory survives a reset, so OpenOCD is stopped and the old id erased before the core runs: offsets of the old
    block must not be used with the new one.
    """
    connection.gdb.monitor("rtt stop")
    _start(connection, block)
    connection.gdb.monitor("rtt start")


def _start(connection: drivers.Connection, block: int) -> None:
    connection.reset(halt=True)
    connection.write_memory(block, bytes(_ID_BYTES))
    if _has_server(connection):
        connection.gdb.monitor("resume")
    else:
        connection.gdb.resume()
    timeout = connection.board.timeouts.start
    deadline = time.monotonic() + timeout
    while connection.read_memory(block, len(_ID)) != _ID:
        if time.monotonic() > deadline:
            raise errors.BoardError(
                f"{connection.board.name} set up no RTT buffers at {block:#010x} within {timeout:g} s of a reset",
                "does the core get that far? ./inv board.serve without --transport rtt shows whether it runs",
            )
        time.sleep(_PAUSE)


class Buffers:
    """The buffers as a :class:`utvm.session.transport.Transport`, by memory accesses only."""

    def __init__(self, connection: drivers.Connection, block: int, ring: struct.Struct) -> None:
        self._connection = connection
        self._layout = ring
        self._up = block + _RINGS
        self._down = self._up + ring.size

    def close(self) -> None:
        """Do nothing."""

    def read(self, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        pause = _PAUSE / 5
        while not (data := self._take()):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return data

    def write(self, data: bytes) -> None:
        """Write all bytes, in as many pieces as the buffer needs."""
        deadline = time.monotonic() + self._connection.board.timeouts.start
        while data:
            data = data[self._put(data) :]
            if data and time.monotonic() > deadline:
                raise errors.BoardError(f"{self._connection.board.name} does not read its RTT buffer", "does it run?")

    def _take(self) -> bytes:
        with self._connection.halted_access():
            _name, place, size, end, start, _flags = self._ring(self._up)
            if start == end:
                return b""
            parts = [(start, end)] if start < end else [(start, size), (0, end)]
            data = b"".join(self._connection.read_memory(place + a, b - a) for a, b in parts if a < b)
            self._connection.write_memory(self._up + self._layout.size + _OUT, end.to_bytes(4, "little"))
        return data

    def _put(self, data: bytes) -> int:
        with self._connection.halted_access():
            _name, place, size, start, read_position, _flags = self._ring(self._down)
            free = (read_position - start - 1) % size
            part = data[: min(free, size - start)]
            if part:
                self._connection.write_memory(place + start, part)
                after = (start + len(part)) % size
                self._connection.write_memory(self._down + self._layout.size + _IN, after.to_bytes(4, "little"))
        return len(part)

    def _ring(self, address: int) -> tuple[int, ...]:
        return self._layout.unpack(self._connection.read_memory(address, self._layout.size))
