# SPDX-License-Identifier: Apache-2.0
"""An RPC client that sends exactly the bytes that a test gives it."""

import socket
import struct

from utvm.runtime import RPC_PROTOCOL
from utvm.session.minrpc import MAGIC, Code


def init_packet(version: str = RPC_PROTOCOL) -> bytes:
    """Return the packet that begins a session."""
    return struct.pack("<iQ", Code.INIT_SERVER, len(version)) + version.encode() + struct.pack("<i", 0)


class RawClient:
    """A TCP connection to a server of TVM's RPC; ``with`` closes it."""

    def __init__(self, port: int, key: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.key = f"client:{key}".encode()

    def greet(self) -> "RawClient":
        """Exchange keys and return the client."""
        self.socket.sendall(struct.pack("<ii", MAGIC, len(self.key)) + self.key)
        magic, size = struct.unpack("<ii", self.read(8))
        assert magic == MAGIC
        assert self.read(size).startswith(b"server:")
        return self

    def request(self, packet: bytes) -> bytes:
        """Send a packet and return the reply."""
        self.send(packet)
        return self.receive()

    def send(self, packet: bytes) -> None:
        self.socket.sendall(struct.pack("<Q", len(packet)) + packet)

    def receive(self) -> bytes:
        """Return the next packet."""
        return self.read(struct.unpack("<Q", self.read(8))[0])

    def read(self, size: int) -> bytes:
        """Return this many bytes."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the server closed the connection"
            data += part
        return data

    def is_closed(self) -> bool:
        """Return whether the server has closed the connection. Waits until it has, or sends a byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
