# SPDX-License-Identifier: Apache-2.0
"""Framing of GDB's remote serial protocol: ``$payload#checksum``, escapes and run lengths.

Source: GDB manual, appendix "GDB Remote Serial Protocol", sections Overview and Notification Packets.
"""

import contextlib

_ESCAPE = 0x7D
_REPEAT = 0x2A
_SPECIAL = b"}$#*"  # the escape character comes first, or it would escape the others' escapes
_MAX_PACKET_BYTES = 1 << 20


class PacketError(Exception):
    """Bytes that are not a valid packet."""


def escape(data: bytes) -> bytes:
    """Return binary data with ``} $ # *`` escaped, fit for the payload of ``X`` and ``vFlashWrite``."""
    for character in _SPECIAL:
        data = data.replace(bytes([character]), bytes([_ESCAPE, character ^ 0x20]))
    return data


def encode(payload: bytes) -> bytes:
    """Return the packet around a payload whose binary data is escaped already."""
    return b"$%b#%02x" % (payload, sum(payload) & 0xFF)


def decode(payload: bytes) -> bytes:
    """Undo the escapes and run lengths of a payload."""
    if _ESCAPE not in payload and _REPEAT not in payload:
        return payload
    result = bytearray()
    characters = iter(payload)
    try:
        for character in characters:
            if character == _ESCAPE:
                result.append(next(characters) ^ 0x20)
            elif character == _REPEAT:
                repeats = next(characters) - 29
                if not result or repeats < 1:
                    raise PacketError(f"run length without a character to repeat in {payload[:40]!r}")
                result += result[-1:] * repeats
            else:
                result.append(character)
    except StopIteration:
        raise PacketError(f"payload ends within an escape or a run: {payload[-40:]!r}") from None
    return bytes(result)


class PacketReader:
    """Takes bytes as they arrive and gives packets.

    Acknowledgments (``+``, ``-``) and whatever else stands between packets are passed over, and so are
    notifications (``%...``), unless they are asked for.

    Attributes:
        notifying: notifications are packets too, and begin with ``%``.
    """

    def __init__(self) -> None:
        self.notifying = False
        self._pending = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._pending += data

    def next_packet(self) -> bytes | None:
        """Return the decoded payload of the next complete packet, or None while it is incomplete."""
        while True:
            start = self._start_of_packet()
            if start is None:
                return None
            end = self._pending.find(b"#", start)
            if end < 0 or len(self._pending) < end + 3:
                if len(self._pending) - start > _MAX_PACKET_BYTES:
                    self._pending.clear()
                    raise PacketError(f"packet of more than {_MAX_PACKET_BYTES} bytes")
                return None
            payload = bytes(self._pending[start + 1 : end])
            checksum = bytes(self._pending[end + 1 : end + 3])
            is_notification = self._pending[start] == ord("%")
            del self._pending[: end + 3]
            _check(payload, checksum)
            if not is_notification:
                return decode(payload)
            if self.notifying:
                return b"%" + decode(payload)

    def _start_of_packet(self) -> int | None:
        starts = [at for at in (self._pending.find(b"$"), self._pending.find(b"%")) if at >= 0]
        if not starts:
            self._pending.clear()
            return None
        return min(starts)


def _check(payload: bytes, checksum: bytes) -> None:
    told = -1
    with contextlib.suppress(ValueError):
        told = int(checksum, 16)
    if told != sum(payload) & 0xFF:
        raise PacketError(f"packet {payload[:40]!r} has checksum {sum(payload) & 0xFF:02x}, says {checksum!r}")
