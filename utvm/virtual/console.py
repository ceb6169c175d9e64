# SPDX-License-Identifier: Apache-2.0
"""The serial console of a virtual board on TCP: output goes to all clients, input comes from any of them.

A client that connects late gets the output from the start, as far as the backlog has it.
"""

import socket
import threading
from collections.abc import Callable

from utvm.base.process.peer import listen

BACKLOG_BYTES = 1 << 20


class Backlog:
    """The last bytes a console printed, readable from any position by any number of threads."""

    def __init__(self, limit: int = BACKLOG_BYTES) -> None:
        self._limit = limit
        self._bytes = bytearray()
        self._start = 0  # position of the first byte kept, counted from the beginning of all output
        self._changed = threading.Condition()

    def append(self, data: bytes) -> None:
        """Add output; the oldest bytes beyond the limit are dropped. Never blocks for long."""
        with self._changed:
            self._bytes += data
            surplus = len(self._bytes) - self._limit
            if surplus > 0:
                del self._bytes[:surplus]
                self._start += surplus
            self._changed.notify_all()

    def read(self, position: int, timeout: float) -> tuple[bytes, int]:
        """Read the bytes from ``position`` on; return them with the position after them.

        Waits up to ``timeout`` seconds for a byte, then returns nothing. A position whose bytes were dropped
        continues at the oldest byte kept.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._start + len(self._bytes) > position, timeout)
            start = max(position, self._start)
            data = bytes(self._bytes[start - self._start :])
            return data, start + len(data)


class ConsoleServer:
    """Serves a console on the loopback interface.

    Args:
        type_in: receives what clients send.
        port: TCP port, 0 for any free one.
        anyone: other users of this computer may connect, too.
    """

    def __init__(self, type_in: Callable[[bytes], None], port: int = 0, *, anyone: bool = False) -> None:
        self.backlog = Backlog()
        self._type_in = type_in
        self._listener = listen(port, anyone=anyone)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept clients until :meth:`close`; each gets two threads, one a direction."""
        while True:
            try:
                client, _peer = self._listener.accept()
            except OSError:
                return
            # Answers are short: they must not wait until the client has acknowledged the one before.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            gone = threading.Event()
            threading.Thread(target=self._print_to, args=(client, gone), daemon=True).start()
            threading.Thread(target=self._read_from, args=(client, gone), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _print_to(self, client: socket.socket, gone: threading.Event) -> None:
        position = 0
        with client:
            while not gone.is_set():
                data, position = self.backlog.read(position, timeout=1.0)
                try:
                    client.sendall(data)
                except OSError:
                    return

    def _read_from(self, client: socket.socket, gone: threading.Event) -> None:
        try:
            while data := client.recv(4096):
                self._type_in(data)
        except OSError:
            pass
        finally:
            gone.set()
