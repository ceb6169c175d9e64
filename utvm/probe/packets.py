# SPDX-License-Identifier: Apache-2.0
"""GDB's remote serial protocol: packets ``$payload#checksum``, escapes, run lengths, and the connection.

Source: GDB manual, appendix "GDB Remote Serial Protocol", sections Overview and Notification Packets.
"""

import logging
import socket
import time
from dataclasses import dataclass
from typing import Literal

from utvm.base.log import Excerpt
from utvm.errors import ProbeError

_SMALLEST_PACKET_BYTES = 128


def from_hex(text: bytes) -> bytes:
    """Decode hexadecimal digits."""
    with ProbeError.on(ValueError, f"the GDB server sent {text[:40]!r} where hexadecimal digits were expected"):
        return bytes.fromhex(text.decode("ascii"))


def packet_size(feature: str) -> int:
    """Maximum packet size in bytes, from a feature ``PacketSize=`` with hexadecimal digits."""
    try:
        size = int(feature.removeprefix("PacketSize="), 16)
    except ValueError:
        size = 0
    if size < _SMALLEST_PACKET_BYTES:
        raise ProbeError(f"the GDB server offers an unusable packet size: {feature[:40]}")
    return size


_ESCAPE = 0x7D
_REPEAT = 0x2A
_SPECIAL = b"}$#*"  # the escape character comes first, or it would escape the others' escapes
_MAX_PACKET_BYTES = 1 << 20


class PacketError(Exception):
    """Bytes that are not a valid packet."""


def escape(data: bytes) -> bytes:
    """Escape ``} $ # *`` for the payload of ``X`` and ``vFlashWrite``."""
    for character in _SPECIAL:
        data = data.replace(bytes([character]), bytes([_ESCAPE, character ^ 0x20]))
    return data


def encode(payload: bytes) -> bytes:
    """Frame a payload; its binary data is already escaped."""
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
    """Splits a byte stream into packets, skipping acknowledgments and other bytes between them.

    If ``notifying``, it returns notifications too; they begin with ``%``.
    """

    def __init__(self) -> None:
        self.notifying = False
        self._pending = bytearray()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._pending += data

    def next_packet(self) -> bytes | None:
        """Decoded payload of the next packet, or None while it is incomplete."""
        while True:
            starts = self._pending.find(b"$"), self._pending.find(b"%")
            start = min(starts) if min(starts) >= 0 else max(starts)
            if start < 0:
                self._pending.clear()
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
            if checksum.lower() != b"%02x" % (total := sum(payload) & 0xFF):
                raise PacketError(f"packet {payload[:40]!r} has checksum {total:02x}, not {checksum!r}")
            if not is_notification:
                return decode(payload)
            if self.notifying:
                return b"%" + decode(payload)


Access = Literal["write", "read", "access"]

_WATCH_STOPS: dict[str, Access] = {"watch": "write", "rwatch": "read", "awatch": "access"}


@dataclass(frozen=True)
class Stop:
    """Reason for a stop of the target; ``watchpoint`` is the kind of the watchpoint hit, ``address`` its address.

    ``signal`` is 2 if interrupted; 5 for a breakpoint, watchpoint or step.
    """

    signal: int
    watchpoint: Access | None = None
    address: int | None = None


def parse_stop(packet: bytes) -> Stop:
    """Parse a ``T`` or ``S`` packet (GDB manual, "Stop Reply Packets")."""
    with ProbeError.on(ValueError, f"the GDB server sent a malformed stop reply: {packet[:60]!r}"):
        signal = int(packet[1:3], 16)
        for pair in packet[3:].decode(errors="replace").split(";"):
            key, _, value = pair.partition(":")
            if key in _WATCH_STOPS:
                return Stop(signal, _WATCH_STOPS[key], int(value, 16))
    return Stop(signal)


_BREAK = b"\x03"
_LOG = logging.getLogger("utvm.probe.gdb")


class GdbLink:
    """The packet layer of :class:`utvm.probe.gdb.GdbClient`.

    The owner of ``channel`` closes it. ``advice`` is the hint of the error when the server fails.
    """

    def __init__(self, channel: socket.socket, advice: str) -> None:
        self._advice = advice
        self._reader = PacketReader()
        self._acknowledging = True
        self._socket = channel.dup()

    def fileno(self) -> int:
        """File descriptor for select."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, payload: bytes, timeout: float) -> None:
        """Send a packet; its binary data is already escaped."""
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("-> %s", Excerpt(payload))
        self._transmit(encode(payload), timeout)

    def send_break(self) -> None:
        """Send the interrupt byte, which halts a running target."""
        _LOG.debug("-> (interrupt)")
        self._transmit(_BREAK, 1.0)

    def receive(self, timeout: float) -> bytes | None:
        """Payload of the next packet, or None after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            with ProbeError.on(PacketError, "the GDB server sent garbage:", self._advice):
                payload = self._reader.next_packet()
            if payload is not None:
                if _LOG.isEnabledFor(logging.DEBUG):
                    _LOG.debug("<- %s", Excerpt(payload))
                if self._acknowledging:
                    self._transmit(b"+", 1.0)
                return payload
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._receive_some(remaining)

    def enable_notifications(self) -> None:
        """Have :meth:`receive` return notifications too; they begin with ``%``."""
        self._reader.notifying = True

    def stop_acknowledging(self) -> None:
        """Stop sending ``+``, after both ends have agreed."""
        self._acknowledging = False

    def _transmit(self, data: bytes, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(data)
        except BrokenPipeError as error:
            raise ProbeError("the GDB server closed the connection", self._advice) from error
        except OSError as error:
            raise ProbeError(f"the GDB server accepts no more data: {error}", self._advice) from error

    def _receive_some(self, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError as error:
            raise ProbeError(f"the connection to the GDB server broke: {error}", self._advice) from error
        if not data:
            raise ProbeError("the GDB server closed the connection", self._advice)
        self._reader.feed(data)
