# SPDX-License-Identifier: Apache-2.0
"""Semihosting: the board stops at BKPT 0xAB for a file operation, which is executed here.

Source: Arm, "Semihosting for AArch32 and AArch64", 2.0. The calls are handled here, through the GDB port, since
OpenOCD 0.12 cannot: while the board waits for input, ``arm semihosting_redirect`` blocks all of OpenOCD (even
SIGTERM), and it discards input while the board does not wait. QEMU does not stop for the calls by itself, but at a
breakpoint before them.
"""

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from utvm import drivers, errors
from utvm.firmware import Firmware
from utvm.session.transport import Wire

_ENTRY = b"\xab\xbe"  # BKPT 0xAB
_SYS_OPEN, _SYS_WRITE, _SYS_READ = 0x01, 0x05, 0x06
_CONSOLE_NAME = b":tt"
_HANDLE = 1  # Only the console can be open.
_FAILED = 0xFFFFFFFF
_HALT_TIMEOUT = 5.0  # Seconds.


class Semihosting:
    """Semihosting calls as a :class:`utvm.session.transport.Transport`.

    The core is halted until its call is complete; if it waits for input, until there is some. ``places`` are
    breakpoint addresses of the calls, if the core does not halt for them by itself.
    """

    def __init__(self, connection: drivers.Connection, places: Sequence[int]) -> None:
        self._connection = connection
        self._places = places
        self._gdb = connection.gdb
        self._to_board = bytearray()
        self._read_buffer: tuple[int, int] | None = None  # Address and size of a pending read buffer.

    def restart(self) -> None:
        """Reset the board and let it run."""
        self.close()
        self._connection.reset(halt=True)
        self._connection.clear_breakpoints()
        for place in self._places:
            self._connection.insert_breakpoint(place)
        self._gdb.resume()

    def close(self) -> None:
        """Halt the board. Safe to call again."""
        if self._gdb.running:
            self._gdb.interrupt()
            if self._gdb.wait_for_stop(_HALT_TIMEOUT) is None:
                raise errors.ProbeError(
                    f"{self._connection.board.name} cannot be halted", "check its power and its cable"
                )
        self._to_board.clear()
        self._read_buffer = None

    def read(self, timeout: float) -> bytes:
        """Handle the board's calls until it writes data, and return it; empty on timeout."""
        deadline = time.monotonic() + timeout
        data = b""
        while not data:
            left = max(0.0, deadline - time.monotonic())
            if self._read_buffer is not None:
                # It waits for input and sends nothing before that.
                time.sleep(left)
                break
            if self._gdb.wait_for_stop(left) is None:
                break
            data = self._serve()
        return data

    def write(self, data: bytes) -> None:
        """Queue bytes for the board, and complete a pending read."""
        self._to_board += data
        self._fill()

    def _serve(self) -> bytes:
        operation, arguments = self._call()
        data = b""
        if operation == _SYS_OPEN:
            name, _mode, length = arguments
            known = length == len(_CONSOLE_NAME) and self._gdb.read_memory(name, length) == _CONSOLE_NAME
            self._answer(_HANDLE if known else _FAILED)
        elif operation == _SYS_WRITE:
            _handle, address, size = arguments
            data = self._gdb.read_memory(address, size)
            self._answer(0)
        elif operation == _SYS_READ:
            _handle, address, size = arguments
            self._read_buffer = (address, size)
            self._fill()
        else:
            self._answer(_FAILED)
        return data

    def _call(self) -> tuple[int, tuple[int, int, int]]:
        pc = self._gdb.read_register("pc")
        if self._gdb.read_memory(pc, len(_ENTRY)) != _ENTRY:
            raise errors.TransportError(
                f"{self._connection.board.name} stopped at {pc:#010x}, and not for a semihosting call",
                "a core that has locked up does this, or one at another breakpoint",
            )
        block = self._gdb.read_memory(self._gdb.read_register("r1"), 12)
        first, second, third = struct.unpack("<3I", block)
        return self._gdb.read_register("r0"), (first, second, third)

    def _fill(self) -> None:
        if self._read_buffer is None or not self._to_board:
            return
        address, size = self._read_buffer
        self._read_buffer = None
        data = bytes(self._to_board[:size])
        del self._to_board[:size]
        self._gdb.write_memory(address, data)
        self._answer(size - len(data))  # SYS_READ returns the number of bytes not filled.

    def _answer(self, result: int) -> None:
        self._gdb.write_register("r0", result)
        self._gdb.write_register("pc", self._gdb.read_register("pc") + len(_ENTRY))
        self._gdb.resume()


@contextmanager
def open_wire(connection: drivers.Connection, firmware: Firmware) -> Iterator[Wire]:
    """Handle the board's calls; halt it on leaving."""
    calls = Semihosting(connection, () if "OpenOCD" in connection.capabilities else _calls_in(firmware))
    try:
        yield Wire(calls, calls.restart)
    finally:
        calls.close()
        connection.clear_breakpoints()


def _calls_in(firmware: Firmware) -> list[int]:
    places = (
        (address + offset, data[offset : offset + len(_ENTRY)])
        for address, data in firmware.segments
        for offset in range(0, len(data), len(_ENTRY))
    )
    return [place for place, content in places if content == _ENTRY and firmware.is_code(place)]
