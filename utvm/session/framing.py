# SPDX-License-Identifier: Apache-2.0
"""Packets on a pipe of bytes that may lose, damage or invent some (microTVM's framing).

A packet is ``FF FD``, the payload's length (u32), the payload, and the CRC-16/CCITT-FALSE (u16) of all bytes
before it as they are on the wire; numbers are little-endian. Behind ``FF FD`` every FF is doubled. ``FF FE``
stands for nothing, ``FF FD`` begins a packet wherever it is met, and FF before anything else is an error.
"""

import binascii
from enum import Enum, auto

_ESCAPE, _START, _NOTHING = 0xFF, 0xFD, 0xFE
_OPENING = bytes((_ESCAPE, _START))
_CRC_INIT = 0xFFFF


def encode(payload: bytes, *, after_reset: bool = False) -> bytes:
    """Return a packet as it goes over the wire.

    Args:
        after_reset: put an FE first, which ends an escape that an earlier sender left open.
    """
    body = _OPENING + _escaped(len(payload).to_bytes(4, "little")) + _escaped(payload)
    crc = binascii.crc_hqx(body, _CRC_INIT).to_bytes(2, "little")
    return (bytes((_NOTHING,)) if after_reset else b"") + body + _escaped(crc)


def _escaped(data: bytes) -> bytes:
    return data.replace(b"\xff", b"\xff\xff")


class _Field(Enum):
    HUNT = auto()  # No packet: everything up to the next FF FD is noise.
    LENGTH = auto()
    PAYLOAD = auto()
    CRC = auto()


class Deframer:
    """Finds the valid packets in the bytes of a wire, however they are cut.

    It holds at most one payload, and takes time in proportion to the bytes that it is fed.

    Args:
        limit: bytes of the longest payload; longer packets are dropped.

    Attributes:
        crc_errors: packets dropped because their CRC was wrong.
        dropped: packets dropped because they were too long, ended early or held an invalid escape.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.crc_errors = 0
        self.dropped = 0
        self._field = _Field.HUNT
        self._escaped = False  # The last byte was an FF that waits for its second half.
        self._value = bytearray()  # The current field's bytes so far, without escapes.
        self._size = 0  # How many of them make it complete.
        self._payload = b""
        self._crc = _CRC_INIT

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes from the wire and return the payloads of the packets that they complete."""
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
        """Take bytes that hold no FF, and return the position up to which: a field's end, or the run's."""
        if self._field is _Field.HUNT:
            return end
        taken = data[position : min(end, position + self._size - len(self._value))]
        self._take(taken, taken, payloads)
        return position + len(taken)

    def _second_half(self, byte: int, payloads: list[bytes]) -> None:
        if byte == _START:
            if self._field is not _Field.HUNT:
                self.dropped += 1
            self._crc = binascii.crc_hqx(_OPENING, _CRC_INIT)
            self._escaped = False
            self._expect(_Field.LENGTH, 4)
        elif self._field is _Field.HUNT:
            # The second FF of two may be a packet's first byte, when what came before it was noise.
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
