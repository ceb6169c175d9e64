# SPDX-License-Identifier: Apache-2.0
"""The console's TCP server: early and late clients, typing, a bounded backlog."""

import socket
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.virtual.console import Backlog, ConsoleServer


@pytest.fixture
def typed() -> SimpleQueue[bytes]:
    return SimpleQueue()


@pytest.fixture
def server(typed: SimpleQueue[bytes]) -> Iterator[ConsoleServer]:
    server = ConsoleServer(typed.put)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.close()
    thread.join(timeout=5.0)
    assert not thread.is_alive()


def connect(server: ConsoleServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=5.0)


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part, "the server closed the connection"
        data += part
    return data


def test_every_client_sees_all_output_from_the_beginning(server: ConsoleServer) -> None:
    early = connect(server)
    server.backlog.append(b"boot\r\n")
    assert receive(early, 6) == b"boot\r\n"
    late = connect(server)
    server.backlog.append(b"ready\r\n")
    assert receive(late, 13) == b"boot\r\nready\r\n"
    assert receive(early, 7) == b"ready\r\n"


def test_what_clients_type_goes_in(server: ConsoleServer, typed: SimpleQueue[bytes]) -> None:
    # Nobody can tell whose a connection was that is closed before it is accepted: it is refused.
    for letter in (b"a", b"b"):
        with connect(server) as client:
            client.sendall(letter)
            assert typed.get(timeout=5.0) == letter


def test_a_client_that_leaves_harms_nobody(server: ConsoleServer) -> None:
    leaving, staying = connect(server), connect(server)
    leaving.close()
    for _ in range(3):
        server.backlog.append(b"x" * 100_000)
    assert receive(staying, 300_000) == b"x" * 300_000


def test_a_client_that_does_not_read_holds_nobody_up(server: ConsoleServer) -> None:
    deaf = connect(server)
    server.backlog.append(b"y" * 900_000)
    assert receive(connect(server), 900_000) == b"y" * 900_000
    deaf.close()


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_the_backlog_keeps_the_last_bytes(outputs: list[bytes], limit: int) -> None:
    backlog = Backlog(limit)
    for output in outputs:
        backlog.append(output)
    everything = b"".join(outputs)
    assert backlog.read(0, timeout=0.0) == (everything[-limit:], len(everything))


@given(st.lists(st.binary(max_size=30)))
def test_reading_along_loses_nothing(outputs: list[bytes]) -> None:
    backlog = Backlog(30)
    position, seen = 0, b""
    for output in outputs:
        backlog.append(output)
        data, position = backlog.read(position, timeout=0.0)
        seen += data
    assert seen == b"".join(outputs)
