# SPDX-License-Identifier: Apache-2.0
"""A bridge that registers with a tracker: TVM's own, or a server that is not a tracker."""

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.portions import by_day
from tests.session.fake_link import KEY, FakeBoard, make_bridge, serving
from tests.session.raw_client import RawClient
from tests.session.stock_client import ClientError, StockClient
from utvm.base.process import Service, free_port
from utvm.errors import TransportError

pytestmark = pytest.mark.slow  # A tracker and a client each import TVM, which takes seconds.

_TRACKER = """
import sys, time
from tvm.rpc.tracker import Tracker
tracker = Tracker("127.0.0.1", port={port}, port_end={port} + 1, silent=True)
print("ready", tracker.port, flush=True)
time.sleep(3600)
"""


@contextmanager
def stock_tracker(log: Path, port: int) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-c", _TRACKER.format(port=port)]
    with Service("tracker", command, log=log, health=r"ready \d+", error=TransportError, start_timeout=180):
        yield "127.0.0.1", port


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with stock_tracker(tmp_path_factory.mktemp("tracker") / "log", free_port()) as address:
        yield address


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    with StockClient(tmp_path_factory.mktemp("client") / "log") as client:
        yield client


class TrackerClient:
    """A client that sends requests to a tracker."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, 60)
        self.socket.sendall(struct.pack("<i", 0x2F271))
        assert self._read(4) == struct.pack("<i", 0x2F271)

    def query(self, *request: object) -> Any:
        data = json.dumps(request).encode()
        self.socket.sendall(struct.pack("<i", len(data)) + data)
        return json.loads(self._read(struct.unpack("<i", self._read(4))[0]))

    def free_servers(self) -> int:
        """Return how many servers wait for a client under the bridge's key."""
        _code, status = self.query(6)
        return int(status["queue_info"].get(KEY, {"free": 0})["free"])

    def request(self) -> tuple[str, int, str]:
        _code, (host, port, match_key) = self.query(4, KEY, "", 1)
        return host, port, match_key

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part
            data += part
        return data

    def __enter__(self) -> "TrackerClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_stock_client_finds_the_board_by_its_key(client: StockClient, tracker: tuple[str, int]) -> None:
    board = FakeBoard()
    with serving(make_bridge(board, tracker=tracker, tracker_period=0.2)) as bridge, TrackerClient(tracker) as queries:
        client(f"tracker = rpc.connect_tracker('127.0.0.1', {tracker[1]})")
        assert eventually(lambda: queries.free_servers() == 1)
        servers = queries.query(6)[1]["server_info"]
        assert {"key": f"server:{KEY}", "addr": ["127.0.0.1", bridge.port]} in servers
        for _ in range(3):
            client(f"session = tracker.request({KEY!r})")
            assert client("session.get_function('test.add_one')(41)") == 42
            # A used board is not offered.
            assert queries.free_servers() == 0
            client.leave()
            assert eventually(lambda: queries.free_servers() == 1)
        # Without the tracker, no client is accepted.
        with pytest.raises(ClientError, match="cannot find server that matches key"):
            client.connect(bridge, KEY)
        # A match key is accepted once.
        match_key = queries.request()[2]
        with RawClient(bridge.port, match_key) as first:
            first.greet()
            with pytest.raises(ClientError, match="cannot find server that matches key"):
                client.connect(bridge, match_key)
    assert board.restarts == 0


def test_waiting_client_gets_the_board_after_a_fault(client: StockClient, tracker: tuple[str, int]) -> None:
    board = FakeBoard()
    with serving(make_bridge(board, tracker=tracker, tracker_period=0.2)):
        client(f"tracker = rpc.connect_tracker('127.0.0.1', {tracker[1]})")
        client(f"lost = tracker.request({KEY!r})")
        with pytest.raises(ClientError, match="took a fault"):
            client("lost.get_function('test.fault')()")
        client(f"session = tracker.request({KEY!r})")
        assert client("session.get_function('test.add_one')(41)") == 42
        client("lost = session = None")
    assert board.restarts == 1


def test_unused_match_key_is_replaced(tracker: tuple[str, int]) -> None:
    with (
        serving(make_bridge(FakeBoard(), tracker=tracker, tracker_period=0.1)) as bridge,
        TrackerClient(tracker) as queries,
    ):
        assert eventually(lambda: queries.free_servers() == 1)
        _host, _port, unused = queries.request()
        assert queries.free_servers() == 0
        assert eventually(lambda: queries.free_servers() == 1)
        _host, _port, used = queries.request()
        assert used != unused
        with RawClient(bridge.port, unused) as late:
            late.socket.sendall(struct.pack("<ii", 0xFF271, len(late.key)) + late.key)
            assert late.read(4) == struct.pack("<i", 0xFF273)
            assert late.is_closed()
        with RawClient(bridge.port, used) as client:
            client.greet()


def test_restarted_tracker_is_found_again(tmp_path: Path) -> None:
    port = free_port()
    board = FakeBoard()
    with serving(make_bridge(board, tracker=("127.0.0.1", port), tracker_period=0.2)):
        assert eventually(lambda: any("trying again" in line for line in board.lines))
        for number in range(2):
            with stock_tracker(tmp_path / f"{number}.log", port) as address, TrackerClient(address) as queries:
                assert eventually(lambda: queries.free_servers() == 1)
        # Each kind of error is logged once, not every time.
        assert len(board.lines) < 10, board.lines


@pytest.mark.parametrize(
    ("answer", "message"),
    [(b"HTTP/1.1 400\r\n", "it answers b'HTTP'"), (b"", "it does not reply")],
    ids=["another protocol", "closes"],
)
def test_server_that_is_no_tracker_is_an_error(answer: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            connected, _address = server.accept()
            with connected:
                connected.recv(4)
                connected.sendall(answer)

        thread = threading.Thread(target=respond)
        thread.start()
        bridge = make_bridge(FakeBoard(), tracker=server.getsockname())
        with pytest.raises(TransportError, match=f"127.0.0.1:.* is not an RPC tracker: {re.escape(message)}"):
            bridge.serve()
        thread.join()


@pytest.mark.parametrize("delay", by_day([0.0, 0.03, 1.0], 0.0, 1.0))
def test_signal_ends_the_bridge_at_any_time(delay: float) -> None:
    program = (
        "from tests.session.fake_link import FakeBoard, make_bridge\n"
        "from utvm.base.process.signals import raise_on_signals\n"
        f"bridge = make_bridge(FakeBoard(), tracker=('127.0.0.1', {free_port()}))\n"
        "raise_on_signals()\n"
        "print(bridge.port, flush=True)\n"
        "bridge.serve()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert int(process.stdout.readline())
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
            _out, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert "Interrupted" in errors
    assert process.returncode == 1
