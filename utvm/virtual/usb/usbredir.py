# SPDX-License-Identifier: Apache-2.0
"""usbredir (USB network redirection protocol 0.7), device side, called usb-host in the protocol.

A packet is a header, a type-specific header, and data. Integers are little-endian, without padding. The length of
some headers depends on the capabilities announced by both sides in HELLO, their first packet, with a short header.
"""

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from utvm.base.storage.config import read_yaml
from utvm.virtual.usb.device import IN, SetupPacket, Transfer, UsbDevice

MAX_DATA_BYTES = 1 << 20


class PacketKind(IntEnum):
    """Kind of a packet."""

    HELLO = 0
    DEVICE_CONNECT = 1
    RESET = 3
    INTERFACE_INFO = 4
    EP_INFO = 5
    SET_CONFIGURATION = 6
    GET_CONFIGURATION = 7
    CONFIGURATION_STATUS = 8
    SET_ALT_SETTING = 9
    GET_ALT_SETTING = 10
    ALT_SETTING_STATUS = 11
    START_ISO_STREAM = 12
    STOP_ISO_STREAM = 13
    ISO_STREAM_STATUS = 14
    START_INTERRUPT_RECEIVING = 15
    STOP_INTERRUPT_RECEIVING = 16
    INTERRUPT_RECEIVING_STATUS = 17
    CANCEL_DATA_PACKET = 21
    CONTROL_PACKET = 100
    BULK_PACKET = 101
    ISO_PACKET = 102
    INTERRUPT_PACKET = 103


class RequestStatus(IntEnum):
    """Result of a request."""

    SUCCESS = 0
    CANCELLED = 1
    INVALID = 2
    STALL = 4


CAP_DEVICE_VERSION = 1 << 1
CAP_MAX_PACKET_SIZE = 1 << 4
CAP_64_BIT_IDS = 1 << 5
CAP_32_BIT_BULK_LENGTH = 1 << 6
CAPABILITIES = CAP_DEVICE_VERSION | CAP_MAX_PACKET_SIZE | CAP_64_BIT_IDS | CAP_32_BIT_BULK_LENGTH

_VERSION_BYTES = 64
_SHORT_HEADER = struct.Struct("<III")
_LONG_HEADER = struct.Struct("<IIQ")
_SHORT_BULK = struct.Struct("<BBHI")
_LONG_BULK = struct.Struct("<BBHIH")

_FROM_GUEST, _TO_GUEST = (
    {PacketKind[name]: struct.Struct(f"<{layout}") for name, layout in rows.items()}
    for rows in read_yaml(Path(__file__).with_suffix(".yaml"))[0].values()
)
_WITH_DATA = {PacketKind.CONTROL_PACKET, PacketKind.ISO_PACKET, PacketKind.INTERRUPT_PACKET}


class ProtocolError(Exception):
    """The guest violates the protocol; the connection is closed."""


@dataclass(frozen=True)
class Packet:
    """A packet; ``id`` is chosen by the sender of a request and repeated in the reply.

    ``fields`` are of the type-specific header. In a bulk packet, the two halves of the length are one field.
    """

    kind: PacketKind
    id: int = 0
    fields: tuple[int, ...] = ()
    data: bytes = b""


class PacketStream:
    """Encoder and decoder of a connection; ``shared``: both sides' capabilities, None before the guest's HELLO."""

    def __init__(self) -> None:
        self.shared: int | None = None
        self._received = bytearray()

    def hello(self, version: str) -> bytes:
        """The first packet to send."""
        name = version.encode()[: _VERSION_BYTES - 1].ljust(_VERSION_BYTES, b"\0")
        body = name + struct.pack("<I", CAPABILITIES)
        return _SHORT_HEADER.pack(PacketKind.HELLO, len(body), 0) + body

    def encode(self, packet: Packet) -> bytes:
        """Encode a packet, after the guest's HELLO."""
        body = self._own_header(packet) + packet.data
        return self._header().pack(packet.kind, len(body), packet.id) + body

    def feed(self, received: bytes) -> Iterator[Packet]:
        """Add received bytes and yield the completed packets; the first one is HELLO."""
        self._received += received
        while True:
            header = self._header()
            if len(self._received) < header.size:
                return
            number, length, identification = header.unpack_from(self._received)
            kind = self._check_header(number, length)
            end = header.size + length
            if len(self._received) < end:
                return
            body = bytes(self._received[header.size : end])
            del self._received[:end]
            yield self._decode(kind, identification, body)

    def _has(self, capability: int) -> bool:
        return bool(self.shared and self.shared & capability)

    def _header(self) -> struct.Struct:
        return _LONG_HEADER if self._has(CAP_64_BIT_IDS) else _SHORT_HEADER

    def _check_header(self, number: int, length: int) -> PacketKind:
        if length > MAX_DATA_BYTES + _LONG_BULK.size:
            raise ProtocolError(f"a packet of {length} bytes")
        if (number == PacketKind.HELLO) != (self.shared is None):
            raise ProtocolError(
                "a second HELLO" if self.shared is not None else f"packet of kind {number} before HELLO"
            )
        if number not in (PacketKind.HELLO, PacketKind.BULK_PACKET, *_FROM_GUEST):
            raise ProtocolError(f"packet of unexpected kind {number}")
        return PacketKind(number)

    def _decode(self, kind: PacketKind, identification: int, body: bytes) -> Packet:
        if kind == PacketKind.HELLO:
            return self._decode_hello(body)
        if kind == PacketKind.BULK_PACKET:
            return self._decode_bulk(identification, body)
        layout = _FROM_GUEST[kind]
        if len(body) < layout.size or (len(body) > layout.size and kind not in _WITH_DATA):
            raise ProtocolError(f"{kind.name} of {len(body)} bytes")
        fields, data = layout.unpack_from(body), body[layout.size :]
        if kind in _WITH_DATA:
            _check_data(kind, fields[0], fields[-1], data)
        return Packet(kind, identification, fields, data)

    def _decode_hello(self, body: bytes) -> Packet:
        if len(body) < _VERSION_BYTES or len(body) % 4:
            raise ProtocolError(f"HELLO of {len(body)} bytes")
        words = struct.unpack(f"<{len(body) // 4 - _VERSION_BYTES // 4}I", body[_VERSION_BYTES:])
        self.shared = CAPABILITIES & (words[0] if words else 0)
        return Packet(PacketKind.HELLO, 0, words, body[:_VERSION_BYTES].partition(b"\0")[0])

    def _decode_bulk(self, identification: int, body: bytes) -> Packet:
        layout = _LONG_BULK if self._has(CAP_32_BIT_BULK_LENGTH) else _SHORT_BULK
        if len(body) < layout.size:
            raise ProtocolError(f"BULK_PACKET of {len(body)} bytes")
        endpoint, status, low, stream, *high = layout.unpack_from(body)
        length, data = low | (high[0] << 16 if high else 0), body[layout.size :]
        _check_data(PacketKind.BULK_PACKET, endpoint, length, data)
        return Packet(PacketKind.BULK_PACKET, identification, (endpoint, status, length, stream), data)

    def _own_header(self, packet: Packet) -> bytes:
        fields = packet.fields
        if packet.kind == PacketKind.BULK_PACKET:
            endpoint, status, length, stream = fields
            if self._has(CAP_32_BIT_BULK_LENGTH):
                return _LONG_BULK.pack(endpoint, status, length & 0xFFFF, stream, length >> 16)
            return _SHORT_BULK.pack(endpoint, status, length, stream)
        if packet.kind == PacketKind.DEVICE_CONNECT:
            if self._has(CAP_DEVICE_VERSION):
                return struct.pack("<4B3H", *fields)
            return struct.pack("<4B2H", *fields[:-1])
        if packet.kind == PacketKind.EP_INFO:
            sizes = struct.pack("<32H", *fields[96:]) if self._has(CAP_MAX_PACKET_SIZE) else b""
            return bytes(fields[:96]) + sizes
        return _TO_GUEST[packet.kind].pack(*fields)


def _check_data(kind: PacketKind, endpoint: int, length: int, data: bytes) -> None:
    """Check the length of the data. A request to read from the device has none."""
    expected = 0 if endpoint & 0x80 else length
    if len(data) != expected:
        raise ProtocolError(f"{kind.name} with {len(data)} bytes of data, expected {expected}")
    if length > MAX_DATA_BYTES:
        raise ProtocolError(f"{kind.name} requests {length} bytes")


_VERSION = "utvm virtual probe"
_RECEIVE_BYTES = 1 << 16
_ENDPOINTS = 32
_NO_ENDPOINT = 255
_CONTROL = 0
# Limits for a guest that sends without reading.
_MAX_REQUESTS = 256
_MAX_UNFETCHED_BYTES = 1 << 18


@dataclass
class _Outlet:
    """An endpoint to the guest, with pending requests and pending data."""

    requests: deque[tuple[int, int, int]] = field(default_factory=deque)  # id, length, stream
    messages: deque[bytes] = field(default_factory=deque)


class UsbHost:
    """A device on a connection, and the device's cable; the caller closes the connection."""

    def __init__(self, connection: socket.socket, device: UsbDevice) -> None:
        self._connection = connection
        self._device = device
        self._stream = PacketStream()
        self._open = True
        self._outlets = {address: _Outlet() for address in device.descriptors.endpoints if address & IN}
        self._changed = threading.Condition()  # guards the outlets and the connection
        self._handlers: dict[PacketKind, Callable[[Packet], None]] = {
            PacketKind.HELLO: self._introduce,
            PacketKind.RESET: self._reset,
            PacketKind.SET_CONFIGURATION: self._set_configuration,
            PacketKind.GET_CONFIGURATION: self._reply_configuration,
            PacketKind.SET_ALT_SETTING: self._set_alt_setting,
            PacketKind.GET_ALT_SETTING: self._get_alt_setting,
            PacketKind.START_ISO_STREAM: self._refuse_iso,
            PacketKind.STOP_ISO_STREAM: self._refuse_iso,
            PacketKind.START_INTERRUPT_RECEIVING: self._interrupt_receiving,
            PacketKind.STOP_INTERRUPT_RECEIVING: self._interrupt_receiving,
            PacketKind.CANCEL_DATA_PACKET: self._cancel,
            PacketKind.CONTROL_PACKET: self._control,
            PacketKind.BULK_PACKET: self._bulk,
            # No device here has endpoints for these.
            PacketKind.ISO_PACKET: lambda packet: None,
            PacketKind.INTERRUPT_PACKET: lambda packet: self._reply(
                packet, PacketKind.INTERRUPT_PACKET, packet.fields[0], RequestStatus.INVALID, 0
            ),
        }

    def run(self) -> None:
        """Serve the guest until it closes the connection."""
        try:
            self._connection.sendall(self._stream.hello(_VERSION))
            self._device.plug_in(self)
            while received := self._connection.recv(_RECEIVE_BYTES):
                for packet in self._stream.feed(received):
                    self._handlers[packet.kind](packet)
        finally:
            with self._changed:
                self._open = False
                self._changed.notify_all()

    # The cable

    def send(self, endpoint: int, data: bytes) -> None:
        """Provide data for the guest to fetch."""
        with self._changed:
            self._outlets[endpoint].messages.append(data)
            self._match(endpoint)

    def wait_for_request(self, endpoint: int) -> bool:
        """Wait until the guest requests more than was sent. False if the connection is closed."""
        outlet = self._outlets[endpoint]
        with self._changed:
            self._changed.wait_for(lambda: not self._open or (outlet.requests and not outlet.messages))
            return self._open

    # Packets from the guest

    def _introduce(self, _packet: Packet) -> None:
        self._announce()
        device = self._device.descriptors
        fields = (device.speed, *device.codes, device.vendor, device.product, device.version)
        self._send(Packet(PacketKind.DEVICE_CONNECT, 0, fields))

    def _announce(self) -> None:
        """Describe interfaces and endpoints, which must precede their use."""
        interfaces = self._device.descriptors.interfaces
        columns = [range(len(interfaces)), *zip(*(interface.codes for interface in interfaces), strict=True)]
        padded = (value for column in columns for value in [*column, *[0] * (_ENDPOINTS - len(column))])
        self._send(Packet(PacketKind.INTERFACE_INFO, 0, (len(interfaces), *padded)))
        kinds, intervals, owners, sizes = [_NO_ENDPOINT] * _ENDPOINTS, [0] * 32, [0] * 32, [0] * 32
        for number in (0, _ENDPOINTS // 2):  # the control endpoint, in both directions
            kinds[number], sizes[number] = _CONTROL, 64
        for address, (owner, endpoint) in self._device.descriptors.endpoints.items():
            number = address & 0xF | (_ENDPOINTS // 2 if address & IN else 0)
            kinds[number], intervals[number] = endpoint.transfer, endpoint.interval
            owners[number], sizes[number] = owner, endpoint.packet
        self._send(Packet(PacketKind.EP_INFO, 0, (*kinds, *intervals, *owners, *sizes)))

    def _reset(self, _packet: Packet) -> None:
        self._device.reset()
        self._drop_transfers()

    def _set_configuration(self, packet: Packet) -> None:
        valid = self._device.configure(packet.fields[0])
        if valid:
            self._drop_transfers()
            self._announce()
        self._reply_configuration(packet, valid)

    def _reply_configuration(self, packet: Packet, valid: bool = True) -> None:
        self._reply(packet, PacketKind.CONFIGURATION_STATUS, _status(valid), self._device.configuration)

    def _set_alt_setting(self, packet: Packet) -> None:
        interface, setting = packet.fields
        valid = interface < len(self._device.descriptors.interfaces) and setting == 0
        if valid:
            self._announce()
        self._reply(packet, PacketKind.ALT_SETTING_STATUS, _status(valid), interface, 0)

    def _get_alt_setting(self, packet: Packet) -> None:
        (interface,) = packet.fields
        valid = interface < len(self._device.descriptors.interfaces)
        self._reply(packet, PacketKind.ALT_SETTING_STATUS, _status(valid), interface, 0)

    def _refuse_iso(self, packet: Packet) -> None:
        self._reply(packet, PacketKind.ISO_STREAM_STATUS, RequestStatus.INVALID, packet.fields[0])

    def _interrupt_receiving(self, packet: Packet) -> None:
        address = packet.fields[0]
        owned = self._device.descriptors.endpoints.get(address)
        valid = owned is not None and bool(address & IN) and owned[1].transfer == Transfer.INTERRUPT
        self._reply(packet, PacketKind.INTERRUPT_RECEIVING_STATUS, _status(valid), address)

    def _cancel(self, packet: Packet) -> None:
        with self._changed:
            for address, outlet in self._outlets.items():
                for request in outlet.requests:
                    if request[0] == packet.id:
                        outlet.requests.remove(request)
                        self._reply_bulk(packet.id, address, RequestStatus.CANCELLED, stream=request[2])
                        return

    def _control(self, packet: Packet) -> None:
        endpoint, request, request_type, _, value, index, length = packet.fields
        reply = None
        if endpoint & IN == request_type & IN:
            reply = self._device.control(SetupPacket(request_type, request, value, index, length), packet.data)
        status = RequestStatus.STALL if reply is None else RequestStatus.SUCCESS
        data = reply if reply and endpoint & IN else b""
        size = len(data) if endpoint & IN or reply is None else length
        fields = (endpoint, request, request_type, status, value, index, size)
        self._send(Packet(PacketKind.CONTROL_PACKET, packet.id, fields, data))

    def _bulk(self, packet: Packet) -> None:
        address, _, length, stream = packet.fields
        refusal = self._refusal(address)
        if refusal is not None:
            self._reply_bulk(packet.id, address, refusal, stream=stream)
        elif address & IN:
            with self._changed:
                self._outlets[address].requests.append((packet.id, length, stream))
                self._match(address)
                self._changed.notify_all()
        else:
            self._device.take(self, address, packet.data)
            self._reply_bulk(packet.id, address, RequestStatus.SUCCESS, length=length, stream=stream)

    def _refusal(self, address: int) -> RequestStatus | None:
        owned = self._device.descriptors.endpoints.get(address)
        if owned is None or owned[1].transfer != Transfer.BULK or not self._device.configuration:
            return RequestStatus.INVALID
        if address in self._device.halted:
            return RequestStatus.STALL
        with self._changed:
            if address & IN:
                return RequestStatus.INVALID if len(self._outlets[address].requests) >= _MAX_REQUESTS else None
            unfetched = sum(len(message) for outlet in self._outlets.values() for message in outlet.messages)
        return RequestStatus.STALL if unfetched > _MAX_UNFETCHED_BYTES else None

    # Packets to the guest

    def _drop_transfers(self) -> None:
        with self._changed:
            for address, outlet in self._outlets.items():
                for identification, _length, stream in outlet.requests:
                    self._reply_bulk(identification, address, RequestStatus.CANCELLED, stream=stream)
                outlet.requests.clear()
                outlet.messages.clear()

    def _match(self, address: int) -> None:
        """Send waiting data for waiting requests. Called with the lock held."""
        outlet = self._outlets[address]
        while outlet.requests and outlet.messages:
            identification, length, stream = outlet.requests.popleft()
            message = outlet.messages.popleft()
            if len(message) > length:
                outlet.messages.appendleft(message[length:])
            part = message[:length]
            self._reply_bulk(identification, address, RequestStatus.SUCCESS, len(part), stream, part)

    def _reply_bulk(
        self, number: int, address: int, status: RequestStatus, length: int = 0, stream: int = 0, data: bytes = b""
    ) -> None:
        self._send(Packet(PacketKind.BULK_PACKET, number, (address, status, length, stream), data))

    def _reply(self, packet: Packet, kind: PacketKind, *fields: int) -> None:
        self._send(Packet(kind, packet.id, fields))

    def _send(self, packet: Packet) -> None:
        with self._changed:
            self._connection.sendall(self._stream.encode(packet))


def _status(valid: bool) -> RequestStatus:
    return RequestStatus.SUCCESS if valid else RequestStatus.INVALID
