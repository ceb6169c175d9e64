# SPDX-License-Identifier: Apache-2.0
"""A third-party usbredir guest: Debian's libusbredirparser, which QEMU also uses, through ctypes.

Structures and the order of the callbacks are those of its headers usbredirproto.h and usbredirparser.h, 0.13.
"""

import ctypes
import itertools
import select
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

_TIMEOUT = 10.0  # seconds; the limit for a reply

SUCCESS, CANCELLED, INVALID, STALL = 0, 1, 2, 4

_CAPABILITIES = (1, 4, 5, 6)  # device version, largest packets, 64-bit ids, 32-bit lengths
_CALLBACKS = [
    "log",
    "read",
    "write",
    "device_connect",
    "device_disconnect",
    "reset",
    "interface_info",
    "ep_info",
    "set_configuration",
    "get_configuration",
    "configuration_status",
    "set_alt_setting",
    "get_alt_setting",
    "alt_setting_status",
    "start_iso_stream",
    "stop_iso_stream",
    "iso_stream_status",
    "start_interrupt_receiving",
    "stop_interrupt_receiving",
    "interrupt_receiving_status",
    "alloc_bulk_streams",
    "free_bulk_streams",
    "bulk_streams_status",
    "cancel_data_packet",
    "control_packet",
    "bulk_packet",
    "iso_packet",
    "interrupt_packet",
    "alloc_lock",
    "lock",
    "unlock",
    "free_lock",
    "hello",
]


class _Parser(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("priv", *_CALLBACKS))


_POINTER, _ID = ctypes.c_void_p, ctypes.c_uint64
_LOG = ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_int, ctypes.c_char_p)
_TRANSFER = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, ctypes.POINTER(ctypes.c_uint8), ctypes.c_int)
_HEADER = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)
_STATUS = ctypes.CFUNCTYPE(None, _POINTER, _ID, _POINTER)
_DATA = ctypes.CFUNCTYPE(None, _POINTER, _ID, _POINTER, _POINTER, ctypes.c_int)

_STATUS_LAYOUTS = {
    "configuration_status": "<BB",
    "alt_setting_status": "<BBB",
    "iso_stream_status": "<BB",
    "interrupt_receiving_status": "<BB",
}
_DATA_LAYOUTS = {"control_packet": "<BBBBHHH", "bulk_packet": "<BBHIH"}


class Reply(NamedTuple):
    """Reply to a request: the fields of its header, and data."""

    fields: tuple[int, ...]
    data: bytes = b""


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libusbredirparser.so.1")
    library.usbredirparser_create.restype = ctypes.POINTER(_Parser)
    return library


class Peer:
    """A guest on a connection. ``device``, ``interfaces`` and ``endpoints`` hold the device's announcements."""

    def __init__(self, connection: socket.socket, capabilities: tuple[int, ...] = _CAPABILITIES) -> None:
        self._connection = connection
        connection.setblocking(False)
        self._library = _library()
        self._parser = self._library.usbredirparser_create()
        self._ids = itertools.count(7)
        self.replies: dict[int, Reply] = {}
        self.order: list[str] = []
        self.errors: list[str] = []
        self.device: tuple[int, ...] = ()
        self.interfaces: list[tuple[int, ...]] = []
        self.endpoints: dict[int, tuple[int, ...]] = {}
        self.disconnected = False
        self._callback_references = self._callbacks()
        for name, callback in self._callback_references.items():
            setattr(self._parser.contents, name, ctypes.cast(callback, ctypes.c_void_p).value)
        words = (ctypes.c_uint32 * 1)(sum(1 << bit for bit in capabilities))
        self._call("init", b"a peer", words, 1, 0)

    def __enter__(self) -> "Peer":
        self.wait(lambda: self.device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._call("destroy")

    # Requests

    def descriptor(self, kind: int, index: int = 0, length: int = 4096) -> bytes | None:
        """Request a descriptor; None if the device refuses."""
        reply = self.control(0x80, 6, kind << 8 | index, 0x0409 if kind == 3 and index else 0, length)
        return reply.data if reply.fields[3] == SUCCESS else None

    def control(
        self, request_type: int, request_code: int, value: int = 0, index: int = 0, length: int = 0, data: bytes = b""
    ) -> Reply:
        """Perform a control transfer."""
        header = struct.pack(
            "<BBBBHHH", request_type & 0x80, request_code, request_type, 0, value, index, len(data) or length
        )
        return self.wait_for(self._send("control_packet", header, data))

    def put(self, endpoint: int, data: bytes) -> int:
        """Send data to an endpoint and return the status."""
        header = struct.pack("<BBHIH", endpoint, 0, len(data) & 0xFFFF, 0, len(data) >> 16)
        return self.wait_for(self._send("bulk_packet", header, data)).fields[1]

    def request(self, endpoint: int, length: int) -> int:
        """Request data from an endpoint without waiting; return the request's number."""
        return self._send("bulk_packet", struct.pack("<BBHIH", endpoint, 0, length & 0xFFFF, 0, length >> 16), b"")

    def get(self, endpoint: int, length: int) -> bytes:
        """Fetch data from an endpoint."""
        reply = self.wait_for(self.request(endpoint, length))
        assert reply.fields[1] == SUCCESS, reply
        return reply.data

    def cancel(self, number: int) -> Reply:
        """Cancel a request."""
        self._call("send_cancel_data_packet", ctypes.c_uint64(number))
        return self.wait_for(number)

    def configure(self, value: int) -> Reply:
        """Select a configuration."""
        return self._control_packet("set_configuration", bytes([value]))

    def set_alternate(self, interface: int, setting: int) -> Reply:
        """Select an alternate setting."""
        return self._control_packet("set_alt_setting", bytes([interface, setting]))

    def listen_to_interrupts(self, endpoint: int) -> Reply:
        """Start polling an interrupt endpoint."""
        return self._control_packet("start_interrupt_receiving", bytes([endpoint]))

    def reset(self) -> None:
        """Reset the device."""
        self._call("send_reset")

    # The wire

    def wait_for(self, number: int) -> Reply:
        """Wait for the reply to a request."""
        self.wait(lambda: number in self.replies)
        return self.replies.pop(number)

    def wait(self, condition: Callable[[], object]) -> None:
        """Exchange packets until a condition holds."""
        while not condition():
            assert not self.disconnected, f"the device is gone; {self.errors}"
            if self._library.usbredirparser_has_data_to_write(self._parser):
                self._call("do_write")
            readable, _, _ = select.select([self._connection], [], [], _TIMEOUT)
            assert readable, f"no answer; {self.errors}"
            self._call("do_read")
            assert not self.errors

    def _control_packet(self, name: str, header: bytes) -> Reply:
        number = next(self._ids)
        self._call(f"send_{name}", ctypes.c_uint64(number), header)
        return self.wait_for(number)

    def _send(self, name: str, header: bytes, data: bytes) -> int:
        number = next(self._ids)
        self._call(f"send_{name}", ctypes.c_uint64(number), header, data or None, len(data))
        return number

    def _call(self, name: str, *arguments: Any) -> None:
        getattr(self._library, f"usbredirparser_{name}")(self._parser, *arguments)

    def _callbacks(self) -> dict[str, Any]:
        callbacks: dict[str, Any] = {
            "log": _LOG(lambda _priv, level, text: self.errors.append(text.decode()) if level <= 2 else None),
            "read": _TRANSFER(self._read),
            "write": _TRANSFER(self._write),
            "hello": _HEADER(lambda _priv, _header: self.order.append("hello")),
            "device_connect": _HEADER(self._connect),
            "interface_info": _HEADER(self._interface_info),
            "ep_info": _HEADER(self._ep_info),
        }
        for name, layout in _STATUS_LAYOUTS.items():
            callbacks[name] = _STATUS(self._store_reply(name, layout))
        for name, layout in _DATA_LAYOUTS.items():
            callbacks[name] = _DATA(self._store_reply(name, layout))
        return callbacks

    def _store_reply(self, name: str, layout: str) -> Callable[..., None]:
        def store(_priv: int, number: int, header: int, data: int = 0, length: int = 0) -> None:
            self.order.append(name)
            fields = struct.unpack(layout, ctypes.string_at(header, struct.calcsize(layout)))
            self.replies[number] = Reply(fields, ctypes.string_at(data, length) if length else b"")
            if data:
                self._call("free_packet_data", ctypes.c_void_p(data))

        return store

    def _read(self, _priv: int, buffer: Any, count: int) -> int:
        try:
            data = self._connection.recv(count)
        except BlockingIOError:
            return 0
        except ConnectionError:
            data = b""
        if not data:
            self.disconnected = True
            return -1
        ctypes.memmove(buffer, data, len(data))
        return len(data)

    def _write(self, _priv: int, buffer: Any, count: int) -> int:
        self._connection.setblocking(True)
        self._connection.sendall(ctypes.string_at(buffer, count))
        self._connection.setblocking(False)
        return count

    def _connect(self, _priv: int, header: int) -> None:
        self.order.append("device_connect")
        self.device = struct.unpack("<4B3H", ctypes.string_at(header, 10))

    def _interface_info(self, _priv: int, header: int) -> None:
        self.order.append("interface_info")
        count, *columns = struct.unpack("<I128B", ctypes.string_at(header, 132))
        self.interfaces = [tuple(columns[start + number] for start in (0, 32, 64, 96)) for number in range(count)]

    def _ep_info(self, _priv: int, header: int) -> None:
        self.order.append("ep_info")
        fields = struct.unpack("<96B32H", ctypes.string_at(header, 160))
        rows = {number: tuple(fields[start + number] for start in (0, 32, 64, 96)) for number in range(32)}
        self.endpoints = {
            number & 15 | (number & 16) << 3: row for number, row in rows.items() if row[0] != 255 and number & 15
        }
