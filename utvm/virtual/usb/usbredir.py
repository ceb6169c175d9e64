# SPDX-License-Identifier: Apache-2.0
"""The wire format of usbredir (USB network redirection protocol 0.7), as spoken by the end that has the device.

Packets are a header and, behind it, a header of their kind's own and data. All numbers are little-endian, nothing
is padded. How long some headers are depends on the capabilities that both ends announce in their first packet,
HELLO, whose own header is always the short one.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

MAX_DATA_BYTES = 1 << 20


class PacketKind(IntEnum):
    """What a packet is."""

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
    """How a request went."""

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

# What the other end may send, with its header. HELLO and BULK_PACKET have several and are not here.
_FROM_GUEST = {
    PacketKind.RESET: struct.Struct("<"),
    PacketKind.SET_CONFIGURATION: struct.Struct("<B"),
    PacketKind.GET_CONFIGURATION: struct.Struct("<"),
    PacketKind.SET_ALT_SETTING: struct.Struct("<BB"),
    PacketKind.GET_ALT_SETTING: struct.Struct("<B"),
    PacketKind.START_ISO_STREAM: struct.Struct("<BBB"),
    PacketKind.STOP_ISO_STREAM: struct.Struct("<B"),
    PacketKind.START_INTERRUPT_RECEIVING: struct.Struct("<B"),
    PacketKind.STOP_INTERRUPT_RECEIVING: struct.Struct("<B"),
    PacketKind.CANCEL_DATA_PACKET: struct.Struct("<"),
    PacketKind.CONTROL_PACKET: struct.Struct("<BBBBHHH"),
    PacketKind.ISO_PACKET: struct.Struct("<BBH"),
    PacketKind.INTERRUPT_PACKET: struct.Struct("<BBH"),
}

_TO_GUEST = {
    PacketKind.INTERFACE_INFO: struct.Struct("<I128B"),
    PacketKind.CONFIGURATION_STATUS: struct.Struct("<BB"),
    PacketKind.ALT_SETTING_STATUS: struct.Struct("<BBB"),
    PacketKind.ISO_STREAM_STATUS: struct.Struct("<BB"),
    PacketKind.INTERRUPT_RECEIVING_STATUS: struct.Struct("<BB"),
    PacketKind.CONTROL_PACKET: struct.Struct("<BBBBHHH"),
    PacketKind.INTERRUPT_PACKET: struct.Struct("<BBH"),
}

_WITH_DATA = {PacketKind.CONTROL_PACKET, PacketKind.ISO_PACKET, PacketKind.INTERRUPT_PACKET}


class ProtocolError(Exception):
    """The other end does not speak usbredir, or sent what this end never asked for. The connection is over."""


@dataclass(frozen=True)
class Packet:
    """A packet.

    Attributes:
        id: chosen by the end that asks, repeated in the answer.
        fields: of its own header, in the protocol's order. In a bulk packet the two halves of the length are one.
        data: what follows the header.
    """

    kind: PacketKind
    id: int = 0
    fields: tuple[int, ...] = ()
    data: bytes = b""


class PacketStream:
    """One connection's packets. Feed it with what arrives; it keeps what is not yet a whole packet.

    Attributes:
        shared: the capabilities that both ends have; None before the other end's HELLO.
    """

    def __init__(self) -> None:
        self.shared: int | None = None
        self._received = bytearray()

    def hello(self, version: str) -> bytes:
        """Return the first packet to send."""
        name = version.encode()[: _VERSION_BYTES - 1].ljust(_VERSION_BYTES, b"\0")
        body = name + struct.pack("<I", CAPABILITIES)
        return _SHORT_HEADER.pack(PacketKind.HELLO, len(body), 0) + body

    def encode(self, packet: Packet) -> bytes:
        """Return a packet's bytes. Not before the other end's HELLO has come."""
        body = self._own_header(packet) + packet.data
        return self._header().pack(packet.kind, len(body), packet.id) + body

    def feed(self, received: bytes) -> Iterator[Packet]:
        """Take what arrived and yield the packets that are complete; the first one is HELLO."""
        self._received += received
        while True:
            header = self._header()
            if len(self._received) < header.size:
                return
            number, length, identification = header.unpack_from(self._received)
            kind = self._kind(number, length)
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

    def _kind(self, number: int, length: int) -> PacketKind:
        """Judge a header, before anything of what it announces is kept."""
        if length > MAX_DATA_BYTES + _LONG_BULK.size:
            raise ProtocolError(f"a packet of {length} bytes")
        if (number == PacketKind.HELLO) != (self.shared is None):
            raise ProtocolError(
                "a second HELLO" if self.shared is not None else f"packet of kind {number} before HELLO"
            )
        if number not in (PacketKind.HELLO, PacketKind.BULK_PACKET, *_FROM_GUEST):
            raise ProtocolError(f"packet of kind {number}, which was not agreed on")
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
            # A control packet's direction is in its request type too, and its endpoint says the same.
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
    """Hold the data to the length that was announced. Who asks the device for data sends none."""
    expected = 0 if endpoint & 0x80 else length
    if len(data) != expected:
        raise ProtocolError(f"{kind.name} with {len(data)} bytes of data, {expected} announced")
    if length > MAX_DATA_BYTES:
        raise ProtocolError(f"{kind.name} asks for {length} bytes")
