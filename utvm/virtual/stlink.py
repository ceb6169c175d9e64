# SPDX-License-Identifier: Apache-2.0
"""The firmware of an ST-Link/V2, V2-1 or V3: 16-byte commands in, replies out.

These commands have no public manual. Implemented are those that OpenOCD's drivers `hla` and `st-link` and ST's
stlink-server send to a V2-1 with firmware V2J40M27, with its transfer limits, to a V2 and to a V3 of those limits.
An unknown command is logged and returns an error status.
"""

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from utvm.virtual import bus, dap

if TYPE_CHECKING:
    from utvm.virtual.machine import BoardModel

_log = logging.getLogger(__name__)

COMMAND_SIZE = 16
MAX_BLOCK_BYTES = 6144  # one transfer of 16 or 32-bit accesses
MAX_BYTES_BLOCK_BYTES = 64  # one transfer of 8-bit accesses: a full-speed USB packet
_V3_BYTES_BLOCK_BYTES, _V3_MISC_ITEMS = 512, 1227
MAX_MISC_ITEMS = 64
_TRACE_BYTES = 4095  # OpenOCD 0.12 asks for one byte less than it has room for: 4096

# Statuses, the first byte of most replies
OK, FAULT, JTAG_GET_IDCODE_ERROR, SWD_AP_FAULT, SWD_AP_STICKY_ERROR = 0x80, 0x81, 0x09, 0x11, 0x19
BAD_AP = 0x1D

USB_VENDOR, V2, V2_1 = 0x0483, 0x3748, 0x374B
"""USB vendor, and products of the V2 and the V2-1."""
V3 = (0x374D, 0x374E, 0x374F, 0x3753, 0x3754)
"""USB products of V3: those of OpenOCD 0.12's interface/stlink.cfg."""
PRODUCTS = (V2, V2_1, 0x3752, *V3)
"""USB products that this firmware serves; a V1 (3744) is a mass storage device."""

_FIRMWARE = {V2: 2 << 12 | 40 << 6 | 7, **dict.fromkeys(V3, 3 << 12)}  # V2 J40 S7; a V3 has another command
_FIRMWARE_2_1 = 2 << 12 | 40 << 6 | 27  # V2 J40 M27
_VERSION_3 = bytes([3, 0, 13, 4, 0, 0, 0, 0])  # V3 J13 M4, and numbers of other parts
_CLOCKS = (24000, 8000, 3300, 1000, 200)  # kHz, of a V3's SWD
_ADC_REFERENCE = 1500  # counts at 1.2 V; the converter measures half of the target's voltage

_MODE_MASS_STORAGE, _MODE_DEBUG, _PORT_DP = 1, 2, 0xFFFF

_ENTER_SWD = 0xA3

# Debug registers of Armv7-M (ARM DDI 0403E, section C1.6)
_DHCSR, _DCRSR, _DCRDR, _AIRCR, _S_REGRDY = 0xE000EDF0, 0xE000EDF4, 0xE000EDF8, 0xE000ED0C, 1 << 16
_DCRSR_WRITE = 1 << 16
_SYSTEM_RESET_REQUEST = 0x05FA0004
_READ_ALL_SELECTORS = range(21)  # r0..r15, xPSR, MSP, PSP, a spare, CONTROL and masks
_REGISTER_TRIES = 100

_MISC_ADDRESS, _MISC_WRITE, _MISC_READ, _MISC_ACCESS_PORT = 1, 2, 3, 5


class StLink:
    """The firmware of a probe on one board. Not thread-safe: one client opens a probe at a time."""

    def __init__(self, board: "BoardModel", product: int = V2_1) -> None:
        self._board = board
        self._product = product
        self._misc_items = _V3_MISC_ITEMS if product in V3 else MAX_MISC_ITEMS
        self._port = dap.SwDebugPort(board, board.port_ids)
        self._mode = _MODE_MASS_STORAGE
        self._status = OK
        self._fault_address = 0
        self._misc_results = b""
        # Functions of the command and its data that return the reply.
        self._commands: dict[int, Callable[[bytes, bytes], bytes]] = {
            # End of the trace, clocks (the modelled wires have no speed), and access ports that open and close.
            **dict.fromkeys((0x41, 0x43, 0x44, 0x4C, 0x61), lambda *_: bytes([OK])),
            0x07: lambda command, _: self._read_block(command, 4),
            0x08: lambda command, data: self._write_block(command, data, 4),
            0x0C: lambda command, _: self._read_block(command, 1),
            0x0D: lambda command, data: self._write_block(command, data, 1),
            0x21: self._exit,
            0x30: self._enter,
            0x31: lambda *_: struct.pack("<BxxxII", OK, self._port.read(dap.DP_DPIDR), 0),
            0x32: lambda *_: bytes([self._access(lambda: self._poke(_AIRCR, _SYSTEM_RESET_REQUEST))]),
            0x33: self._read_register,
            0x34: self._write_register,
            0x35: self._write_debug_register,
            0x36: self._read_debug_register,
            0x3A: self._read_all_registers,
            0x3B: lambda *_: bytes([self._status]),
            0x3C: self._drive_reset,
            0x3E: lambda *_: struct.pack("<BxxxI", self._status, self._fault_address),
            0x40: self._start_trace,
            0x42: lambda *_: struct.pack("<H", min(len(self._board.trace), _TRACE_BYTES)),
            0x45: self._read_dap_register,
            0x46: self._write_dap_register,
            0x47: lambda command, _: self._read_block(command, 2),
            0x48: lambda command, data: self._write_block(command, data, 2),
            0x4B: lambda command, _: bytes([OK if command[2] in self._port.memory_ports else BAD_AP]),
            0x50: self._write_words_in_place,
            0x51: self._misc_out,
            0x52: lambda *_: self._misc_results,
            0x53: lambda *_: struct.pack("<BxxxI", OK, self._misc_items),
            0x54: self._read_words_in_place,
            0x62: lambda *_: struct.pack(f"<B7xI{len(_CLOCKS)}I", OK, len(_CLOCKS), *_CLOCKS),
        }

    @property
    def misc_bytes(self) -> int:
        """Size of the results of the last mixed accesses."""
        return len(self._misc_results)

    def read_trace(self, size: int) -> bytes:
        """Take bytes of SWO, as the trace endpoint sends them."""
        trace = self._board.trace
        return bytes(trace.popleft() for _ in range(min(size, len(trace))))

    def _start_trace(self, _command: bytes, _data: bytes) -> bytes:
        self._board.trace.clear()
        return bytes([OK])

    def lose_target(self) -> None:
        """Reset the debug port after a power cycle of the board; it responds once the host enters a mode again."""
        self._port.power_on()

    def execute(self, command: bytes, data: bytes, reply_size: int) -> bytes:
        """Run one command of 16 bytes, with the data that follow it; return a reply of exactly ``reply_size``."""
        return self._reply(command, data).ljust(reply_size, b"\0")[:reply_size]

    def _reply(self, command: bytes, data: bytes) -> bytes:
        group = command[0]
        if group == 0xF2 and command[1] in self._commands:
            return self._commands[command[1]](command, data)
        if group == 0xF1:
            version = struct.pack(">H", _FIRMWARE.get(self._product, _FIRMWARE_2_1))
            return version + struct.pack("<HH", USB_VENDOR, self._product)
        if group == 0xFB and self._product in V3:
            return _VERSION_3 + struct.pack("<HH", USB_VENDOR, self._product)
        if group == 0xF5:
            return bytes([self._mode])
        if group == 0xF7:
            return struct.pack("<II", _ADC_REFERENCE, round(self._board.volts / 2 / 1.2 * _ADC_REFERENCE))
        _log.warning("unknown command %s", command.hex())
        self._status = FAULT
        return bytes([FAULT])

    # Modes and pins

    def _enter(self, command: bytes, _data: bytes) -> bytes:
        if command[2] != _ENTER_SWD:
            _log.warning("mode 0x%02x is not supported: this board has only SWD", command[2])
        if command[2] != _ENTER_SWD or not self._board.debuggable:
            return bytes([JTAG_GET_IDCODE_ERROR])
        self._mode = _MODE_DEBUG
        self._port.write(dap.DP_ABORT, dap.STKERRCLR)
        self._port.write(dap.DP_SELECT, 0)
        self._port.write(dap.DP_CTRL_STAT, dap.CDBGPWRUPREQ | dap.CSYSPWRUPREQ)
        return bytes([OK])

    def _exit(self, _command: bytes, _data: bytes) -> bytes:
        self._mode = _MODE_MASS_STORAGE
        self._port.write(dap.DP_SELECT, 0)
        self._port.write(dap.DP_CTRL_STAT, 0)
        return bytes([OK])

    def _drive_reset(self, command: bytes, _data: bytes) -> bytes:
        level = command[2]
        if level in (0, 2):
            self._board.hold_reset()
        if level in (1, 2):
            self._board.release_reset()
        return bytes([OK if level <= 2 else FAULT])

    # The debug port, register by register

    def _read_dap_register(self, command: bytes, _data: bytes) -> bytes:
        port, register = struct.unpack_from("<HH", command, 2)
        if port == _PORT_DP:
            self._port.write(dap.DP_SELECT, register >> 4 & 0xF)
            return struct.pack("<BxxxI", OK, self._port.read(register & 0xF))
        self._port.write(dap.DP_SELECT, port << 24 | register & 0xF0)
        self._port.read_ap(register & 0xF)
        value = self._port.read(dap.DP_RDBUFF)
        return struct.pack("<BxxxI", self._dap_status(), value)

    def _write_dap_register(self, command: bytes, _data: bytes) -> bytes:
        port, register, value = struct.unpack_from("<HHI", command, 2)
        if port == _PORT_DP:
            if register & 0xF != dap.DP_SELECT:
                self._port.write(dap.DP_SELECT, register >> 4 & 0xF)
            self._port.write(register & 0xF, value)
            return bytes([OK])
        self._port.write(dap.DP_SELECT, port << 24 | register & 0xF0)
        self._port.write_ap(register & 0xF, value)
        return bytes([self._dap_status()])

    def _dap_status(self) -> int:
        return SWD_AP_STICKY_ERROR if self._port.failed else OK

    # Memory

    def _read_block(self, command: bytes, width: int) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)
        blocks: list[bytes] = []
        if self._is_block_valid(address, size, access_port, width):
            self._status = self._access(
                lambda: blocks.append(self._port.memory_ports[access_port].read_block(address, size, width))
            )
        return b"".join(blocks)

    def _write_block(self, command: bytes, data: bytes, width: int) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)
        if size != len(data):
            _log.warning("block of %d bytes announced, %d sent", size, len(data))
            self._status = FAULT
        elif self._is_block_valid(address, size, access_port, width):
            self._status = self._access(lambda: self._port.memory_ports[access_port].write_block(address, data, width))
        return b""

    def _read_words_in_place(self, command: bytes, _data: bytes) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)
        words: list[bytes] = []

        def read() -> None:
            words.extend(self._port.memory_ports[access_port].read_block(address, 4, 4) for _ in range(0, size, 4))

        if self._is_block_valid(address, size, access_port, 4):
            self._status = self._access(read)
        return b"".join(words)

    def _write_words_in_place(self, command: bytes, data: bytes) -> bytes:
        address, size, access_port = struct.unpack_from("<IHB", command, 2)

        def write() -> None:
            for offset in range(0, len(data), 4):
                self._port.memory_ports[access_port].write_block(address, data[offset : offset + 4], 4)

        valid = size == len(data) and self._is_block_valid(address, size, access_port, 4)
        self._status = self._access(write) if valid else FAULT
        return b""

    def _is_block_valid(self, address: int, size: int, access_port: int, width: int) -> bool:
        bytewise = _V3_BYTES_BLOCK_BYTES if self._product in V3 else MAX_BYTES_BLOCK_BYTES
        limit = bytewise if width == 1 else MAX_BLOCK_BYTES
        if access_port not in self._port.memory_ports:
            self._status = BAD_AP
        elif size > limit or size % width or address % width:
            _log.warning("block of %d bytes at 0x%08x, %d bytes wide, refused", size, address, width)
            self._status = FAULT
        else:
            return True
        return False

    # Mixed single accesses in two commands: one sends them, the other returns the results

    def _misc_out(self, command: bytes, data: bytes) -> bytes:
        (items,) = struct.unpack_from("<I", command, 2)
        values_at = (items + 3) & ~3
        if items > self._misc_items or len(data) != values_at + 4 * items:
            _log.warning("%d mixed accesses in %d bytes refused", items, len(data))
            self._misc_results = struct.pack("<I", FAULT) * min(2 * items, 2 * self._misc_items)
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

    # The core, through its debug registers

    def _read_debug_register(self, command: bytes, _data: bytes) -> bytes:
        value, status = self._try_peek(*struct.unpack_from("<I", command, 2))
        return struct.pack("<BxxxI", status, value)

    def _write_debug_register(self, command: bytes, _data: bytes) -> bytes:
        address, value = struct.unpack_from("<II", command, 2)
        return bytes([self._try_poke(address, value)])

    def _read_register(self, command: bytes, _data: bytes) -> bytes:
        values: list[int] = []
        status = self._access(lambda: values.append(self._core_register(command[2])))
        return struct.pack("<BxxxI", status, values[0] if values else 0)

    def _write_register(self, command: bytes, _data: bytes) -> bytes:
        selector, value = struct.unpack_from("<BI", command, 2)

        def write() -> None:
            self._poke(_DCRDR, value)
            self._poke(_DCRSR, _DCRSR_WRITE | selector)
            self._wait_for_register()

        return bytes([self._access(write)])

    def _read_all_registers(self, _command: bytes, _data: bytes) -> bytes:
        values: list[int] = []
        status = self._access(lambda: values.extend(map(self._core_register, _READ_ALL_SELECTORS)))
        return struct.pack(f"<Bxxx{len(values)}I", status, *values)

    def _core_register(self, selector: int) -> int:
        self._poke(_DCRSR, selector)
        self._wait_for_register()
        return self._peek(_DCRDR)

    def _wait_for_register(self) -> None:
        for _ in range(_REGISTER_TRIES):
            if self._peek(_DHCSR) & _S_REGRDY:
                return
        raise bus.BusError(_DCRSR)

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
        """Perform accesses through the access port and return the status.

        The firmware clears the sticky flag after its own faults, so the next command works; the host clears the
        flag of its own register accesses.
        """
        if self._port.failed or not (self._port.powered and self._board.debuggable):
            return SWD_AP_STICKY_ERROR
        try:
            action()
        except bus.BusError as error:
            self._fault_address = error.address
            return SWD_AP_FAULT
        return OK
