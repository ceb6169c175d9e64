# SPDX-License-Identifier: Apache-2.0
"""A GDB server with scripted replies, also some that no real one sends."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType

from utvm.probe.packets import PacketReader, encode, escape

TARGET_XML = b'<target><feature name="m"><reg name="r0" bitsize="32"/><reg name="pc" bitsize="32"/></feature></target>'

_INTERRUPT = b"\x03"  # A single byte, not a packet.

Reply = Callable[[bytes], "list[bytes] | None"]


class FakeGdbServer:
    """Serves one client after the other in a thread.

    Args:
        reply: returns the raw bytes to send for a request's payload, or None for the default reply.
    """

    def __init__(self, reply: Reply = lambda _: None) -> None:
        self._reply = reply
        self.requests: list[bytes] = []
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "FakeGdbServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5.0)

    def connect(self) -> socket.socket:
        """Return the client's end of a new connection, which the server closes."""
        client = socket.create_connection(self._listener.getsockname())
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.append(client)
        return client

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        reader = PacketReader()
        try:
            while data := client.recv(65536):
                reader.feed(data.removesuffix(_INTERRUPT))
                while (request := reader.next_packet()) is not None:
                    self.requests.append(request)
                    replies = self._reply(request)
                    for raw in _default(request) if replies is None else replies:
                        client.sendall(raw)
                if data.endswith(_INTERRUPT):
                    for raw in self._reply(_INTERRUPT) or ():
                        client.sendall(raw)
        except OSError:
            return


def _default(request: bytes) -> list[bytes]:
    if request.startswith(b"qSupported"):
        return [encode(b"PacketSize=4000;qXfer:features:read+;QStartNoAckMode+")]
    if request == b"QStartNoAckMode" or request.startswith(b"qRcmd"):
        return [encode(b"OK")]
    if request.startswith(b"qXfer:features:read:target.xml:"):
        return [encode(b"l" + escape(TARGET_XML))]
    return [encode(b"")]
