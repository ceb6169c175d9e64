# SPDX-License-Identifier: Apache-2.0
"""Packet framing for an unreliable byte stream (microTVM's framing).

A packet is ``FF FD``, the payload's length (u32), the payload, and the CRC-16/CCITT-FALSE (u16) of all preceding
bytes on the wire; integers are little-endian. After ``FF FD``, each FF is doubled. ``FF FE`` is a no-op,
``FF FD`` always begins a packet, and FF before any other byte is an error.
"""

import binascii
from enum import Enum, auto

_ESCAPE, _START, _NOTHING = 0xFF, 0xFD, 0xFE
_OPENING = bytes((_ESCAPE, _START))
_CRC_INIT = 0xFFFF


def encode(payload: bytes, *, after_reset: bool = False) -> bytes:
    """Encode a packet; with ``after_reset``, FE comes first, to complete an escape left open by an earlier
    sender.
    """
    body = _OPENING + _escape_bytes(len(payload).to_bytes(4, "little")) + _escape_bytes(payload)
    crc = binascii.crc_hqx(body, _CRC_INIT).to_bytes(2, "little")
    return (bytes((_NOTHING,)) if after_reset else b"") + body + _escape_bytes(crc)


def _escape_bytes(data: bytes) -> bytes:
    return data.replace(b"\xff", b"\xff\xff")


class _Field(Enum):
    HUNT = auto()  # Between packets: skip to the next FF FD.
    LENGTH = auto()
    PAYLOAD = auto()
    CRC = auto()


class Deframer:
    """Extracts valid packets from a byte stream read in arbitrary chunks, in linear time.

    It buffers at most one payload; payloads longer than ``limit`` bytes are dropped.

    Attributes:
        crc_errors: number of packets dropped for a wrong CRC.
        dropped: number of packets dropped because they were too long, ended early or had an invalid escape.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.crc_errors = 0
        self.dropped = 0
        self._field = _Field.HUNT
        self._escaped = False  # The last byte was the first half of an escape.
        self._value = bytearray()  # Bytes of the current field, unescaped.
        self._size = 0  # Size of the current field.
        self._payload = b""
        self._crc = _CRC_INIT

    def feed(self, data: bytes) -> list[bytes]:
        """Process received bytes and return the payloads of completed packets."""
        payloads: list[bytes] = []
        position = 0
        while position < len(data):
            if self._escaped:
                self._second_half(data[position], payloads)
                position += 1
                continue
            escape = data.find(_ESCAPE, position)
            end = len(data) if escape < 0 else escape
            position = self._plain(data, position, end, payloads)
            if position == end and escape >= 0:
                self._escaped = True
                position += 1
        return payloads

    def _plain(self, data: bytes, position: int, end: int, payloads: list[bytes]) -> int:
        """Process bytes without FF, up to the end of the field or of the bytes; return the new position."""
        if self._field is _Field.HUNT:
            return end
        piece = data[position : min(end, position + self._size - len(self._value))]
        self._take(piece, piece, payloads)
        return position + len(piece)

    def _second_half(self, byte: int, payloads: list[bytes]) -> None:
        if byte == _START:
            if self._field is not _Field.HUNT:
                self.dropped += 1
            self._crc = binascii.crc_hqx(_OPENING, _CRC_INIT)
            self._escaped = False
            self._expect(_Field.LENGTH, 4)
        elif self._field is _Field.HUNT:
            # After noise, the second of two FFs may begin a packet.
            self._escaped = byte == _ESCAPE
        else:
            self._escaped = False
            if byte == _ESCAPE:
                self._take(b"\xff", b"\xff\xff", payloads)
            elif byte == _NOTHING:
                self._count(b"\xff\xfe")
            else:
                self._drop()

    def _count(self, wire: bytes) -> None:
        if self._field is not _Field.CRC:
            self._crc = binascii.crc_hqx(wire, self._crc)

    def _take(self, value: bytes, wire: bytes, payloads: list[bytes]) -> None:
        self._count(wire)
        self._value += value
        if len(self._value) < self._size:
            return
        complete = bytes(self._value)
        if self._field is _Field.LENGTH:
            length = int.from_bytes(complete, "little")
            if length > self.limit:
                self._drop()
            elif length:
                self._expect(_Field.PAYLOAD, length)
            else:
                self._payload = b""
                self._expect(_Field.CRC, 2)
        elif self._field is _Field.PAYLOAD:
            self._payload = complete
            self._expect(_Field.CRC, 2)
        else:
            if int.from_bytes(complete, "little") == self._crc:
                payloads.append(self._payload)
            else:
                self.crc_errors += 1
            self._payload = b""
            self._expect(_Field.HUNT, 0)

    def _expect(self, field: _Field, size: int) -> None:
        self._field, self._size = field, size
        self._value = bytearray()

    def _drop(self) -> None:
        self.dropped += 1
        self._expect(_Field.HUNT, 0)
