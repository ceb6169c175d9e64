# SPDX-License-Identifier: Apache-2.0
"""The firmware of an ST-Link/V2-1: 16-byte commands in, replies out.

There is no public manual of these commands. What is here is what OpenOCD's drivers `hla` and `st-link` (and
ST's own stlink-server) send to a V2-1 with firmware V2J40M27, with that firmware's limits on a transfer. A
command that is not known is logged and answered with an error status.
"""

import logging
import struct
from collections.abc import Callable
from typing import Protocol

from utvm.virtual.bus import BusError
from utvm.virtual.dap import (
    CDBGPWRUPREQ,
    CSYSPWRUPREQ,
    DP_ABORT,
    DP_CTRL_STAT,
    DP_DPIDR,
    DP_RDBUFF,
    DP_SELECT,
    STKERRCLR,
    DebugMemory,
    PortIds,
    SwDebugPort,
)

_log = logging.getLogger(__name__)

COMMAND_SIZE = 16
MAX_BLOCK_BYTES = 6144  # one transfer of 16 or 32-bit accesses
MAX_BYTES_BLOCK_BYTES = 64  # one transfer of 8-bit accesses; a full-speed USB packet
MAX_MISC_ITEMS = 64

# Statuses, the first byte of most replies
OK = 0x80
FAULT = 0x81
JTAG_GET_IDCODE_ERROR = 0x09
SWD_AP_FAULT = 0x11
SWD_AP_STICKY_ERROR = 0x19
BAD_AP = 0x1D

_FIRMWARE = 2 << 12 | 40 << 6 | 27  # V2 J40 M27
_USB_VENDOR = 0x0483
_USB_PRODUCT = 0x374B
_ADC_REFERENCE = 1500  # counts at 1.2 V; of the target's voltage the converter sees one half

_MODE_MASS_STORAGE = 1
_MODE_DEBUG = 2
_PORT_DP = 0xFFFF

_ENTER_SWD = 0xA3

# Registers of ARMv7-M debug (ARM DDI 0403E, section C1.6), which the firmware drives for its host
_DHCSR = 0xE000EDF0
_DCRSR = 0xE000EDF4
_DCRDR = 0xE000EDF8
_AIRCR = 0xE000ED0C
_S_REGRDY = 1 << 16
_DCRSR_WRITE = 1 << 16
_SYSTEM_RESET_REQUEST = 0x05FA0004
_READ_ALL_SELECTORS = range(21)  # r0..r15, xPSR, MSP, PSP, a spare, CONTROL and masks
_REGISTER_TRIES = 100

_MISC_ADDRESS = 1
_MISC_WRITE = 2
_MISC_READ = 3
_MISC_ACCESS_PORT = 5


class TargetBoard(DebugMemory, Protocol):
    """What the probe's wires reach: the debug port's memory, the reset pin and the supply."""

    @property
    def port_ids(self) -> PortIds:
        """What its debug port says that it is."""

    @property
    def volts(self) -> float:
        """The supply, as a probe measures it."""

    @property
    def powered(self) -> bool:
        """Whether the supply is enough for a debug port to answer."""

    def hold_reset(self) -> None:
        """Pull nRST low."""

    def release_reset(self) -> None:
        """Let nRST go."""


class StLink:
    """One probe on one board. Not thread-safe: one client has a probe at a time."""

    def __init__(self, board: TargetBoard) -> None:
        self._board = board
        self._port = SwDebugPort(board, board.port_ids)
        self._mode = _MODE_MASS_STORAGE
        self._status = OK
        self._fault_address = 0
        self._misc_results = b""
        self._commands: dict[int, Callable[[bytes, bytes, int], bytes]] = {
            0x07: self._read_words,
            0x08: self._write_words,
            0x0C: self._read_bytes,
            0x0D: self._write_bytes,
            0x21: self._exit,
            0x30: self._enter,
            0x31: self._read_idcodes,
            0x32: self._reset_system,
            0x33: self._read_register,
            0x34: self._write_register,
            0x35: self._write_debug_register,
            0x36: self._read_debug_register,
            0x3A: self._read_all_registers,
            0x3B: self._last_status,
            0x3C: self._drive_reset,
            0x3E: self._last_status_and_address,
            0x43: self._set_clock,
            0x44: self._set_clock,
            0x45: self._read_dap_register,
            0x46: self._write_dap_register,
            0x47: self._read_halfwords,
            0x48: self._write_halfwords,
            0x4B: self._open_access_port,
            0x4C: self._close_access_port,
            0x50: self._write_words_in_place,
            0x51: self._misc_out,
            0x52: self._misc_in,
            0x53: self._misc_limit,
            0x54: self._read_words_in_place,
        }

    @property
    def misc_bytes(self) -> int:
        """How many bytes the results of the last row of mixed accesses are."""
        return len(self._misc_results)

    def lose_target(self) -> None:
        """Follow a power cycle of the board: its debug port answers when the host has entered a mode again."""
        self._port.power_on()

    def execute(self, command: bytes, data: bytes, reply_size: int) -> bytes:
        """Run one command.

        Args:
            command: 16 bytes.
            data: what the host sends after the command, or nothing.
            reply_size: how many bytes the host will read after it.

        Returns:
            Exactly ``reply_size`` bytes.
        """
        return self._reply(command, data, reply_size).ljust(reply_size, b"\0")[:reply_size]

    def _reply(self, command: bytes, data: bytes, size: int) -> bytes:
        group = command[0]
        if group == 0xF2 and command[1] in self._commands:
            return self._commands[command[1]](command, data, size)
        if group == 0xF1:
            return struct.pack(">H", _FIRMWARE) + struct.pack("<HH", _USB_VENDOR, _USB_PRODUCT)
        if group == 0xF5:
            return bytes([self._mode])
        if group == 0xF7:
            half = round(self._board.volts / 2 / 1.2 * _ADC_REFERENCE)
            return struct.pack("<II", _ADC_REFERENCE, half)
        _log.warning("unknown command %s", command.hex())
        self._status = FAULT
        return bytes([FAULT])

    # Modes and pins

    def _enter(self, command: bytes, _data: bytes, _size: int) -> bytes:
        if command[2] != _ENTER_SWD:
            _log.warning("only SWD is wired to this board, asked for mode 0x%02x", command[2])
            return bytes([JTAG_GET_IDCODE_ERROR])
        if not self._board.powered:
            return bytes([JTAG_GET_IDCODE_ERROR])
        self._mode = _MODE_DEBUG
        self._port.write(DP_ABORT, STKERRCLR)
        self._port.write(DP_SELECT, 0)
        self._port.write(DP_CTRL_STAT, CDBGPWRUPREQ | CSYSPWRUPREQ)
        return bytes([OK])

    def _exit(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        self._mode = _MODE_MASS_STORAGE
        self._port.write(DP_SELECT, 0)
        self._port.write(DP_CTRL_STAT, 0)
        return bytes([OK])

    def _set_clock(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return bytes([OK])  # the model's wires have no speed

    def _drive_reset(self, command: bytes, _data: bytes, _size: int) -> bytes:
        level = command[2]
        if level in (0, 2):
            self._board.hold_reset()
        if level in (1, 2):
            self._board.release_reset()
        return bytes([OK if level <= 2 else FAULT])

    def _reset_system(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return bytes([self._access(lambda: self._poke(_AIRCR, _SYSTEM_RESET_REQUEST))])

    # The debug port, register by register

    def _read_idcodes(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return struct.pack("<BxxxII", OK, self._port.read(DP_DPIDR), 0)

    def _open_access_port(self, command: bytes, _data: bytes, _size: int) -> bytes:
        return bytes([OK if command[2] in self._port.memory_ports else BAD_AP])

    def _close_access_port(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return bytes([OK])

    def _read_dap_register(self, command: bytes, _data: bytes, _size: int) -> bytes:
        port, register = struct.unpack_from("<HH", command, 2)
        if port == _PORT_DP:
            self._port.write(DP_SELECT, register >> 4 & 0xF)
            value = self._port.read(register & 0xF)
            return struct.pack("<BxxxI", OK, value)
        self._port.write(DP_SELECT, port << 24 | register & 0xF0)
        self._port.read_ap(register & 0xF)
        value = self._port.read(DP_RDBUFF)
        return struct.pack("<BxxxI", self._dap_status(), value)

    def _write_dap_register(self, command: bytes, _data: bytes, _size: int) -> bytes:
        port, register, value = struct.unpack_from("<HHI", command, 2)
        if port == _PORT_DP:
            if register & 0xF != DP_SELECT:
                self._port.write(DP_SELECT, register >> 4 & 0xF)
            self._port.write(register & 0xF, value)
            return bytes([OK])
        self._port.write(DP_SELECT, port << 24 | register & 0xF0)
        self._port.write_ap(register & 0xF, value)
        return bytes([self._dap_status()])

    def _dap_status(self) -> int:
        return SWD_AP_STICKY_ERROR if self._port.failed else OK

    # Memory

    def _read_words(self, command: bytes, _data: bytes, _size: int) -> bytes:
        return self._read_block(command, 4, MAX_BLOCK_BYTES)

    def _read_halfwords(self, command: bytes, _data: bytes, _size: int) -> bytes:
        return self._read_block(command, 2, MAX_BLOCK_BYTES)

    def _read_bytes(self, command: bytes, _data: bytes, _size: int) -> bytes:
        return self._read_block(command, 1, MAX_BYTES_BLOCK_BYTES)

    def _write_words(self, command: bytes, data: bytes, _size: int) -> bytes:
        return self._write_block(command, data, 4, MAX_BLOCK_BYTES)

    def _write_halfwords(self, command: bytes, data: bytes, _size: int) -> bytes:
        return self._write_block(command, data, 2, MAX_BLOCK_BYTES)

    def _write_bytes(self, command: bytes, data: bytes, _size: int) -> bytes:
        return self._write_block(command, data, 1, MAX_BYTES_BLOCK_BYTES)

    def _read_block(self, command: bytes, width: int, limit: int) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)
        if not self._block_allowed(address, size, access_port, width, limit):
            return b""
        result = b""

        def read() -> None:
            nonlocal result
            result = self._port.memory_ports[access_port].read_block(address, size, width)

        self._status = self._access(read)
        return result

    def _write_block(self, command: bytes, data: bytes, width: int, limit: int) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)
        if size != len(data):
            _log.warning("block of %d bytes announced, %d sent", size, len(data))
            self._status = FAULT
        elif self._block_allowed(address, size, access_port, width, limit):
            self._status = self._access(
                lambda: self._port.memory_ports[access_port].write_block(address, data, width)
            )
        return b""

    def _read_words_in_place(self, command: bytes, _data: bytes, _size: int) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)
        words: list[bytes] = []

        def read() -> None:
            words.extend(self._port.memory_ports[access_port].read_block(address, 4, 4) for _ in range(0, size, 4))

        if self._block_allowed(address, size, access_port, 4, MAX_BLOCK_BYTES):
            self._status = self._access(read)
        return b"".join(words)

    def _write_words_in_place(self, command: bytes, data: bytes, _size: int) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)

        def write() -> None:
            for offset in range(0, len(data), 4):
                self._port.memory_ports[access_port].write_block(address, data[offset : offset + 4], 4)

        if size == len(data) and self._block_allowed(address, size, access_port, 4, MAX_BLOCK_BYTES):
            self._status = self._access(write)
        else:
            self._status = FAULT
        return b""

    def _block_allowed(self, address: int, size: int, access_port: int, width: int, limit: int) -> bool:
        if access_port not in self._port.memory_ports:
            self._status = BAD_AP
        elif size > limit or size % width or address % width:
            _log.warning("block of %d bytes at 0x%08x, %d bytes wide, refused", size, address, width)
            self._status = FAULT
        else:
            return True
        return False

    def _last_status(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return bytes([self._status])

    def _last_status_and_address(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return struct.pack("<BxxxI", self._status, self._fault_address)

    # A row of single accesses in two commands: the orders out, then the results in

    def _misc_out(self, command: bytes, data: bytes, _size: int) -> bytes:
        (items,) = struct.unpack_from("<I", command, 2)
        values_at = (items + 3) & ~3
        if items > MAX_MISC_ITEMS or len(data) != values_at + 4 * items:
            _log.warning("%d mixed accesses in %d bytes refused", items, len(data))
            self._misc_results = struct.pack("<I", FAULT) * min(2 * items, 2 * MAX_MISC_ITEMS)
            return b""
        results: list[int] = []
        statuses: list[int] = []
        address = port = 0
        for order, value in zip(data, struct.unpack_from(f"<{items}I", data, values_at), strict=False):
            result, status = 0, OK
            if order == _MISC_ADDRESS:
                address = value
            elif order == _MISC_WRITE:
                status = self._try_poke(address, value, port)
            elif order == _MISC_READ:
                result, status = self._try_peek(value, port)
            elif order == _MISC_ACCESS_PORT and value in self._port.memory_ports:
                port = value
            else:
                status = BAD_AP if order == _MISC_ACCESS_PORT else FAULT
            results.append(result)
            statuses.append(status)
        self._misc_results = struct.pack(f"<{2 * items}I", *results, *statuses)
        return b""

    def _misc_in(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return self._misc_results

    def _misc_limit(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        return struct.pack("<BxxxI", OK, MAX_MISC_ITEMS)

    # The core, through its debug registers

    def _read_debug_register(self, command: bytes, _data: bytes, _size: int) -> bytes:
        (address,) = struct.unpack_from("<I", command, 2)
        value, status = self._try_peek(address)
        return struct.pack("<BxxxI", status, value)

    def _write_debug_register(self, command: bytes, _data: bytes, _size: int) -> bytes:
        address, value = struct.unpack_from("<II", command, 2)
        return bytes([self._try_poke(address, value)])

    def _read_register(self, command: bytes, _data: bytes, _size: int) -> bytes:
        values: list[int] = []
        status = self._access(lambda: values.append(self._core_register(command[2])))
        return struct.pack("<BxxxI", status, values[0] if values else 0)

    def _write_register(self, command: bytes, _data: bytes, _size: int) -> bytes:
        selector, value = struct.unpack_from("<BI", command, 2)

        def write() -> None:
            self._poke(_DCRDR, value)
            self._poke(_DCRSR, _DCRSR_WRITE | selector)
            self._wait_for_register()

        return bytes([self._access(write)])

    def _read_all_registers(self, _command: bytes, _data: bytes, _size: int) -> bytes:
        values: list[int] = []

        def read() -> None:
            values.extend(self._core_register(selector) for selector in _READ_ALL_SELECTORS)

        status = self._access(read)
        return struct.pack(f"<Bxxx{len(values)}I", status, *values)

    def _core_register(self, selector: int) -> int:
        self._poke(_DCRSR, selector)
        self._wait_for_register()
        return self._peek(_DCRDR)

    def _wait_for_register(self) -> None:
        for _ in range(_REGISTER_TRIES):
            if self._peek(_DHCSR) & _S_REGRDY:
                return
        raise BusError(_DCRSR)

    # Single accesses through the access port

    def _peek(self, address: int, port: int = 0) -> int:
        return int.from_bytes(self._port.memory_ports[port].read_block(address, 4, 4), "little")

    def _poke(self, address: int, value: int, port: int = 0) -> None:
        self._port.memory_ports[port].write_block(address, value.to_bytes(4, "little"), 4)

    def _try_peek(self, address: int, port: int = 0) -> tuple[int, int]:
        values: list[int] = []
        status = self._access(lambda: values.append(self._peek(address, port)))
        return (values[0] if values else 0), status

    def _try_poke(self, address: int, value: int, port: int = 0) -> int:
        return self._access(lambda: self._poke(address, value, port))

    def _access(self, action: Callable[[], None]) -> int:
        """Do something through the access port and return its status.

        The firmware clears the sticky flag after a fault of its own: the next command works. A flag that the
        host's own access to a register left behind is the host's to clear.
        """
        if self._port.failed or not self._port.powered:
            return SWD_AP_STICKY_ERROR
        try:
            action()
        except BusError as error:
            self._fault_address = error.address
            return SWD_AP_FAULT
        return OK
