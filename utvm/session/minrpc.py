# SPDX-License-Identifier: Apache-2.0
"""TVM's RPC protocol, server side: handshake, packets, exceptions.

A client begins with a magic number and its key. After that, both sides send packets: a u64 length, an i32 code and
its data; integers are little-endian (TVM's ``python/tvm/rpc/server.py`` and ``rpc_reference.h``).
"""

import contextlib
import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

MAGIC = 0xFF271
_MISMATCH = MAGIC + 2
_KEY_LIMIT = 4096


class Code(IntEnum):
    """Packet codes (``RPCCode`` of ``rpc_reference.h``)."""

    SHUTDOWN = 1
    INIT_SERVER = 2
    CALL = 3
    RETURN = 4
    EXCEPTION = 5
    COPY_FROM = 6
    COPY_TO = 7
    COPY_ACK = 8
    GET_FUNCTION = 9
    FREE_HANDLE = 10
    ALLOCATE = 13
    FREE = 14
    COPY_AMONG = 16
    ALLOCATE_TENSOR = 17


class TypeIndex(IntEnum):
    """Argument types (``TVMFFITypeIndex`` of tvm-ffi)."""

    NONE = 0
    INTEGER = 1
    HANDLE = 4
    TENSOR = 7
    RAW_STRING = 8
    RAW_BYTES = 9
    FUNCTION = 68
    MODULE = 73


_NAMES: dict[int, str] = {
    Code.SHUTDOWN: "shutdown",
    Code.INIT_SERVER: "begin of a session",
    Code.CALL: "function call",
    Code.COPY_FROM: "copy from the board",
    Code.COPY_TO: "copy to the board",
    Code.GET_FUNCTION: "function look-up",
    Code.FREE_HANDLE: "release of a handle",
    Code.ALLOCATE: "allocation",
    Code.FREE: "release of memory",
}

_CHUNK = 1 << 16
_ABSURD = 1 << 30  # Bytes. No board accepts such a packet, and discarding it would take minutes.
_FAREWELL = 1.0  # Seconds for a client to read the last reply.


_TEXTS = (TypeIndex.RAW_STRING, TypeIndex.RAW_BYTES, *range(11, 13), 65, 66)  # Short strings; objects of tvm-ffi.
_OBJECTS = (11, 12, 65, 66)  # Their type is sent twice.
HANDLES = (TypeIndex.HANDLE, TypeIndex.FUNCTION, TypeIndex.MODULE)
_NUMBERS = (1, 2, 3, 5, 6, *HANDLES)  # Includes data types and devices, also 8 bytes.
_DIMENSIONS = 8


@dataclass(frozen=True)
class PacketValue:
    """A value in a packet.

    Attributes:
        kind: its type; the object's type for an object.
        at: offset of its number, text or tensor description.
        size: size in bytes.
    """

    kind: int
    at: int
    size: int

    @property
    def is_text(self) -> bool:
        """True for text or bytes."""
        return self.kind in _TEXTS

    @property
    def is_handle(self) -> bool:
        """True if it begins with a 64-bit address or handle from the board."""
        return self.kind in (*HANDLES, TypeIndex.TENSOR)

    def of(self, packet: bytes) -> bytes:
        """Return the value's bytes."""
        return packet[self.at : self.at + self.size]


def values_at(packet: bytes, at: int) -> list[PacketValue]:
    """Parse a sequence of values."""
    values: list[PacketValue] = []
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
        values.append(PacketValue(kind, at, size))
        at += size
    return values


def tensor_at(packet: bytes, at: int) -> PacketValue:
    """Parse a tensor description without a type."""
    (dimensions,) = _read("<i", packet, at + 16)
    if not 0 <= dimensions <= _DIMENSIONS:
        raise ValueError("a tensor has too many dimensions")
    return PacketValue(TypeIndex.TENSOR, at, 24 + 8 * dimensions + 8)


def handles_in(packet: bytes) -> list[PacketValue]:
    """Return the values of a request that hold handles or addresses from the board; the called function first."""
    (code,) = _read("<i", packet, 0)
    if code in (Code.COPY_FROM, Code.COPY_TO):
        return [tensor_at(packet, 4)]
    if code in (Code.INIT_SERVER, Code.SHUTDOWN):
        return []
    function = [PacketValue(TypeIndex.FUNCTION, 4, 8)] if code == Code.CALL else []
    return function + [value for value in values_at(packet, 12 if function else 4) if value.is_handle]


def _read(layout: str, packet: bytes, at: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, packet, at)
    except struct.error as error:
        raise ValueError("the packet ends in the middle of a value") from error


class ClientGone(Exception):
    """The client closed the connection, broke the protocol or stalled."""


class SessionExpired(Exception):
    """The client sent no packet before the session's deadline."""


class PacketTooLong(Exception):
    """A packet above the limit was received and discarded; ``size`` is its length in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def exception_packet(text: str) -> bytes:
    """Return the packet, without its length, that raises an error in the client."""
    # The client reads it as a C string.
    data = text.replace("\0", "").encode()
    return struct.pack("<iiiQ", Code.EXCEPTION, 1, TypeIndex.RAW_STRING, len(data)) + data


def code_of(packet: bytes) -> int:
    """Return a packet's code; -1 if it is too short."""
    return int.from_bytes(packet[:4], "little", signed=True) if len(packet) >= 4 else -1


def name_of(packet: bytes) -> str:
    """Describe a packet for messages."""
    code = code_of(packet)
    return f"{_NAMES.get(code, f'code {code}')}, {len(packet)} bytes"


class ClientConnection:
    """A client's TCP connection; ``packet_limit`` is in bytes without a packet's length field.

    A client that stops within a packet, or does not read, is disconnected after ``stall_timeout`` seconds.
    """

    def __init__(self, connection: socket.socket, name: str, *, packet_limit: int, stall_timeout: float) -> None:
        self.name = name
        self.since = time.time()
        self._socket = connection
        self._packet_limit = packet_limit
        self._stall_timeout = stall_timeout
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Detect clients whose computer was switched off.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)

    def read_key(self, timeout: float) -> tuple[str, float | None]:
        """Read the client's half of the handshake: its key, and its session timeout in seconds or None."""
        deadline = time.monotonic() + timeout
        try:
            magic, size = struct.unpack("<ii", self._read(8, deadline))
            if magic != MAGIC or not 0 < size <= _KEY_LIMIT:
                raise ClientGone("it does not speak TVM's RPC protocol")
            key, *options = self._read(size, deadline).decode().split() or [""]
        except SessionExpired as error:
            raise ClientGone("it did not finish the handshake in time") from error
        except UnicodeDecodeError as error:
            raise ClientGone("its key is not UTF-8") from error
        if not key.startswith("client:"):
            raise ClientGone("it is not an RPC client")
        return key.removeprefix("client:"), _session_timeout(options)

    def accept(self, key: str) -> None:
        """Complete the handshake: accept the client."""
        name = f"server:{key}".encode()
        self._send(struct.pack("<ii", MAGIC, len(name)) + name)

    def refuse(self) -> None:
        """Complete the handshake: reject the client's key."""
        self._send(struct.pack("<i", _MISMATCH))

    def receive(self, deadline: float | None) -> bytes:
        """Return the next packet, without its length; ``deadline`` is on the monotonic clock, None for no limit."""
        size = 0
        while not size:  # A length of zero is a no-op.
            size = int.from_bytes(self._read(8, deadline), "little")
        if size > _ABSURD:
            with contextlib.suppress(ClientGone):
                self.send_exception(f"a packet of {size} bytes is too long for any board")
                self.say_farewell()
            raise ClientGone(f"it announced a packet of {size} bytes")
        if size > self._packet_limit:
            left = size
            while left:
                left -= len(self._read_some(left, deadline, started=True))
            raise PacketTooLong(size)
        return self._read(size, deadline, started=True)

    def send(self, packet: bytes) -> None:
        self._send(len(packet).to_bytes(8, "little") + packet)

    def send_exception(self, text: str) -> None:
        self.send(exception_packet(text))

    def say_farewell(self) -> None:
        """Wait until the client has read the last reply: closing with unread input could discard it."""
        deadline = time.monotonic() + _FAREWELL
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(_CHUNK):
                    break

    def hang_up(self) -> None:
        """Shut the connection down from another thread, whose reads and writes then raise ClientGone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int, deadline: float | None, *, started: bool = False) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self._read_some(size - len(data), deadline, started=started or bool(data))
        return bytes(data)

    def _read_some(self, size: int, deadline: float | None, *, started: bool) -> bytes:
        """Read at least one byte; ``started`` is True within a packet, where ``stall_timeout`` applies."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise SessionExpired
        patience = self._stall_timeout if left is None else min(left, self._stall_timeout)
        try:
            self._socket.settimeout(patience if started else left)
            data = self._socket.recv(min(size, _CHUNK))
        except TimeoutError as error:
            if deadline is not None and time.monotonic() >= deadline:
                raise SessionExpired from error
            raise ClientGone(f"it stopped in the middle of a packet for {self._stall_timeout:g} s") from error
        except OSError as error:
            raise ClientGone(f"the connection broke: {error}") from error
        if not data:
            raise ClientGone("it closed the connection" + (" in the middle of a packet" if started else ""))
        return data

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._stall_timeout)
            self._socket.sendall(data)
        except OSError as error:
            raise ClientGone(f"it does not read the reply: {error}") from error


def _session_timeout(options: list[str]) -> float | None:
    for option in options:
        if option.startswith("-timeout="):
            try:
                seconds = float(option.removeprefix("-timeout="))
            except ValueError:
                return None
            return seconds if 0 < seconds < float("inf") else None
    return None
