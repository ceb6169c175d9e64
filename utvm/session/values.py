# SPDX-License-Identifier: Apache-2.0
"""What is in a MinRPC packet: its values, and where each lies, as the board's own reader takes them apart."""

import struct
from dataclasses import dataclass

from utvm.session.minrpc import Code, TypeIndex

_TEXTS = (TypeIndex.RAW_STRING, TypeIndex.RAW_BYTES, *range(11, 13), 65, 66)  # short ones, and objects of tvm-ffi
_OBJECTS = (11, 12, 65, 66)  # their type comes twice
HANDLES = (TypeIndex.HANDLE, TypeIndex.FUNCTION, TypeIndex.MODULE)
_NUMBERS = (1, 2, 3, 5, 6, *HANDLES)  # with data types and devices, which take 8 bytes too
_DIMENSIONS = 8


@dataclass(frozen=True)
class PacketValue:
    """A value of a packet.

    Attributes:
        kind: its type; of an object, that of the object.
        at: where in the packet its number begins, its text, or its tensor's description.
        size: bytes from there on.
    """

    kind: int
    at: int
    size: int

    @property
    def is_text(self) -> bool:
        """Whether it is text or bytes."""
        return self.kind in _TEXTS

    @property
    def holds_a_place(self) -> bool:
        """Whether it begins with what the board has given away: an address or a handle, in 64 bits."""
        return self.kind in (*HANDLES, TypeIndex.TENSOR)

    def of(self, packet: bytes) -> bytes:
        """Return its bytes."""
        return packet[self.at : self.at + self.size]


def values_at(packet: bytes, at: int) -> list[PacketValue]:
    """Return a sequence of values."""
    found: list[PacketValue] = []
    (count,) = _read("<i", packet, at)
    at += 4
    for _ in range(count):
        (kind,) = _read("<i", packet, at)
        at += 8 if kind in _OBJECTS else 4
        size = 0
        if kind in _TEXTS:
            (size,) = _read("<Q", packet, at)
            at += 8
        elif kind == TypeIndex.TENSOR:
            size = tensor_at(packet, at).size
        elif kind in _NUMBERS:
            size = 8
        elif kind != TypeIndex.NONE:
            raise ValueError(f"values of type {kind} are not known")
        if at + size > len(packet):
            raise ValueError("the packet ends in the middle of a value")
        found.append(PacketValue(kind, at, size))
        at += size
    return found


def tensor_at(packet: bytes, at: int) -> PacketValue:
    """Return a tensor's description that stands by itself."""
    (dimensions,) = _read("<i", packet, at + 16)
    if not 0 <= dimensions <= _DIMENSIONS:
        raise ValueError("a tensor has too many dimensions")
    return PacketValue(TypeIndex.TENSOR, at, 24 + 8 * dimensions + 8)


def places_in(packet: bytes) -> list[PacketValue]:
    """Return the values of a request that hold what the board has given away; the first is a called function."""
    (code,) = _read("<i", packet, 0)
    if code in (Code.COPY_FROM, Code.COPY_TO):
        return [tensor_at(packet, 4)]
    if code in (Code.INIT_SERVER, Code.SHUTDOWN):
        return []
    called = [PacketValue(TypeIndex.FUNCTION, 4, 8)] if code == Code.CALL else []
    return called + [each for each in values_at(packet, 12 if called else 4) if each.holds_a_place]


def _read(form: str, packet: bytes, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(form, packet, at)
    except struct.error as error:
        raise ValueError("the packet ends in the middle of a value") from error
