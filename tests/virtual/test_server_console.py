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
        chunk = client.recv(size - len(data))
        assert chunk, "the server closed the connection"
        data += chunk
    return data


def test_clients_receive_all_output(server: ConsoleServer) -> None:
    early = connect(server)
    server.backlog.append(b"boot\r\n")
    assert receive(early, 6) == b"boot\r\n"
    late = connect(server)
    server.backlog.append(b"ready\r\n")
    assert receive(late, 13) == b"boot\r\nready\r\n"
    assert receive(early, 7) == b"ready\r\n"


def test_input_of_clients_is_received(server: ConsoleServer, typed: SimpleQueue[bytes]) -> None:
    # The server refuses connections that are closed before it accepts them: it cannot identify their owner.
    for letter in (b"a", b"b"):
        with connect(server) as client:
            client.sendall(letter)
            assert typed.get(timeout=5.0) == letter


def test_leaving_client_does_not_disturb_others(server: ConsoleServer) -> None:
    leaving, staying = connect(server), connect(server)
    leaving.close()
    for _ in range(3):
        server.backlog.append(b"x" * 100_000)
    assert receive(staying, 300_000) == b"x" * 300_000


def test_slow_client_does_not_block_others(server: ConsoleServer) -> None:
    slow = connect(server)
    server.backlog.append(b"y" * 900_000)
    assert receive(connect(server), 900_000) == b"y" * 900_000
    slow.close()


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
def test_backlog_holds_the_last_bytes(outputs: list[bytes], limit: int) -> None:
    backlog = Backlog(limit)
    for output in outputs:
        backlog.append(output)
    everything = b"".join(outputs)
    assert backlog.read(0, timeout=0.0) == (everything[-limit:], len(everything))


@given(st.lists(st.binary(max_size=30)))
def test_concurrent_reads_lose_nothing(outputs: list[bytes]) -> None:
    backlog = Backlog(30)
    position, received = 0, b""
    for output in outputs:
        backlog.append(output)
        data, position = backlog.read(position, timeout=0.0)
        received += data
    assert received == b"".join(outputs)
