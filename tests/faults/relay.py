# SPDX-License-Identifier: Apache-2.0
"""A relay whose connections can fall silent: no bytes get through in either direction, and nothing is closed."""

import contextlib
import socket
import threading
import time
from types import TracebackType

_LOOK = 0.05
_MOST = 1 << 16


class Relay:
    """A local port that forwards to another one, for the length of a ``with`` block.

    Args:
        port: the port to forward to.
        own: the port of the relay, 0 for any free one; or the path of a Unix socket.
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
        """Block all traffic for so many seconds; return whether there was a connection."""
        self._silent_until = time.monotonic() + seconds
        return self._open > 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.forward(self._server.accept()[0])

    def forward(self, near: socket.socket) -> list[threading.Thread]:
        """Forward a connection in both directions."""
        try:
            far = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            near.close()
            return []
        threads = [
            threading.Thread(target=self._pass_on, args=ends, daemon=True) for ends in ((near, far), (far, near))
        ]
        for thread in threads:
            thread.start()
        return threads

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        self._open += 1
        with source, sink, contextlib.suppress(OSError):
            while piece := source.recv(_MOST):
                while time.monotonic() < self._silent_until:
                    time.sleep(_LOOK)
                sink.sendall(piece)
            # When one end closes, close the other.
            for end in (source, sink):
                end.shutdown(socket.SHUT_RDWR)
        self._open -= 1
