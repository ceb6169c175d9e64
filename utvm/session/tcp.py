# SPDX-License-Identifier: Apache-2.0
"""A TCP connection as a transport: a debug server's port, or a serial line behind a terminal server."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator

from utvm.base.process.closing import Closing
from utvm.errors import TransportError

_CHUNK = 1 << 16


class TcpConnection(Closing):
    """A TCP connection; a :class:`utvm.session.transport.Transport`.

    Args:
        host: where the server is.
        port: its TCP port.
        timeout: seconds until the connection must stand, and in which the server must take what is written.
    """

    def __init__(self, host: str, port: int, *, timeout: float = 10.0) -> None:
        self._peer = f"{host}:{port}"
        self._timeout = timeout
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise TransportError(
                f"{self._peer} cannot be connected to: {error}", "is the server running, and is it that port?"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close the connection. Safe to call again."""
        self._socket.close()

    def read(self, timeout: float) -> bytes:
        """Return what has arrived, as soon as anything has; nothing when nothing came in time.

        Args:
            timeout: seconds, at most.
        """
        self._check_open()
        data = b""
        if self._wait(select.POLLIN, timeout):
            with self._translated(), contextlib.suppress(BlockingIOError):
                data = self._socket.recv(_CHUNK)
                if not data:
                    raise TransportError(f"{self._peer} closed the connection")
        return data

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._check_open()
        rest = memoryview(data)
        deadline = time.monotonic() + self._timeout
        while rest:
            if not self._wait(select.POLLOUT, deadline - time.monotonic()):
                raise TransportError(
                    f"{self._peer} did not take {len(rest)} of {len(data)} bytes within {self._timeout:g} s"
                )
            with self._translated(), contextlib.suppress(BlockingIOError):
                rest = rest[self._socket.send(rest) :]

    def _check_open(self) -> None:
        if self._socket.fileno() < 0:
            raise TransportError(f"the connection to {self._peer} is closed")

    def _wait(self, event: int, timeout: float) -> bool:
        ready = select.poll()
        ready.register(self._socket, event)
        return bool(ready.poll(max(0.0, timeout) * 1000))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError as error:
            raise TransportError(f"the connection to {self._peer} broke: {error}") from error
