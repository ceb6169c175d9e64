# SPDX-License-Identifier: Apache-2.0
"""The firmware of a CMSIS-DAP probe, version 2 (Arm's documentation of CMSIS-DAP 2.1): commands in, responses out.

SWD is the only port. Wires are not modelled: bit sequences, such as the switch from JTAG, have no effect, and
reads return ones.
"""

import struct
from collections.abc import Callable

from utvm.virtual import dap, machine

PACKET_BYTES = 512
_PACKETS = 4

_OK, _ERROR = 0x00, 0xFF

# Acknowledge of a transfer
_ACK_NONE, _ACK_OK, _ACK_FAULT, _MISMATCH = 0, 1, 4, 1 << 4

# Request of a transfer
_ACCESS_PORT, _READ, _REGISTER, _MATCH, _MASK, _TIMESTAMP = 1 << 0, 1 << 1, 0xC, 1 << 4, 1 << 5, 1 << 7

_PORT_SWD = 1
_NRESET = 1 << 7
_IDLE_PINS = 0x03  # SWCLK and SWDIO are high
_SWD_ONLY = 0x01

_RESPONSE_HEAD = 4


class _UnsupportedCommand(Exception):
    """A truncated command, or one this probe does not implement."""


class _Command:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._position : self._position + size]
        if len(part) < size:
            raise _UnsupportedCommand
        self._position += size
        return part

    def byte(self) -> int:
        return self.take(1)[0]

    def half(self) -> int:
        return int.from_bytes(self.take(2), "little")

    def word(self) -> int:
        return int.from_bytes(self.take(4), "little")


def _ignore(size: int, *reply: int) -> Callable[[_Command], bytes]:

    def run(command: _Command) -> bytes:
        command.take(size)
        return bytes([_OK, *reply])

    return run


class CmsisDap:
    """A probe on one board. Not thread-safe."""

    def __init__(self, board: machine.BoardModel, *, serial: str) -> None:
        self._board = board
        self._port = dap.SwDebugPort(board, board.port_ids)
        self._reset_held = False
        texts = {1: "utvm", 2: "utvm virtual CMSIS-DAP", 3: serial, 4: "2.1.0"}
        self._info = {number: text.encode() + b"\0" for number, text in texts.items()}
        self._info |= {0xF0: bytes([_SWD_ONLY]), 0xFE: bytes([_PACKETS]), 0xFF: struct.pack("<H", PACKET_BYTES)}
        self._commands: dict[int, Callable[[_Command], bytes]] = {
            0x00: self._read_info,
            0x01: _ignore(2),  # host status: LEDs are not modelled
            0x02: self._connect,
            0x03: self._disconnect,
            0x04: self._configure_transfers,
            0x05: self._transfer,
            0x06: self._transfer_block,
            0x08: self._write_abort,
            0x09: _ignore(2),  # delay: the board's time is virtual
            0x0A: _ignore(0, 0),  # reset target: there is no board-specific sequence
            0x10: self._drive_pins,
            0x11: lambda command: bytes([_OK if command.word() else _ERROR]),  # set clock
            0x12: self._sequence,
            0x13: _ignore(1),  # configure SWD
            0x1D: self._swd_sequence,
        }
        self.power_on()

    def power_on(self) -> None:
        """Reset the probe, as plugging it in does; the board's debug port keeps its state."""
        if self._reset_held:
            self._board.release_reset()
        self._reset_held = False
        self._connected = False
        self._match_tries = 1
        self._match_mask = 0xFFFFFFFF

    def lose_target(self) -> None:
        """Reset the debug port after a power cycle of the board."""
        self._port.power_on()

    def execute(self, command: bytes) -> bytes:
        """Run one command and return its response, which may be empty."""
        if not command or command[0] == 0x07:  # an abort of a transfer; none is under way
            return b""
        run = self._commands.get(command[0])
        if run is None:
            return bytes([_ERROR])
        try:
            return command[:1] + run(_Command(command[1:]))
        except _UnsupportedCommand:
            return bytes([command[0], _ERROR])

    def _read_info(self, command: _Command) -> bytes:
        info = self._info.get(command.byte(), b"")
        return bytes([len(info)]) + info

    def _connect(self, command: _Command) -> bytes:
        self._connected = command.byte() in (0, _PORT_SWD)
        return bytes([_PORT_SWD if self._connected else 0])

    def _disconnect(self, _command: _Command) -> bytes:
        self._connected = False
        return bytes([_OK])

    def _drive_pins(self, command: _Command) -> bytes:
        levels, selected = command.byte(), command.byte()
        command.word()
        if selected & _NRESET:
            hold = not levels & _NRESET
            if hold and not self._reset_held:
                self._board.hold_reset()
            elif self._reset_held and not hold:
                self._board.release_reset()
            self._reset_held = hold
        return bytes([_IDLE_PINS | (0 if self._reset_held else _NRESET)])

    def _sequence(self, command: _Command) -> bytes:
        command.take(-(-(command.byte() or 256) // 8))
        return bytes([_OK])

    def _swd_sequence(self, command: _Command) -> bytes:
        data = b""
        for _ in range(command.byte()):
            kind = command.byte()
            size = -(-(kind & 0x3F or 64) // 8)
            if kind & 0x80:
                data += b"\xff" * size
            else:
                command.take(size)
        if len(data) + _RESPONSE_HEAD > PACKET_BYTES:
            raise _UnsupportedCommand
        return bytes([_OK]) + data

    def _configure_transfers(self, command: _Command) -> bytes:
        _idle, _waits = command.byte(), command.half()  # the port is never busy
        self._match_tries = 1 + command.half()
        return bytes([_OK])

    def _write_abort(self, command: _Command) -> bytes:
        command.byte()
        self._port.write(dap.DP_ABORT, command.word())
        return bytes([_OK])

    def _transfer(self, command: _Command) -> bytes:
        command.byte()
        count = command.byte()
        done, ack, written, data = 0, self._first_ack(), False, bytearray()
        while done < count and ack == _ACK_OK:
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
                raise _UnsupportedCommand
        if written and ack == _ACK_OK:
            ack = self._port_ack()
        return bytes([done, ack]) + data

    def _transfer_block(self, command: _Command) -> bytes:
        command.byte()
        count, request = command.half(), command.byte()
        done, ack, data = 0, self._first_ack(), bytearray()
        if request & _READ and 4 * count + _RESPONSE_HEAD > PACKET_BYTES:
            raise _UnsupportedCommand
        while done < count and ack == _ACK_OK:
            if request & _READ:
                ack, value = self._read(request)
                data += struct.pack("<I", value) if ack == _ACK_OK else b""
            else:
                ack = self._write(request, command.word())
            done += ack == _ACK_OK
        if not request & _READ and ack == _ACK_OK:
            ack = self._port_ack()
        return struct.pack("<HB", done, ack) + data

    def _first_ack(self) -> int:
        return _ACK_OK if self._connected and self._board.debuggable else _ACK_NONE

    def _port_ack(self) -> int:
        return _ACK_FAULT if self._port.failed else _ACK_OK

    def _read(self, request: int) -> tuple[int, int]:
        register = request & _REGISTER
        if self._port.failed and (request & _ACCESS_PORT or register not in (dap.DP_DPIDR, dap.DP_CTRL_STAT)):
            return _ACK_FAULT, 0
        if not request & _ACCESS_PORT:
            return _ACK_OK, self._port.read(register)
        # The probe reads RDBUFF: the host gets the register that it requested.
        self._port.read_ap(register)
        return self._port_ack(), self._port.read(dap.DP_RDBUFF)

    def _write(self, request: int, value: int) -> int:
        register = request & _REGISTER
        # IHI 0031, section B4.2.4: with a sticky error only ABORT has an effect.
        if self._port.failed and (request & _ACCESS_PORT or register != dap.DP_ABORT):
            return _ACK_FAULT
        if request & _ACCESS_PORT:
            self._port.write_ap(register, value)
        else:
            self._port.write(register, value)
        return _ACK_OK

    def _read_until_match(self, request: int, value: int) -> int:
        for _ in range(self._match_tries):
            ack, current = self._read(request)
            if ack != _ACK_OK:
                return ack
            if current & self._match_mask == value:
                return _ACK_OK
        return _ACK_OK | _MISMATCH
