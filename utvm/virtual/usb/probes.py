# SPDX-License-Identifier: Apache-2.0
"""The ST-Link/V2-1 as a USB device: the debug interface and the virtual COM port.

The numbers and the endpoints of the debug interface are those of the probe on a Nucleo board, as OpenOCD's driver
and Linux look at them; its names say that it is virtual. Its mass storage is left out, as in ST's own firmware
without it; the COM port's interfaces therefore follow on the debug interface.
"""

import struct
import threading
import time
from collections.abc import Callable

from utvm.virtual.cmsis_dap import PACKET_BYTES, CmsisDap
from utvm.virtual.console import Backlog
from utvm.virtual.dap import wait_until
from utvm.virtual.stlink import COMMAND_SIZE, MAX_BLOCK_BYTES, StLink, TargetBoard
from utvm.virtual.usb import MAKER
from utvm.virtual.usb.device import (
    Cable,
    DeviceDescriptors,
    Endpoint,
    Interface,
    SetupPacket,
    Speed,
    Transfer,
    UsbDevice,
)

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


_COMMUNICATIONS = (0x02, 0x02, 0x01)  # abstract control model, AT commands
_DATA = (0x0A, 0x00, 0x00)

# Requests (PSTN, table 13), with their request types
_SET_LINE_CODING = (0x21, 0x20)
_GET_LINE_CODING = (0xA1, 0x21)
_SET_CONTROL_LINE_STATE = (0x21, 0x22)
_SEND_BREAK = (0x21, 0x23)

_LINE_CODING_BYTES = 7
_115200_8N1 = struct.pack("<IBBB", 115200, 0, 0, 8)
_MOST_AT_ONCE = 4096
_LOOK_UP = 0.2  # seconds between two looks at whether the cable is still there


class SerialPort:
    """The function that carries a console.

    What the board printed since it was switched on comes through once, as far as the backlog reaches. A host that
    was plugged in later goes on where the one before it stopped to read.

    Args:
        first_interface: the number of its control interface.
        notify, send, receive: addresses of its endpoints, as the host calls their directions.
        type_in: receives what the host sends.
    """

    def __init__(
        self,
        backlog: Backlog,
        type_in: Callable[[bytes], None],
        *,
        first_interface: int,
        notify: int,
        send: int,
        receive: int,
    ) -> None:
        self.endpoint = send
        self._receive = receive
        self._backlog = backlog
        self._type_in = type_in
        self._position = 0
        self._printing = threading.Lock()  # a cable that was pulled just now has its thread still
        self._coding = _115200_8N1
        control, data = first_interface, first_interface + 1
        functional = (
            bytes([5, 0x24, 0x00, 0x10, 0x01])  # header: CDC 1.10
            + bytes([5, 0x24, 0x01, 0x00, data])  # call management: none
            + bytes([4, 0x24, 0x02, 0x02])  # line coding and control line state
            + bytes([5, 0x24, 0x06, control, data])  # union of the two interfaces
        )
        # Nothing is ever reported on the first endpoint: the line has no carrier that could be lost.
        self.interfaces = (
            Interface(
                _COMMUNICATIONS,
                "ST-Link VCP Ctrl",
                (Endpoint(notify, Transfer.INTERRUPT, 10, 255),),
                functional,
                heads=2,
            ),
            Interface(
                _DATA,
                "ST-Link VCP Data",
                (Endpoint(receive, Transfer.BULK, 64), Endpoint(send, Transfer.BULK, 64)),
            ),
        )

    def plug_in(self, cable: Cable) -> None:
        """Print to a host until its cable is pulled."""
        threading.Thread(target=self._print_to, args=(cable,), daemon=True, name="virtual COM port").start()

    def request(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Answer a request to the control interface."""
        asked = (setup.request_type, setup.request)
        if asked == _GET_LINE_CODING:
            return self._coding
        if asked == _SET_LINE_CODING and len(data) == _LINE_CODING_BYTES:
            self._coding = data
            return b""
        return b"" if asked in (_SET_CONTROL_LINE_STATE, _SEND_BREAK) else None

    def take(self, data: bytes) -> None:
        """Type to the board."""
        self._type_in(data)

    def takes(self, endpoint: int) -> bool:
        """Whether what the host sends to an endpoint is for this function."""
        return endpoint == self._receive

    def _print_to(self, cable: Cable) -> None:
        # Fetched when the host asks: what it never asks for is there for the next one.
        while cable.wait_for_request(self.endpoint):
            with self._printing:
                data, after = self._backlog.read(self._position, _LOOK_UP)
                part = data[:_MOST_AT_ONCE]
                if not part:
                    continue
                self._position = after - len(data) + len(part)
                try:
                    cable.send(self.endpoint, part)
                except OSError:
                    return


_IN = 0x81
_OUT = 0x01


class CmsisDapProbe(UsbDevice):
    """A CMSIS-DAP probe on a USB cable.

    Args:
        board: what the probe is wired to.
        serial: its serial number.
        latency: seconds each command takes.
    """

    def __init__(self, board: TargetBoard, *, serial: str, latency: float = 0.0) -> None:
        self._probe = CmsisDap(board, serial=serial)
        self._latency = latency
        # The order matters: commands go to the first endpoint, responses come from the second.
        ends = tuple(Endpoint(address, Transfer.BULK, PACKET_BYTES) for address in (_OUT, _IN))
        super().__init__(
            DeviceDescriptors(
                speed=Speed.HIGH,
                vendor=0x0D28,
                product=0x0204,
                version=0x0100,
                codes=(0, 0, 0),
                manufacturer=MAKER,
                name="Virtual CMSIS-DAP",
                serial=serial,
                interfaces=(Interface((0xFF, 0x00, 0x00), "CMSIS-DAP v2", ends),),
            )
        )

    def reset(self) -> None:
        """Begin as after power-on."""
        super().reset()
        self._probe.power_on()

    def take(self, cable: Cable, endpoint: int, data: bytes) -> None:
        """Take a command: one packet, or the packets of one transfer."""
        started = time.monotonic()
        with self.wires:
            response = self._probe.execute(data)
        wait_until(started + self._latency)
        if response:
            cable.send(_IN, response)

    def lose_target(self) -> None:
        """Follow a power cycle of the board."""
        self._probe.lose_target()
