# SPDX-License-Identifier: Apache-2.0
"""TCP as a transport: nothing hangs, for any behaviour of the server, and errors are reported."""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.session.test_transport import check_read_timeout, read_all
from utvm.base.process.peer import tcp_pair
from utvm.errors import TransportError
from utvm.session.transport import TcpConnection, Transport

_EVERYTHING = bytes(range(256)) * 1000


@pytest.fixture
def connection_pair() -> Iterator[tuple[Transport, socket.socket]]:
    """A connection, and the server's end of it."""
    local, remote = tcp_pair()
    with remote, TcpConnection(local, timeout=0.3) as connection:
        yield connection, remote


def test_bytes_are_sent_both_ways(connection_pair: tuple[Transport, socket.socket]) -> None:
    connection, server = connection_pair
    server.sendall(_EVERYTHING)
    assert read_all(connection, len(_EVERYTHING)) == _EVERYTHING
    connection.write(b"\xff\xfd\r\n\x00")
    assert server.recv(100) == b"\xff\xfd\r\n\x00"


def test_read_keeps_its_time_limit(connection_pair: tuple[Transport, socket.socket]) -> None:
    connection, server = connection_pair
    check_read_timeout(connection, lambda: server.sendall(b"a"))


def test_closed_server_is_an_error_after_its_last_bytes(connection_pair: tuple[Transport, socket.socket]) -> None:
    connection, server = connection_pair
    server.sendall(b"last")
    server.close()
    assert read_all(connection, 4) == b"last"
    with pytest.raises(TransportError, match="closed the connection"):
        connection.read(60.0)


def test_reset_connection_is_an_error_both_ways(connection_pair: tuple[Transport, socket.socket]) -> None:
    connection, server = connection_pair
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    with pytest.raises(TransportError, match="broke"):
        connection.read(60.0)
    with pytest.raises(TransportError, match="broke"):
        connection.write(b"x")


def test_server_that_does_not_read_is_an_error_in_time(connection_pair: tuple[Transport, socket.socket]) -> None:
    connection, _server = connection_pair
    begin = time.monotonic()
    with pytest.raises(TransportError, match=r"did not take \d+ of 50000000 bytes within 0\.3 s"):
        connection.write(bytes(50_000_000))
    assert time.monotonic() - begin < 10.0


def test_use_of_a_closed_connection_is_an_error(connection_pair: tuple[Transport, socket.socket]) -> None:
    connection, _server = connection_pair
    connection.close()
    connection.close()
    for action in (lambda: connection.read(0.1), lambda: connection.write(b"x")):
        with pytest.raises(TransportError, match="is closed"):
            action()
