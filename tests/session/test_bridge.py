# SPDX-License-Identifier: Apache-2.0
"""The bridge between TVM's own client and fake links."""

import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.session.fake_link import KEY, LIMIT, FakeBoard, make_bridge, serving
from tests.session.raw_client import RawClient, init_packet
from tests.session.stock_client import ClientError, StockClient
from utvm.errors import ConfigError, TransportError
from utvm.runtime import RPC_PROTOCOL
from utvm.session.bridge import Bridge
from utvm.session.minrpc import MAGIC


@pytest.fixture(scope="module")
def client_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    with StockClient(tmp_path_factory.mktemp("client") / "log") as process:
        yield process


@pytest.fixture
def client(client_process: StockClient) -> Iterator[StockClient]:
    yield client_process
    client_process.leave()


@pytest.fixture
def board() -> FakeBoard:
    return FakeBoard()


@pytest.fixture
def bridge(board: FakeBoard) -> Iterator[Bridge]:
    with serving(make_bridge(board)) as bridge:
        yield bridge


def eventually(condition: Callable[[], bool], timeout: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def is_free(board: FakeBoard) -> bool:
    """Return whether all clients that have connected to the bridge have left it."""
    return sum("connected" in entry for entry in board.lines) == sum("ended" in entry for entry in board.lines)


def test_protocol_version_equals_the_installed_tvms() -> None:
    # Located, and not imported, which takes seconds.
    tvm = find_spec("tvm")
    assert tvm and tvm.origin
    (header,) = Path(tvm.origin).parent.rglob("rpc_reference.h")
    (version,) = re.findall(r'kRPCProtocolVer\s*=\s*"([^"]*)"', header.read_text(encoding="utf-8"))
    assert version == RPC_PROTOCOL


def test_stock_client_calls_functions(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    client.connect(bridge, KEY)
    assert client("[add_one(n) for n in (41, -1, 1 << 40)]") == [42, 0, (1 << 40) + 1]
    with pytest.raises(ClientError, match="no_such_function"):
        client("session.get_function('test.no_such_function')")
    # The first packet equals the raw client's.
    assert board.links[0].packets[0] == init_packet()
    client.leave()
    assert eventually(lambda: board.links[0].terminated)
    assert board.restarts == 0


def test_endless_client_thread_does_not_block_the_server(board: FakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C that came while a lock was being taken was lost, and a second was needed."""
    monkeypatch.setattr("utvm.session.bridge._LEAVING", 0.2)
    waiting, go = threading.Event(), threading.Event()

    def log(line: str) -> None:
        if line.endswith(": ended"):
            waiting.set()
            assert go.wait(90)

    with serving(make_bridge(board, log=log)) as bridge:
        with RawClient(bridge.port, KEY) as client:
            client.greet()
        assert waiting.wait(30)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("bridge ")]
    assert len(threads) == 1
    go.set()
    threads[0].join(30)
    assert not threads[0].is_alive()


def test_exception_of_the_board_reaches_the_client(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match="the model refuses: café"):
        client("refuse()")
    # The function failed, and the board did not.
    assert client("add_one(1)") == 2
    assert (board.restarts, len(board.links)) == (0, 1)


def test_wrong_key_is_refused(client: StockClient, bridge: Bridge) -> None:
    with pytest.raises(ClientError, match="cannot find server that matches key"):
        client.connect(bridge, "another")
    client.connect(bridge, KEY)


def test_bridge_without_a_key_accepts_any_client(client: StockClient, board: FakeBoard) -> None:
    with serving(make_bridge(board, key="")) as bridge:
        for key in ("", KEY):
            client.connect(bridge, key)
            assert client("add_one(1)") == 2
            client.leave()
            assert eventually(lambda: is_free(board))
        client(f"plain = rpc.connect('127.0.0.1', {bridge.port})")
        assert client("plain.get_function('test.add_one')(2)") == 3
        client("plain = None")


def test_client_without_a_key_is_refused(client: StockClient, bridge: Bridge) -> None:
    with pytest.raises(ClientError, match="cannot find server that matches key"):
        client(f"rpc.connect('127.0.0.1', {bridge.port})")


def test_key_has_no_white_space(board: FakeBoard) -> None:
    with pytest.raises(ConfigError, match="white space"):
        make_bridge(board, key="two words")


def test_port_in_use_is_an_error(bridge: Bridge, board: FakeBoard) -> None:
    with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{bridge.port}"):
        make_bridge(board, port=bridge.port)


@pytest.mark.slow
def test_second_client_gets_an_error_naming_the_first(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    with RawClient(bridge.port, KEY).greet() as first:
        first.request(init_packet())
        name = "{}:{}".format(*first.socket.getsockname())
        begin = time.monotonic()
        with pytest.raises(ClientError, match=rf"busy: {KEY} serves {name} since \d\d:\d\d:\d\d \(\d+ s\)"):
            client.connect(bridge, KEY)
        assert time.monotonic() - begin < 5
        with RawClient(bridge.port, KEY).greet() as second:
            assert b"busy" in second.request(init_packet())
            assert second.is_closed()
        first.request(struct.pack("<i", 9))  # The first is not affected.
    assert eventually(lambda: is_free(board))
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


def test_fault_resets_the_board_and_ends_the_session(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match="the board took a fault"):
        client("fault()")
    for _ in range(2):
        with pytest.raises(ClientError, match=r"the board was reset, .* connect again.*\n?.*took a fault"):
            client("add_one(1)")
    # The client that has lost its handles is still connected; another need not wait for it.
    client("lost = [session, add_one, refuse, fault, hang]")
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2
    assert (board.restarts, len(board.links)) == (1, 2)


def test_call_that_takes_too_long_is_cancelled(client: StockClient, board: FakeBoard) -> None:
    with serving(make_bridge(board, call_timeout=0.3)) as bridge:
        client.connect(bridge, KEY)
        with pytest.raises(ClientError, match=r"no answer within 0\.3 s"):
            client("hang()")
        client.connect(bridge, KEY)
        assert client("add_one(1)") == 2
        assert board.restarts == 1


def test_reset_is_retried_for_each_client(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    board.restart_error = TransportError("the board is unplugged", "plug it in")
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match="took a fault"):
        client("fault()")
    for _ in range(3):
        with pytest.raises(ClientError, match=r"(?s)the board is unplugged.*plug it in"):
            client.connect(bridge, KEY)
    assert eventually(lambda: board.restarts >= 4)
    board.restart_error = None
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


def test_error_before_a_session_is_hidden_from_the_client(
    client: StockClient, bridge: Bridge, board: FakeBoard
) -> None:
    board.connect_error = TransportError("the board does not answer")
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2
    assert board.restarts == 1


@pytest.mark.slow
def test_session_timeout_ends_an_idle_client(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    client.connect(bridge, KEY, timeout=5)
    assert client("add_one(1)") == 2
    assert eventually(lambda: is_free(board))
    with pytest.raises(ClientError, match=r"RPCSessionTimeoutError: .* 5 s are over"):
        client("add_one(1)")
    assert board.restarts == 0


@pytest.mark.slow
def test_session_timeout_ends_a_call(client: StockClient, bridge: Bridge, board: FakeBoard) -> None:
    client.connect(bridge, KEY, timeout=5)
    with pytest.raises(ClientError, match="RPCSessionTimeoutError: "):
        client("hang()")
    assert eventually(lambda: board.restarts == 1)
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


@pytest.mark.parametrize("size", [LIMIT + 1, 3_000_000])
def test_oversized_packet_is_refused_and_the_session_continues(client: StockClient, bridge: Bridge, size: int) -> None:
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match=rf"a packet of \d+ bytes is too long: the board takes {LIMIT} bytes"):
        client(f"add_one(bytearray({size}))")
    assert client("add_one(1)") == 2


def test_packet_of_the_limits_size_is_accepted(bridge: Bridge, board: FakeBoard) -> None:
    with RawClient(bridge.port, KEY).greet() as client:
        client.request(init_packet())
        client.request(struct.pack("<i", 8) + bytes(LIMIT - 4))
        assert b"too long" in client.request(struct.pack("<i", 8) + bytes(LIMIT - 3))
        assert len(board.links[0].packets[-1]) == LIMIT


def test_absurd_length_ends_the_connection(bridge: Bridge, board: FakeBoard) -> None:
    with RawClient(bridge.port, KEY).greet() as client:
        client.request(init_packet())
        client.socket.sendall(struct.pack("<Q", 1 << 60) + b"more")
        assert b"too long for any board" in client.receive()
        assert client.is_closed()
    assert eventually(lambda: is_free(board))


def test_incomplete_packets_and_lost_clients_free_the_board(client: StockClient, board: FakeBoard) -> None:
    def send_and_leave(client: RawClient, data: bytes) -> None:
        with client:
            client.socket.sendall(data)

    with serving(make_bridge(board, stall_timeout=0.3)) as bridge:
        send_and_leave(RawClient(bridge.port, KEY), b"")
        send_and_leave(RawClient(bridge.port, KEY), b"GET / HTTP/1.1\r\n\r\n")
        send_and_leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, 1 << 30))
        send_and_leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, -1))
        send_and_leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, 100) + b"client:")
        send_and_leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, 9) + b"client:\xff\xff")
        send_and_leave(RawClient(bridge.port, KEY).greet(), b"")
        assert eventually(lambda: is_free(board))
        send_and_leave(RawClient(bridge.port, KEY).greet(), b"\x10\0\0")
        assert eventually(lambda: is_free(board))
        with RawClient(bridge.port, KEY).greet() as stalled:
            stalled.request(init_packet())
            stalled.socket.sendall(struct.pack("<Q", 100) + b"half")
            assert stalled.is_closed()  # After the stall timeout.
        assert eventually(lambda: is_free(board))
        client.connect(bridge, KEY)
        assert client("add_one(1)") == 2
    assert board.restarts == 0


@pytest.mark.slow
def test_client_lost_in_a_call_frees_the_board(client: StockClient, board: FakeBoard) -> None:
    with serving(make_bridge(board, call_timeout=1.0)) as bridge:
        with RawClient(bridge.port, KEY).greet() as lost:
            lost.request(init_packet())
            lost.send(struct.pack("<iQi", 3, 4, 0))  # test.hang
            assert board.links[0].hanging.wait(30)
        assert eventually(lambda: is_free(board))
        client.connect(bridge, KEY)
        assert client("add_one(1)") == 2
        assert board.restarts == 1


def test_python_error_in_the_link_reaches_the_client(client: StockClient, bridge: Bridge) -> None:
    client.connect(bridge, KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.session.fake_link.FakeLink.call", lambda *_: {}["no such key"])
        with pytest.raises(ClientError, match="no such key"):
            client("add_one(1)")
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


def test_stop_ends_a_call_and_all_clients(board: FakeBoard) -> None:
    count = threading.active_count()
    begin = time.monotonic()
    with serving(make_bridge(board, call_timeout=600.0)) as bridge:
        idle = RawClient(bridge.port, KEY)
        busy = RawClient(bridge.port, KEY).greet()
        busy.request(init_packet())
        busy.send(struct.pack("<iQi", 3, 4, 0))
        assert board.links[0].hanging.wait(30)
    assert time.monotonic() - begin < 30
    with idle, busy:
        assert idle.is_closed()
        # It may have received an error message.
        while busy.socket.recv(4096):
            pass
    assert threading.active_count() == count


def test_interrupt_ends_the_bridge_and_its_threads(board: FakeBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.session.fake_link.FakeLink.call", interrupt)
    count = threading.active_count()
    bridge = make_bridge(board)
    client = RawClient(bridge.port, KEY)

    def send_call() -> None:
        client.greet().request(init_packet())
        client.send(struct.pack("<iQi", 3, 1, 0))

    thread = threading.Thread(target=send_call)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        bridge.serve()
    thread.join()
    client.socket.close()
    assert threading.active_count() == count


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.nightly)])
def test_many_connections_leave_no_descriptors_or_threads(
    client: StockClient, bridge: Bridge, board: FakeBoard, count: int
) -> None:
    client.connect(bridge, KEY)
    client.leave()
    assert eventually(lambda: is_free(board))
    process = psutil.Process()
    descriptors, threads = process.num_fds(), threading.active_count()
    for number in range(count):
        match number % 4:
            case 0:
                client(f"rpc.connect('127.0.0.1', {bridge.port}, key={KEY!r}) and None")
            case 1:
                RawClient(bridge.port, KEY).socket.close()
            case 2:
                with RawClient(bridge.port, KEY) as raw:
                    raw.greet()
            case 3:
                with RawClient(bridge.port, KEY) as raw:
                    raw.greet().request(init_packet())
        # The client does not wait for the bridge to notice that it has left.
        assert eventually(lambda: is_free(board))
    assert eventually(lambda: process.num_fds() <= descriptors and threading.active_count() <= threads)
    assert board.restarts == 0
    assert eventually(lambda: all(link.terminated for link in board.links))
