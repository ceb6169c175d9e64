# SPDX-License-Identifier: Apache-2.0
"""TCP as a transport: whatever the server does, nothing hangs, and what went wrong is said."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.session.test_transport import read_all, reads_no_longer_than_asked
from utvm.base.process.peer import tcp_pair
from utvm.errors import TransportError
from utvm.session.transport import TcpConnection, Transport

_EVERYTHING = bytes(range(256)) * 1000


@pytest.fixture
def ends() -> Iterator[tuple[Transport, socket.socket]]:
    """A connection, and the server's end of it."""
    ours, theirs = tcp_pair()
    with theirs, TcpConnection(ours, timeout=0.3) as connection:
        yield connection, theirs


def test_bytes_go_both_ways(ends: tuple[Transport, socket.socket]) -> None:
    connection, other = ends
    other.sendall(_EVERYTHING)
    assert read_all(connection, len(_EVERYTHING)) == _EVERYTHING
    connection.write(b"\xff\xfd\r\n\x00")
    assert other.recv(100) == b"\xff\xfd\r\n\x00"


def test_reading_takes_no_longer_than_asked(ends: tuple[Transport, socket.socket]) -> None:
    connection, other = ends
    reads_no_longer_than_asked(connection, lambda: other.sendall(b"a"))


def test_a_server_that_leaves_is_an_error_after_its_last_bytes(ends: tuple[Transport, socket.socket]) -> None:
    connection, other = ends
    other.sendall(b"last")
    other.close()
    assert read_all(connection, 4) == b"last"
    with pytest.raises(TransportError, match="closed the connection"):
        connection.read(60.0)


def test_a_connection_that_is_reset_is_an_error_both_ways(ends: tuple[Transport, socket.socket]) -> None:
    connection, other = ends
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()
    with pytest.raises(TransportError, match="broke"):
        connection.read(60.0)
    with pytest.raises(TransportError, match="broke"):
        connection.write(b"x")


def test_a_server_that_does_not_read_is_an_error_in_time(ends: tuple[Transport, socket.socket]) -> None:
    connection, _other = ends
    begin = time.monotonic()
    with pytest.raises(TransportError, match=r"did not take \d+ of 50000000 bytes within 0\.3 s"):
        connection.write(bytes(50_000_000))
    assert time.monotonic() - begin < 10.0


def test_a_closed_connection_is_an_error_to_use(ends: tuple[Transport, socket.socket]) -> None:
    connection, _other = ends
    connection.close()
    connection.close()
    for action in (lambda: connection.read(0.1), lambda: connection.write(b"x")):
        with pytest.raises(TransportError, match="is closed"):
            action()
