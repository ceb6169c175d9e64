# SPDX-License-Identifier: Apache-2.0
"""The firmware of a CMSIS-DAP probe, version 2: commands in, responses out, on the model of a debug port.

After Arm's documentation of CMSIS-DAP 2.1 (commands and responses, one section each). SWD is the only port. Wires
are not modelled one by one: a sequence of bits, such as the switch from JTAG, is taken and has no effect, and a
line that nobody drives reads as ones.
"""

import struct
from collections.abc import Callable

from utvm.virtual.dap import DP_ABORT, DP_CTRL_STAT, DP_DPIDR, DP_RDBUFF, SwDebugPort
from utvm.virtual.stlink import TargetBoard

PACKET_BYTES = 512
_PACKETS = 4

_OK = 0x00
_ERROR = 0xFF

# Acknowledges of a transfer
_ACK_NONE = 0
_ACK_OK = 1
_ACK_FAULT = 4
_MISMATCH = 1 << 4

# A transfer's request
_ACCESS_PORT = 1 << 0
_READ = 1 << 1
_REGISTER = 0xC
_MATCH = 1 << 4
_MASK = 1 << 5
_TIMESTAMP = 1 << 7

_PORT_SWD = 1
_NRESET = 1 << 7
_IDLE_PINS = 0x03  # SWCLK and SWDIO are high
_SWD_ONLY = 0x01

_RESPONSE_HEAD = 4


class _BadCommand(Exception):
    """A command that is cut off, or asks for what the probe has not got."""


class _Command:
    """Reads a command's fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise _BadCommand
        self._at += size
        return part

    def byte(self) -> int:
        return self.take(1)[0]

    def half(self) -> int:
        return int.from_bytes(self.take(2), "little")

    def word(self) -> int:
        return int.from_bytes(self.take(4), "little")


class CmsisDap:
    """One probe on one board. Not thread-safe.

    Args:
        board: what the probe is wired to.
        serial: its serial number.
    """

    def __init__(self, board: TargetBoard, *, serial: str) -> None:
        self._board = board
        self._port = SwDebugPort(board, board.port_ids)
        self._reset_held = False
        self._strings = {1: "utvm", 2: "utvm virtual CMSIS-DAP", 3: serial, 4: "2.1.0"}
        self._commands: dict[int, Callable[[_Command], bytes]] = {
            0x00: self._info,
            0x01: self._host_status,
            0x02: self._connect,
            0x03: self._disconnect,
            0x04: self._configure_transfers,
            0x05: self._transfer,
            0x06: self._transfer_block,
            0x08: self._write_abort,
            0x09: self._delay,
            0x0A: self._reset_target,
            0x10: self._drive_pins,
            0x11: self._set_clock,
            0x12: self._sequence,
            0x13: self._configure_swd,
            0x1D: self._swd_sequence,
        }
        self.power_on()

    def power_on(self) -> None:
        """Take the state of a probe that was plugged in: it pulls at no pin. The board's debug port stays."""
        if self._reset_held:
            self._board.release_reset()
        self._reset_held = False
        self._connected = False
        self._match_tries = 1
        self._match_mask = 0xFFFFFFFF

    def lose_target(self) -> None:
        """Follow a power cycle of the board: its debug port is new."""
        self._port.power_on()

    def execute(self, command: bytes) -> bytes:
        """Run one command and return its response; empty where there is none."""
        if not command or command[0] == 0x07:  # an abort of a transfer, of which none is under way
            return b""
        run = self._commands.get(command[0])
        if run is None:
            return bytes([_ERROR])
        try:
            return command[:1] + run(_Command(command[1:]))
        except _BadCommand:
            return bytes([command[0], _ERROR])

    # The probe itself

    def _info(self, command: _Command) -> bytes:
        number = command.byte()
        if number in self._strings:
            text = self._strings[number].encode() + b"\0"
            return bytes([len(text)]) + text
        facts = {0xF0: bytes([_SWD_ONLY]), 0xFE: bytes([_PACKETS]), 0xFF: struct.pack("<H", PACKET_BYTES)}
        fact = facts.get(number, b"")
        return bytes([len(fact)]) + fact

    def _host_status(self, command: _Command) -> bytes:
        command.take(2)
        return bytes([_OK])  # no lamps

    def _delay(self, command: _Command) -> bytes:
        command.half()
        return bytes([_OK])  # the board's time is virtual

    def _connect(self, command: _Command) -> bytes:
        self._connected = command.byte() in (0, _PORT_SWD)
        return bytes([_PORT_SWD if self._connected else 0])

    def _disconnect(self, _command: _Command) -> bytes:
        self._connected = False
        return bytes([_OK])

    # Pins and wires

    def _reset_target(self, _command: _Command) -> bytes:
        return bytes([_OK, 0])  # no sequence of its own for this board

    def _drive_pins(self, command: _Command) -> bytes:
        levels, chosen = command.byte(), command.byte()
        command.word()
        if chosen & _NRESET:
            held = not levels & _NRESET
            if held and not self._reset_held:
                self._board.hold_reset()
            elif self._reset_held and not held:
                self._board.release_reset()
            self._reset_held = held
        return bytes([_IDLE_PINS | (0 if self._reset_held else _NRESET)])

    def _set_clock(self, command: _Command) -> bytes:
        return bytes([_OK if command.word() else _ERROR])

    def _sequence(self, command: _Command) -> bytes:
        command.take(-(-(command.byte() or 256) // 8))
        return bytes([_OK])

    def _configure_swd(self, command: _Command) -> bytes:
        command.byte()
        return bytes([_OK])

    def _swd_sequence(self, command: _Command) -> bytes:
        read = b""
        for _ in range(command.byte()):
            kind = command.byte()
            size = -(-(kind & 0x3F or 64) // 8)
            if kind & 0x80:
                read += b"\xff" * size
            else:
                command.take(size)
        if len(read) + _RESPONSE_HEAD > PACKET_BYTES:
            raise _BadCommand
        return bytes([_OK]) + read

    # Transfers

    def _configure_transfers(self, command: _Command) -> bytes:
        _idle, _waits = command.byte(), command.half()  # the port is never busy
        self._match_tries = 1 + command.half()
        return bytes([_OK])

    def _write_abort(self, command: _Command) -> bytes:
        command.byte()
        self._port.write(DP_ABORT, command.word())
        return bytes([_OK])

    def _transfer(self, command: _Command) -> bytes:
        command.byte()
        wanted = command.byte()
        done, ack, written, data = 0, self._first_ack(), False, bytearray()
        while done < wanted and ack == _ACK_OK:
            request = command.byte()
            written = not request & _READ
            if request & _MASK and written:
                self._match_mask, written = command.word(), False
            elif written:
                ack = self._write(request, command.word())
            elif request & _MATCH:
                ack = self._read_until_match(request, command.word())
            else:
                ack, value = self._read(request)
                data += struct.pack("<I", value) if ack == _ACK_OK else b""
            done += ack == _ACK_OK
            if request & _TIMESTAMP or len(data) + _RESPONSE_HEAD > PACKET_BYTES:
                raise _BadCommand
        if written and ack == _ACK_OK:
            ack = self._outcome()
        return bytes([done, ack]) + data

    def _transfer_block(self, command: _Command) -> bytes:
        command.byte()
        wanted, request = command.half(), command.byte()
        done, ack, data = 0, self._first_ack(), bytearray()
        if request & _READ and 4 * wanted + _RESPONSE_HEAD > PACKET_BYTES:
            raise _BadCommand
        while done < wanted and ack == _ACK_OK:
            if request & _READ:
                ack, value = self._read(request)
                data += struct.pack("<I", value) if ack == _ACK_OK else b""
            else:
                ack = self._write(request, command.word())
            done += ack == _ACK_OK
        if not request & _READ and ack == _ACK_OK:
            ack = self._outcome()
        return struct.pack("<HB", done, ack) + data

    def _first_ack(self) -> int:
        return _ACK_OK if self._connected and self._board.powered else _ACK_NONE

    def _outcome(self) -> int:
        return _ACK_FAULT if self._port.failed else _ACK_OK

    def _read(self, request: int) -> tuple[int, int]:
        register = request & _REGISTER
        if self._port.failed and (request & _ACCESS_PORT or register not in (DP_DPIDR, DP_CTRL_STAT)):
            return _ACK_FAULT, 0
        if not request & _ACCESS_PORT:
            return _ACK_OK, self._port.read(register)
        # The probe fetches what was posted: the host sees the register that it asked for.
        self._port.read_ap(register)
        return self._outcome(), self._port.read(DP_RDBUFF)

    def _write(self, request: int, value: int) -> int:
        register = request & _REGISTER
        # IHI 0031, section B4.2.4: with a sticky error only ABORT is let through.
        if self._port.failed and (request & _ACCESS_PORT or register != DP_ABORT):
            return _ACK_FAULT
        if request & _ACCESS_PORT:
            self._port.write_ap(register, value)
        else:
            self._port.write(register, value)
        return _ACK_OK

    def _read_until_match(self, request: int, wanted: int) -> int:
        for _ in range(self._match_tries):
            ack, value = self._read(request)
            if ack != _ACK_OK:
                return ack
            if value & self._match_mask == wanted:
                return _ACK_OK
        return _ACK_OK | _MISMATCH
