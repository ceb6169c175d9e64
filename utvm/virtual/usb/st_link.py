# SPDX-License-Identifier: Apache-2.0
"""The ST-Link/V2-1 as a USB device: the debug interface and the virtual COM port.

The numbers and the endpoints of the debug interface are those of the probe on a Nucleo board, as OpenOCD's driver
and Linux look at them; its names say that it is virtual. Its mass storage is left out, as in ST's own firmware
without it; the COM port's interfaces therefore follow on the debug interface.
"""

import struct
import time
from collections.abc import Callable

from utvm.virtual.console import Backlog
from utvm.virtual.pacing import wait_until
from utvm.virtual.stlink import COMMAND_SIZE, MAX_BLOCK_BYTES, StLink, TargetBoard
from utvm.virtual.usb import MAKER
from utvm.virtual.usb.descriptors import DeviceDescriptors, Endpoint, Interface, Speed, Transfer
from utvm.virtual.usb.device import Cable, SetupPacket, UsbDevice
from utvm.virtual.usb.serial_port import SerialPort

_DEBUG_IN = 0x81
_DEBUG_OUT = 0x01
_TRACE_IN = 0x82
_PORT_NOTIFY = 0x83
_PORT_IN = 0x84
_PORT_OUT = 0x02
_PACKET = 64

_DEBUG = 0xF2
_WRITES = (0x08, 0x0D, 0x48, 0x50)  # memory: the number of bytes that follow is in the command
_MISC_OUT = 0x51
_MISC_IN = 0x52
_READS = (0x07, 0x0C, 0x47, 0x54)
_STATUS_BYTES = 2
# What is not here answers with a status alone. Over TCP the host says how much it will read; here the probe knows.
_GROUP_REPLY_BYTES = {0xF1: 6, 0xF3: 0, 0xF5: 2, 0xF7: 8}
_DEBUG_REPLY_BYTES = {0x21: 0, 0x31: 12, 0x33: 8, 0x36: 8, 0x3A: 88, 0x3E: 12, 0x45: 8, 0x53: 8}


class StLinkProbe(UsbDevice):
    """An ST-Link/V2-1 on a USB cable.

    Args:
        board: what the probe is wired to.
        serial: its serial number.
        backlog: what the board prints.
        type_in: receives what the host types to the board.
        latency: seconds each command takes.
    """

    def __init__(
        self,
        board: TargetBoard,
        *,
        serial: str,
        backlog: Backlog,
        type_in: Callable[[bytes], None],
        latency: float = 0.0,
    ) -> None:
        self._probe = StLink(board)
        self._latency = latency
        self._port = SerialPort(
            backlog, type_in, first_interface=1, notify=_PORT_NOTIFY, send=_PORT_IN, receive=_PORT_OUT
        )
        debug = Interface(
            (0xFF, 0xFF, 0xFF),
            "ST-Link Debug",
            tuple(Endpoint(address, Transfer.BULK, _PACKET) for address in (_DEBUG_IN, _DEBUG_OUT, _TRACE_IN)),
        )
        super().__init__(
            DeviceDescriptors(
                speed=Speed.FULL,
                vendor=0x0483,
                product=0x374B,
                version=0x0100,
                codes=(0xEF, 0x02, 0x01),  # several functions, some of several interfaces
                manufacturer=MAKER,
                name="Virtual ST-Link",
                serial=serial,
                interfaces=(debug, *self._port.interfaces),
            )
        )

    def plug_in(self, cable: Cable) -> None:
        """Start anew; the COM port prints to this cable from now on."""
        super().plug_in(cable)
        self._port.plug_in(cable)

    def reset(self) -> None:
        """Forget a command whose data have not come."""
        super().reset()
        self._command = b""
        self._data = b""
        self._missing = 0

    def own_request(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Answer for the COM port; the debug interface has no requests."""
        return self._port.request(setup, data)

    def take(self, cable: Cable, endpoint: int, data: bytes) -> None:
        """Take a command, its data, or what is typed to the board."""
        if self._port.takes(endpoint):
            self._port.take(data)
        elif self._missing > 0:
            self._data += data
            self._missing -= len(data)
            if self._missing <= 0:
                self._execute(cable)
        else:
            self._command = data[:COMMAND_SIZE].ljust(COMMAND_SIZE, b"\0")
            self._data = b""
            self._missing = _data_bytes(self._command)
            if self._missing == 0:
                self._execute(cable)

    def lose_target(self) -> None:
        """Follow a power cycle of the board."""
        self._probe.lose_target()

    def _execute(self, cable: Cable) -> None:
        started = time.monotonic()
        self._missing = 0
        with self.wires:
            reply = self._probe.execute(self._command, self._data, self._reply_bytes())
        wait_until(started + self._latency)
        if reply:
            cable.send(_DEBUG_IN, reply)

    def _reply_bytes(self) -> int:
        group, order = self._command[:2]
        if group != _DEBUG:
            return _GROUP_REPLY_BYTES.get(group, _STATUS_BYTES)
        (size,) = struct.unpack_from("<H", self._command, 6)
        if order in _READS:
            # A single byte comes as two.
            return min(max(int(size), 2), MAX_BLOCK_BYTES)
        if order == _MISC_IN:
            return self._probe.misc_bytes
        return 0 if order in (*_WRITES, _MISC_OUT) else _DEBUG_REPLY_BYTES.get(order, _STATUS_BYTES)


def _data_bytes(command: bytes) -> int:
    """Return how much follows a command. More than the probe takes is refused by it, without waiting for it."""
    if command[0] != _DEBUG:
        return 0
    if command[1] in _WRITES:
        size = int(struct.unpack_from("<H", command, 6)[0])
    elif command[1] == _MISC_OUT:
        items = int(struct.unpack_from("<I", command, 2)[0])
        size = (items + 3 & ~3) + 4 * items
    else:
        return 0
    return size if size <= MAX_BLOCK_BYTES else 0
