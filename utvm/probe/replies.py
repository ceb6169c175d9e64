# SPDX-License-Identifier: Apache-2.0
"""What is read from a GDB server's replies, and what is wrong with it."""

from utvm.errors import ProbeError

_SMALLEST_PACKET_BYTES = 128


def from_hex(text: bytes) -> bytes:
    """Return the bytes that hexadecimal digits stand for."""
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError as error:
        raise ProbeError(f"the GDB server sent {text[:40]!r} where hexadecimal was due") from error


def packet_size(feature: str) -> int:
    """Return the bytes of the longest packet that a server takes, from ``PacketSize=`` and a hexadecimal
    number.
    """
    try:
        size = int(feature.removeprefix("PacketSize="), 16)
    except ValueError:
        size = 0
    if size < _SMALLEST_PACKET_BYTES:
        raise ProbeError(f"the GDB server offers an unusable packet size: {feature[:40]}")
    return size
