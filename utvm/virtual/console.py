# SPDX-License-Identifier: Apache-2.0
"""The serial console of a virtual board on TCP, with all output since the start that the backlog still holds."""

import socket
import threading
from collections.abc import Callable

from utvm.base.process.peer import Acceptor, listen

BACKLOG_BYTES = 1 << 20


class Backlog:
    """The last bytes a console printed, readable from any position by any number of threads."""

    def __init__(self, limit: int = BACKLOG_BYTES) -> None:
        self._limit = limit
        self._bytes = bytearray()
        self._start = 0  # position of the oldest byte in the backlog, counted from the beginning of all output
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
        """Read the bytes from ``position`` on; return them and the position after them.

        Waits up to ``timeout`` seconds for a byte. If bytes at the position were dropped, reading continues at the
        oldest byte available.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._start + len(self._bytes) > position, timeout)
            start = max(position, self._start)
            data = bytes(self._bytes[start - self._start :])
            return data, start + len(data)


class ConsoleServer(Acceptor):
    """Serves a console on the loopback interface: output to all clients, input from any of them.

    Args:
        type_in: called with received bytes.
        port: TCP port, 0 for any free one.
        anyone: True to accept other users of this computer.
    """

    def __init__(self, type_in: Callable[[bytes], None], port: int = 0, *, anyone: bool = False) -> None:
        self.backlog = Backlog()
        self._type_in = type_in
        super().__init__(listen(port, anyone=anyone))
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Accept clients until :meth:`close`, with two threads each, one per direction."""
        for client in self.clients():
            # Replies are short and must not wait for the client's acknowledgement of the previous one.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            gone = threading.Event()
            threading.Thread(target=self._print_to, args=(client, gone), daemon=True).start()
            threading.Thread(target=self._read_from, args=(client, gone), daemon=True).start()

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
