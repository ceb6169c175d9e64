# SPDX-License-Identifier: Apache-2.0
"""The virtual probes as USB devices: ST-Links with their virtual COM port, and CMSIS-DAP version 2."""

import struct
import threading
import time
from collections.abc import Callable

from utvm.virtual import cmsis_dap, console, dap, machine, stlink
from utvm.virtual.usb import MAKER, device

_DEBUG_IN, _DEBUG_OUT, _TRACE_IN = 0x81, 0x01, 0x82
_PORT_NOTIFY, _PORT_IN, _PORT_OUT = 0x83, 0x84, 0x02
_PACKET = 64

_DEBUG = 0xF2
_WRITES = (0x08, 0x0D, 0x48, 0x50)  # memory: the size of the data is in the command
_READS = (0x07, 0x0C, 0x47, 0x54)
_MISC_OUT, _MISC_IN = 0x51, 0x52
_TRACE_SIZE = b"\xf2\x42"
_STATUS_BYTES = 2
# Sizes of replies; other commands reply with a status. Over TCP, the host sends the size.
_GROUP_REPLY_BYTES = {0xF1: 6, 0xF3: 0, 0xF5: 2, 0xF7: 8, 0xFB: 12}
_DEBUG_REPLY_BYTES = {0x21: 0, 0x31: 12, 0x33: 8, 0x36: 8, 0x3A: 88, 0x3E: 12, 0x45: 8, 0x53: 8, 0x61: 8, 0x62: 52}
# Endpoints of the V2: commands, and trace.
_V2_OUT, _V2_TRACE = 0x02, 0x83


class StLinkProbe(device.UsbDevice):
    """An ST-Link, by default the V2-1 of a Nucleo board, with its numbers and debug endpoints.

    Like ST's firmware without mass storage, it has none: the interfaces of the COM port follow the debug
    interface; a V2 has none. A V3 has the numbers and commands of one, at full speed. ``latency`` is in seconds
    per command.
    """

    def __init__(
        self,
        board: machine.BoardModel,
        *,
        serial: str,
        backlog: console.Backlog,
        type_in: Callable[[bytes], None],
        latency: float = 0.0,
        product: int = stlink.V2_1,
    ) -> None:
        self._probe = stlink.StLink(board, product)
        self._latency = latency
        self._port = None if product == stlink.V2 else SerialPort(backlog, type_in, first_interface=1)
        addresses = (_DEBUG_IN, _DEBUG_OUT, _TRACE_IN) if self._port else (_DEBUG_IN, _V2_OUT, _V2_TRACE)
        self._trace = addresses[2]
        endpoints = (device.Endpoint(address, device.Transfer.BULK, _PACKET) for address in addresses)
        debug = device.Interface((0xFF, 0xFF, 0xFF), "ST-Link Debug", tuple(endpoints))
        super().__init__(
            device.DeviceDescriptors(
                speed=device.Speed.FULL,
                vendor=stlink.USB_VENDOR,
                product=product,
                version=0x0100,
                # Several functions, some with several interfaces.
                codes=(0xEF, 0x02, 0x01) if self._port else (0, 0, 0),
                manufacturer=MAKER,
                name="Virtual ST-Link",
                serial_number=serial,
                interfaces=(debug, *(self._port.interfaces if self._port else ())),
            )
        )

    def plug_in(self, cable: device.Cable) -> None:
        super().plug_in(cable)
        if self._port:
            self._port.plug_in(cable)

    def reset(self) -> None:
        super().reset()
        self._command = self._data = b""
        self._missing = 0

    def class_request(self, setup: device.SetupPacket, data: bytes) -> bytes | None:
        return self._port.request(setup, data) if self._port else None

    def take(self, cable: device.Cable, endpoint: int, data: bytes) -> None:
        """Receive a command, its data, or console input."""
        if self._port and endpoint == _PORT_OUT:
            self._port.type_in(data)
            return
        if self._missing > 0:
            self._data += data
            self._missing -= len(data)
        else:
            self._command, self._data = data[: stlink.COMMAND_SIZE].ljust(stlink.COMMAND_SIZE, b"\0"), b""
            self._missing = _data_bytes(self._command)
        if self._missing <= 0:
            self._execute(cable)

    def lose_target(self) -> None:
        self._probe.lose_target()

    def _execute(self, cable: device.Cable) -> None:
        started = time.monotonic()
        self._missing = 0
        with self.wires:
            reply = self._probe.execute(self._command, self._data, self._reply_bytes())
        dap.wait_until(started + self._latency)
        if reply:
            cable.send(_DEBUG_IN, reply)
        if self._command[:2] == _TRACE_SIZE and (size := int.from_bytes(reply, "little")):
            cable.send(self._trace, self._probe.read_trace(size))

    def _reply_bytes(self) -> int:
        group, order = self._command[:2]
        if group != _DEBUG:
            return _GROUP_REPLY_BYTES.get(group, _STATUS_BYTES)
        (size,) = struct.unpack_from("<H", self._command, 6)
        if order in _READS:
            return min(max(int(size), 2), stlink.MAX_BLOCK_BYTES)  # one byte is sent as two
        if order == _MISC_IN:
            return self._probe.misc_bytes
        return 0 if order in (*_WRITES, _MISC_OUT) else _DEBUG_REPLY_BYTES.get(order, _STATUS_BYTES)


def _data_bytes(command: bytes) -> int:
    """Return the size of the data after a command; 0 above the limit, which the probe rejects at once."""
    size = 0
    if command[0] == _DEBUG and command[1] in _WRITES:
        size = int(struct.unpack_from("<H", command, 6)[0])
    elif command[0] == _DEBUG and command[1] == _MISC_OUT:
        items = int(struct.unpack_from("<I", command, 2)[0])
        size = (items + 3 & ~3) + 4 * items
    return size if size <= stlink.MAX_BLOCK_BYTES else 0


_COMMUNICATIONS = (0x02, 0x02, 0x01)  # abstract control model, AT commands
_DATA = (0x0A, 0x00, 0x00)

# Requests with their request types (PSTN, table 13)
_SET_LINE_CODING = (0x21, 0x20)
_GET_LINE_CODING = (0xA1, 0x21)
_SET_CONTROL_LINE_STATE = (0x21, 0x22)
_SEND_BREAK = (0x21, 0x23)

_LINE_CODING_BYTES = 7
_115200_8N1 = struct.pack("<IBBB", 115200, 0, 0, 8)
_MAX_CHUNK = 4096
_POLL = 0.2  # seconds between checks of the cable


class SerialPort:
    """The virtual COM port of a probe: the board's console.

    It is a communications device of the abstract control model (USB CDC 1.2 and its PSTN subclass 1.2) with a
    control and a data interface. The line coding is stored without effect. Each byte of the backlog is sent once:
    a new host continues at the first unread byte.
    """

    def __init__(self, backlog: console.Backlog, type_in: Callable[[bytes], None], *, first_interface: int) -> None:
        self._backlog = backlog
        self.type_in = type_in
        self._position = 0
        self._printing = threading.Lock()  # the thread of an unplugged cable may still run
        self._coding = _115200_8N1
        control, data = first_interface, first_interface + 1
        functional = (
            bytes([5, 0x24, 0x00, 0x10, 0x01])  # header: CDC 1.10
            + bytes([5, 0x24, 0x01, 0x00, data])  # call management: none
            + bytes([4, 0x24, 0x02, 0x02])  # line coding and control line state
            + bytes([5, 0x24, 0x06, control, data])  # union of the two interfaces
        )
        # Nothing is reported on the notification endpoint: the line has no carrier.
        notify = device.Endpoint(_PORT_NOTIFY, device.Transfer.INTERRUPT, 10, 255)
        ports = tuple(device.Endpoint(address, device.Transfer.BULK, 64) for address in (_PORT_OUT, _PORT_IN))
        self.interfaces = (
            device.Interface(_COMMUNICATIONS, "ST-Link VCP Ctrl", (notify,), functional, function_size=2),
            device.Interface(_DATA, "ST-Link VCP Data", ports),
        )

    def plug_in(self, cable: device.Cable) -> None:
        """Print to a host until its cable is unplugged."""
        threading.Thread(target=self._print_to, args=(cable,), daemon=True, name="virtual COM port").start()

    def request(self, setup: device.SetupPacket, data: bytes) -> bytes | None:
        """Reply to a request to the control interface."""
        request = (setup.request_type, setup.request)
        if request == _GET_LINE_CODING:
            return self._coding
        if request == _SET_LINE_CODING and len(data) == _LINE_CODING_BYTES:
            self._coding = data
            return b""
        return b"" if request in (_SET_CONTROL_LINE_STATE, _SEND_BREAK) else None

    def _print_to(self, cable: device.Cable) -> None:
        # Read on request only: bytes that this host does not request are left for the next one.
        while cable.wait_for_request(_PORT_IN):
            with self._printing:
                data, after = self._backlog.read(self._position, _POLL)
                part = data[:_MAX_CHUNK]
                if not part:
                    continue
                self._position = after - len(data) + len(part)
                try:
                    cable.send(_PORT_IN, part)
                except OSError:
                    return


_RESPONSES, _REQUESTS = 0x81, 0x01


class CmsisDapProbe(device.UsbDevice):
    """A CMSIS-DAP probe, version 2: a vendor interface with two bulk endpoints, with the numbers of Arm's DAPLink.

    Hosts identify it by "CMSIS-DAP" in the interface's name. ``latency`` is in seconds per command.
    """

    def __init__(self, board: machine.BoardModel, *, serial: str, latency: float = 0.0) -> None:
        self._probe = cmsis_dap.CmsisDap(board, serial=serial)
        self._latency = latency
        # The order matters: commands use the first endpoint, responses the second.
        endpoints = tuple(
            device.Endpoint(address, device.Transfer.BULK, cmsis_dap.PACKET_BYTES)
            for address in (_REQUESTS, _RESPONSES)
        )
        super().__init__(
            device.DeviceDescriptors(
                speed=device.Speed.HIGH,
                vendor=0x0D28,
                product=0x0204,
                version=0x0100,
                codes=(0, 0, 0),
                manufacturer=MAKER,
                name="Virtual CMSIS-DAP",
                serial_number=serial,
                interfaces=(device.Interface((0xFF, 0x00, 0x00), "CMSIS-DAP v2", endpoints),),
            )
        )

    def reset(self) -> None:
        super().reset()
        self._probe.power_on()

    def take(self, cable: device.Cable, endpoint: int, data: bytes) -> None:
        """Execute a command: one packet, or the packets of one transfer."""
        started = time.monotonic()
        with self.wires:
            response = self._probe.execute(data)
        dap.wait_until(started + self._latency)
        if response:
            cable.send(_RESPONSES, response)

    def lose_target(self) -> None:
        self._probe.lose_target()
