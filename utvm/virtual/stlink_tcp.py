# SPDX-License-Identifier: Apache-2.0
"""ST's stlink-server protocol, over which OpenOCD reaches a virtual ST-Link.

Little-endian: a command byte with arguments in, a status word with results out. The server has one probe. Any
client may list it, but only one may open it.
"""

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from utvm.base.process.peer import listen
from utvm.virtual.dap import wait_until
from utvm.virtual.machine import BoardModel
from utvm.virtual.stlink import COMMAND_SIZE, MAX_BLOCK_BYTES, USB_VENDOR, V2_1, StLink

_log = logging.getLogger(__name__)

_REFRESH = 0
_COUNT = 1
_DEVICE_INFO = 2
_OPEN = 3
_CLOSE = 4
_USB_COMMAND = 5
_SERVER_VERSION = 6

# Bytes after the command byte
_ARGUMENT_BYTES = {_REFRESH: 1, _COUNT: 0, _DEVICE_INFO: 7, _OPEN: 7, _CLOSE: 7, _USB_COMMAND: 31, _SERVER_VERSION: 3}

_STATUS_OK = 0x0001
_STATUS_BAD_PARAMETER = 0x1002
_STATUS_OPEN_ERROR = 0x1003
_STATUS_NOT_AVAILABLE = 0x1053

_API_VERSION = (3, 2, 1, 1)  # API, major, minor, build
_DEVICE_ID = 1
_SERIAL_BYTES = 32
_TO_PROBE = 0
_FROM_PROBE = 1
_FROM_TRACE = 3
_MAX_DATA_BYTES = 2 * MAX_BLOCK_BYTES


class _ProtocolError(Exception):
    """A client that does not speak the protocol."""


class StLinkServer:
    """Serves one virtual ST-Link on the loopback interface.

    Args:
        serial: the probe's serial number, at most 32 characters.
        port: TCP port, 0 for any free one.
        latency: seconds per probe command; a real ST-Link takes about 2 ms.
        anyone: True to accept other users of this computer.
    """

    def __init__(
        self, board: BoardModel, *, serial: str, port: int = 0, latency: float = 0.0, anyone: bool = False
    ) -> None:
        self._probe = StLink(board)
        self._serial = serial.encode("ascii")
        self._latency = latency
        self._lock = threading.Lock()  # of the owner
        self._wires = threading.Lock()  # between probe and board
        self._owner: object | None = None
        self._listener = listen(port, anyone=anyone)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept clients until :meth:`close`; each gets a thread."""
        while True:
            try:
                client, peer = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client, peer), daemon=True).start()

    def close(self) -> None:
        # shutdown() wakes a thread that is blocked in accept(); close() alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @contextlib.contextmanager
    def target_off(self) -> Iterator[None]:
        """Switch the board's power off and on in a ``with`` block, between commands; its debug port is reset.

        The probe itself keeps its power, as with its own USB cable.
        """
        with self._wires:
            yield
            self._probe.lose_target()

    def _talk(self, client: socket.socket, peer: tuple[str, int]) -> None:
        with client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while True:
                    self._serve_command(client)
            except _ProtocolError as error:
                _log.warning("client %s:%d: %s; closing its connection", *peer, error)
            except OSError as error:
                _log.info("client %s:%d left: %s", *peer, error)
            finally:
                self._release(client)

    def _serve_command(self, client: socket.socket) -> None:
        command = _receive(client, 1)[0]
        if command not in _ARGUMENT_BYTES:
            raise _ProtocolError(f"unknown command 0x{command:02x}")
        arguments = _receive(client, _ARGUMENT_BYTES[command])
        if command == _USB_COMMAND:
            self._run_command(client, arguments)
            return
        replies: dict[int, Callable[[], bytes]] = {
            _REFRESH: lambda: _word(_STATUS_OK),
            _COUNT: lambda: _word(1),
            _DEVICE_INFO: self._device_info,
            _OPEN: lambda: self._open(client),
            _CLOSE: lambda: self._release(client),
            _SERVER_VERSION: lambda: struct.pack("<4I", *_API_VERSION),
        }
        client.sendall(replies[command]())

    def _device_info(self) -> bytes:
        used = self._owner is not None
        return _word(_STATUS_OK) + struct.pack(
            f"<I{_SERIAL_BYTES}sHHB", _DEVICE_ID, self._serial, USB_VENDOR, V2_1, used
        )

    def _open(self, client: socket.socket) -> bytes:
        with self._lock:
            if self._owner is not None:
                return struct.pack("<II", _STATUS_OPEN_ERROR, 0)
            self._owner = client
        return struct.pack("<II", _STATUS_OK, _DEVICE_ID)

    def _release(self, client: socket.socket) -> bytes:
        with self._lock:
            if self._owner is client:
                self._owner = None
        return _word(_STATUS_OK)

    def _run_command(self, client: socket.socket, arguments: bytes) -> None:
        started = time.monotonic()
        command = arguments[7 : 7 + COMMAND_SIZE]
        direction = arguments[23]
        (size,) = struct.unpack_from("<I", arguments, 27)
        if size > _MAX_DATA_BYTES:
            raise _ProtocolError(f"transfer of {size} bytes")
        if direction not in (_TO_PROBE, _FROM_PROBE, _FROM_TRACE):
            client.sendall(_word(_STATUS_NOT_AVAILABLE) + bytes(size))
            return
        data = _receive(client, size) if direction == _TO_PROBE else b""
        wanted = 0 if direction == _TO_PROBE else size
        if self._owner is not client:
            client.sendall(_word(_STATUS_BAD_PARAMETER) + bytes(wanted))
            return
        with self._wires:
            traced = direction == _FROM_TRACE
            reply = self._probe.read_trace(size) if traced else self._probe.execute(command, data, wanted)
        wait_until(started + self._latency)
        client.sendall(_word(_STATUS_OK) + reply)


def _word(value: int) -> bytes:
    return struct.pack("<I", value)


def _receive(client: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = client.recv(size - len(received))
        if not part:
            raise ConnectionResetError("connection closed")
        received += part
    return bytes(received)
