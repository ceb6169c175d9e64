# SPDX-License-Identifier: Apache-2.0
"""A connection that falls silent: bytes neither get through nor come back, and nobody is told."""

import contextlib
import socket
import threading
import time
from types import TracebackType

_LOOK = 0.05
_MOST = 1 << 16


class Relay:
    """A port of this computer that leads to another one, for the length of a ``with`` block.

    Args:
        port: where it leads to.
        own: the port itself, 0 for any free one; or the path of a Unix socket.
    """

    def __init__(self, port: int, own: int | str = 0) -> None:
        self._port = port
        self._silent_until = 0.0
        self._open = 0
        if isinstance(own, str):
            self._server = socket.socket(socket.AF_UNIX)
            self._server.bind(own)
            self._server.listen()
        else:
            self._server = socket.create_server(("127.0.0.1", own))
            self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> "Relay":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def hush(self, seconds: float) -> bool:
        """Let nothing through for so long; return whether anybody was connected."""
        self._silent_until = time.monotonic() + seconds
        return self._open > 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.lead(self._server.accept()[0])

    def lead(self, near: socket.socket) -> list[threading.Thread]:
        """Pass on what comes by a connection, and back."""
        try:
            far = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            near.close()
            return []
        ways = [threading.Thread(target=self._pass_on, args=ends, daemon=True) for ends in ((near, far), (far, near))]
        for way in ways:
            way.start()
        return ways

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        self._open += 1
        with one, other, contextlib.suppress(OSError):
            while piece := one.recv(_MOST):
                while time.monotonic() < self._silent_until:
                    time.sleep(_LOOK)
                other.sendall(piece)
            # What is said of the one end's end is said to the other, too.
            for each in (one, other):
                each.shutdown(socket.SHUT_RDWR)
        self._open -= 1
