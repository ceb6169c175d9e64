# SPDX-License-Identifier: Apache-2.0
"""The stlink-server port: several clients, bad clients, lost clients."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from fake_board import RAM, FakeBoard
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm.virtual.serving import StLinkServer

STATUS_OK = 1
OPEN = struct.pack("<BxxxI", 3, 1)
DEVICE_INFO = struct.pack("<BBxxI", 2, 0, 41)


class Client:
    """A minimal client of the protocol."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5.0)

    def request(self, message: bytes, size: int) -> bytes:
        self.socket.sendall(message)
        reply = b""
        while len(reply) < size:
            chunk = self.socket.recv(size - len(reply))
            if not chunk:
                raise ConnectionResetError
            reply += chunk
        return reply

    def open(self) -> int:
        status: int = struct.unpack("<II", self.request(OPEN, 8))[0]
        return status

    def command(self, command: bytes, *, data: bytes = b"", reply: int = 0) -> bytes:
        message = struct.pack("<BxxxI16sBxxxI", 5, 1, command, 0 if data else 1, len(data) or reply)
        return self.request(message + data, 4 + reply)

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def board() -> FakeBoard:
    return FakeBoard()


@pytest.fixture
def server(board: FakeBoard) -> Iterator[StLinkServer]:
    server = StLinkServer(board, serial="VIRTUAL-1", latency=0.0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.close()
    thread.join(timeout=5.0)
    assert not thread.is_alive()


def is_usable(server: StLinkServer) -> bool:
    """Whether a new client can open the probe and use it."""
    client = Client(server.port)
    deadline = time.monotonic() + 5.0
    while client.open() != STATUS_OK and time.monotonic() < deadline:
        pass  # the server may not yet know that the previous client closed
    reply = client.command(b"\xf1", reply=6)
    client.socket.close()
    return reply == struct.pack("<I", STATUS_OK) + b"\x2a\x1b\x83\x04\x4b\x37"


def test_device_info_names_the_probe(server: StLinkServer) -> None:
    reply = Client(server.port).request(DEVICE_INFO, 45)
    status, _device, serial, vendor, product, used = struct.unpack("<II32sHHB", reply)
    assert (status, serial.rstrip(b"\0"), vendor, product, used) == (STATUS_OK, b"VIRTUAL-1", 0x0483, 0x374B, 0)


def test_second_client_finds_the_probe_in_use(server: StLinkServer, board: FakeBoard) -> None:
    first, second = Client(server.port), Client(server.port)
    assert first.open() == STATUS_OK
    assert second.request(DEVICE_INFO, 45)[-1] == 1
    assert second.open() != STATUS_OK
    refusal = second.command(struct.pack("<BBIH", 0xF2, 0x08, RAM, 4), data=b"abcd")
    assert struct.unpack("<I", refusal)[0] != STATUS_OK
    assert not any(board.ram)
    assert first.command(b"\xf5", reply=2)[:4] == struct.pack("<I", STATUS_OK)
    first.socket.close()
    assert is_usable(server)


def test_closing_the_device_frees_the_probe(server: StLinkServer) -> None:
    first, second = Client(server.port), Client(server.port)
    assert first.open() == STATUS_OK
    first.request(struct.pack("<BxxxI", 4, 1), 4)
    assert second.open() == STATUS_OK


@pytest.mark.parametrize("fragment", [b"\x05", OPEN[:3], struct.pack("<BxxxI16sBxxxI", 5, 1, b"", 0, 64) + b"half"])
def test_client_lost_in_a_request_does_not_disturb_others(server: StLinkServer, fragment: bytes) -> None:
    client = Client(server.port)
    client.open()
    client.socket.sendall(fragment)
    client.socket.close()
    assert is_usable(server)


@pytest.mark.parametrize("garbage", [b"\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x09"])
def test_client_of_another_protocol_is_dropped(server: StLinkServer, garbage: bytes) -> None:
    client = Client(server.port)
    client.socket.sendall(garbage)
    assert client.is_closed()
    assert is_usable(server)


def test_transfer_of_a_gigabyte_is_refused(server: StLinkServer) -> None:
    client = Client(server.port)
    client.open()
    client.socket.sendall(struct.pack("<BxxxI16sBxxxI", 5, 1, b"\xf2\x07", 1, 1 << 30))
    assert client.is_closed()
    assert is_usable(server)


def test_trace_output_is_not_available(server: StLinkServer) -> None:
    client = Client(server.port)
    client.open()
    reply = client.request(struct.pack("<BxxxI16sBxxxI", 5, 1, b"", 2, 4), 8)
    assert struct.unpack("<I", reply[:4])[0] != STATUS_OK


def test_probe_commands_have_the_latency(board: FakeBoard) -> None:
    server = StLinkServer(board, serial="SLOW", latency=0.02)
    threading.Thread(target=server.serve, daemon=True).start()
    client = Client(server.port)
    client.open()
    started = time.monotonic()
    for _ in range(5):
        client.command(b"\xf5", reply=2)
    assert time.monotonic() - started >= 5 * 0.02  # a lower bound, valid on slow machines
    server.close()


def test_port_in_use_is_an_error(server: StLinkServer, board: FakeBoard) -> None:
    with pytest.raises(OSError, match="in use"):
        StLinkServer(board, serial="X", port=server.port)


@given(st.binary(min_size=1, max_size=100))
@settings(max_examples=40, deadline=None)
def test_garbage_does_not_stop_the_server(garbage: bytes) -> None:
    server = StLinkServer(FakeBoard(), serial="X")
    threading.Thread(target=server.serve, daemon=True).start()
    client = Client(server.port)
    client.open()
    client.socket.sendall(garbage)
    client.socket.close()
    assert is_usable(server)
    server.close()
