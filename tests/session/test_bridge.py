# SPDX-License-Identifier: Apache-2.0
"""The bridge, with TVM's own client in front and links that answer by hand behind."""

import re
import struct
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.session.answers_by_hand import KEY, LIMIT, Bench, make_bridge, serving
from tests.session.raw_client import RawClient, opening
from tests.session.stock_client import ClientError, StockClient
from utvm.errors import ConfigError, TransportError
from utvm.runtime import RPC_PROTOCOL
from utvm.session.bridge import Bridge
from utvm.session.minrpc import MAGIC


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockClient]:
    with StockClient(tmp_path_factory.mktemp("client") / "log") as stock:
        yield stock


@pytest.fixture
def client(stock: StockClient) -> Iterator[StockClient]:
    yield stock
    stock.leave()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def bridge(bench: Bench) -> Iterator[Bridge]:
    with serving(make_bridge(bench)) as bridge:
        yield bridge


def eventually(condition: Callable[[], bool], timeout: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def free(bench: Bench) -> bool:
    """Whether all clients that the bridge has seen have left it."""
    return sum("connected" in line for line in bench.lines) == sum("ended" in line for line in bench.lines)


def test_the_protocol_version_is_that_of_the_installed_tvm() -> None:
    # Found, not imported: that takes seconds.
    tvm = find_spec("tvm")
    assert tvm and tvm.origin
    (header,) = Path(tvm.origin).parent.rglob("rpc_reference.h")
    (version,) = re.findall(r'kRPCProtocolVer\s*=\s*"([^"]*)"', header.read_text(encoding="utf-8"))
    assert version == RPC_PROTOCOL


def test_the_stock_client_calls_functions(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    client.connect(bridge, KEY)
    assert client("[add_one(n) for n in (41, -1, 1 << 40)]") == [42, 0, (1 << 40) + 1]
    with pytest.raises(ClientError, match="no_such_function"):
        client("session.get_function('test.no_such_function')")
    # What the client says first is what the raw client of these tests says.
    assert bench.links[0].packets[0] == opening()
    client.leave()
    assert eventually(lambda: bench.links[0].terminated)
    assert bench.restarts == 0


def test_endless_client_thread_does_not_block_the_server(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen where Ctrl-C came while a lock was just being taken: one more was needed."""
    monkeypatch.setattr("utvm.session.bridge._LEAVING", 0.2)
    stuck, go = threading.Event(), threading.Event()

    def say(line: str) -> None:
        if line.endswith(": ended"):
            stuck.set()
            assert go.wait(90)

    with serving(make_bridge(bench, log=say)) as bridge:
        with RawClient(bridge.port, KEY) as client:
            client.greet()
        assert stuck.wait(30)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("bridge ")]
    assert len(threads) == 1
    go.set()
    threads[0].join(30)
    assert not threads[0].is_alive()


def test_the_boards_exceptions_reach_the_client(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match="the model refuses: café"):
        client("refuse()")
    # It is the function that failed, not the board.
    assert client("add_one(1)") == 2
    assert (bench.restarts, len(bench.links)) == (0, 1)


def test_a_wrong_key_is_refused(client: StockClient, bridge: Bridge) -> None:
    with pytest.raises(ClientError, match="cannot find server that matches key"):
        client.connect(bridge, "another")
    client.connect(bridge, KEY)


def test_without_a_key_any_client_is_welcome(client: StockClient, bench: Bench) -> None:
    with serving(make_bridge(bench, key="")) as bridge:
        for key in ("", KEY):
            client.connect(bridge, key)
            assert client("add_one(1)") == 2
            client.leave()
            assert eventually(lambda: free(bench))
        client(f"plain = rpc.connect('127.0.0.1', {bridge.port})")
        assert client("plain.get_function('test.add_one')(2)") == 3
        client("plain = None")


def test_a_client_without_a_key_is_refused_where_there_is_one(client: StockClient, bridge: Bridge) -> None:
    with pytest.raises(ClientError, match="cannot find server that matches key"):
        client(f"rpc.connect('127.0.0.1', {bridge.port})")


def test_a_key_has_no_white_space(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="white space"):
        make_bridge(bench, key="two words")


def test_a_port_in_use_is_an_error(bridge: Bridge, bench: Bench) -> None:
    with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{bridge.port}"):
        make_bridge(bench, port=bridge.port)


@pytest.mark.slow
def test_a_second_client_is_told_that_the_first_is_there(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    with RawClient(bridge.port, KEY).greet() as first:
        first.ask(opening())
        name = "{}:{}".format(*first.socket.getsockname())
        begin = time.monotonic()
        with pytest.raises(ClientError, match=rf"busy: {KEY} serves {name} since \d\d:\d\d:\d\d \(\d+ s\)"):
            client.connect(bridge, KEY)
        assert time.monotonic() - begin < 5
        with RawClient(bridge.port, KEY).greet() as second:
            assert b"busy" in second.ask(opening())
            assert second.is_closed()
        first.ask(struct.pack("<i", 9))  # The first has not noticed.
    assert eventually(lambda: free(bench))
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


def test_a_fault_is_told_the_board_reset_and_the_session_over(
    client: StockClient, bridge: Bridge, bench: Bench
) -> None:
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match="the board took a fault"):
        client("fault()")
    for _ in range(2):
        with pytest.raises(ClientError, match=r"the board was reset, .* connect again.*\n?.*took a fault"):
            client("add_one(1)")
    # The client that has lost its handles is still there; another need not wait for it.
    client("lost = [session, add_one, refuse, fault, hang]")
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2
    assert (bench.restarts, len(bench.links)) == (1, 2)


def test_a_call_that_takes_too_long_is_given_up(client: StockClient, bench: Bench) -> None:
    with serving(make_bridge(bench, call_timeout=0.3)) as bridge:
        client.connect(bridge, KEY)
        with pytest.raises(ClientError, match=r"no answer within 0\.3 s"):
            client("hang()")
        client.connect(bridge, KEY)
        assert client("add_one(1)") == 2
        assert bench.restarts == 1


def test_reset_is_retried_for_each_client(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    bench.dead = TransportError("the board is unplugged", "plug it in")
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match="took a fault"):
        client("fault()")
    for _ in range(3):
        with pytest.raises(ClientError, match=r"(?s)the board is unplugged.*plug it in"):
            client.connect(bridge, KEY)
    assert eventually(lambda: bench.restarts >= 4)
    bench.dead = None
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


def test_trouble_before_a_session_costs_the_client_nothing(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    bench.deaf = TransportError("the board does not answer")
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2
    assert bench.restarts == 1


@pytest.mark.slow
def test_a_session_timeout_ends_an_idle_client(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    client.connect(bridge, KEY, timeout=5)
    assert client("add_one(1)") == 2
    assert eventually(lambda: free(bench))
    with pytest.raises(ClientError, match=r"RPCSessionTimeoutError: .* 5 s are over"):
        client("add_one(1)")
    assert bench.restarts == 0


@pytest.mark.slow
def test_a_session_timeout_ends_a_call(client: StockClient, bridge: Bridge, bench: Bench) -> None:
    client.connect(bridge, KEY, timeout=5)
    with pytest.raises(ClientError, match="RPCSessionTimeoutError: "):
        client("hang()")
    assert eventually(lambda: bench.restarts == 1)
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


@pytest.mark.parametrize("size", [LIMIT + 1, 3_000_000])
def test_oversized_packet_is_refused_and_the_session_goes_on(client: StockClient, bridge: Bridge, size: int) -> None:
    client.connect(bridge, KEY)
    with pytest.raises(ClientError, match=rf"a packet of \d+ bytes is too long: the board takes {LIMIT} bytes"):
        client(f"add_one(bytearray({size}))")
    assert client("add_one(1)") == 2


def test_a_packet_of_the_limit_is_taken(bridge: Bridge, bench: Bench) -> None:
    with RawClient(bridge.port, KEY).greet() as client:
        client.ask(opening())
        client.ask(struct.pack("<i", 8) + bytes(LIMIT - 4))
        assert b"too long" in client.ask(struct.pack("<i", 8) + bytes(LIMIT - 3))
        assert len(bench.links[0].packets[-1]) == LIMIT


def test_an_absurd_length_ends_the_connection(bridge: Bridge, bench: Bench) -> None:
    with RawClient(bridge.port, KEY).greet() as client:
        client.ask(opening())
        client.socket.sendall(struct.pack("<Q", 1 << 60) + b"more")
        assert b"too long for any board" in client.answer()
        assert client.is_closed()
    assert eventually(lambda: free(bench))


def test_half_packets_and_vanishing_clients(client: StockClient, bench: Bench) -> None:
    def leave(client: RawClient, data: bytes) -> None:
        with client:
            client.socket.sendall(data)

    with serving(make_bridge(bench, stall_timeout=0.3)) as bridge:
        leave(RawClient(bridge.port, KEY), b"")
        leave(RawClient(bridge.port, KEY), b"GET / HTTP/1.1\r\n\r\n")
        leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, 1 << 30))
        leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, -1))
        leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, 100) + b"client:")
        leave(RawClient(bridge.port, KEY), struct.pack("<ii", MAGIC, 9) + b"client:\xff\xff")
        leave(RawClient(bridge.port, KEY).greet(), b"")
        assert eventually(lambda: free(bench))
        leave(RawClient(bridge.port, KEY).greet(), b"\x10\0\0")
        assert eventually(lambda: free(bench))
        with RawClient(bridge.port, KEY).greet() as stuck:
            stuck.ask(opening())
            stuck.socket.sendall(struct.pack("<Q", 100) + b"half")
            assert stuck.is_closed()  # After the stall timeout.
        assert eventually(lambda: free(bench))
        client.connect(bridge, KEY)
        assert client("add_one(1)") == 2
    assert bench.restarts == 0


def test_client_lost_in_a_call_frees_the_board(client: StockClient, bench: Bench) -> None:
    with serving(make_bridge(bench, call_timeout=1.0)) as bridge:
        with RawClient(bridge.port, KEY).greet() as fickle:
            fickle.ask(opening())
            fickle.send(struct.pack("<iQi", 3, 4, 0))  # test.hang
            assert bench.links[0].hanging.wait(30)
        assert eventually(lambda: free(bench))
        client.connect(bridge, KEY)
        assert client("add_one(1)") == 2
        assert bench.restarts == 1


def test_a_mistake_in_the_link_is_an_exception_too(client: StockClient, bridge: Bridge) -> None:
    client.connect(bridge, KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.session.answers_by_hand.AnswersByHand.call", lambda *_: {}["no such key"])
        with pytest.raises(ClientError, match="no such key"):
            client("add_one(1)")
    client.connect(bridge, KEY)
    assert client("add_one(1)") == 2


def test_stop_ends_a_call_and_all_clients(bench: Bench) -> None:
    before = threading.active_count()
    begin = time.monotonic()
    with serving(make_bridge(bench, call_timeout=600.0)) as bridge:
        idle = RawClient(bridge.port, KEY)
        busy = RawClient(bridge.port, KEY).greet()
        busy.ask(opening())
        busy.send(struct.pack("<iQi", 3, 4, 0))
        assert bench.links[0].hanging.wait(30)
    assert time.monotonic() - begin < 30
    with idle, busy:
        assert idle.is_closed()
        # It may have been told why.
        while busy.socket.recv(4096):
            pass
    assert threading.active_count() == before


def test_an_interrupt_ends_the_bridge_in_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.session.answers_by_hand.AnswersByHand.call", interrupted)
    before = threading.active_count()
    bridge = make_bridge(bench)
    client = RawClient(bridge.port, KEY)

    def ask() -> None:
        client.greet().ask(opening())
        client.send(struct.pack("<iQi", 3, 1, 0))

    thread = threading.Thread(target=ask)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        bridge.serve()
    thread.join()
    client.socket.close()
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.nightly)])
def test_connecting_often_leaves_nothing_behind(client: StockClient, bridge: Bridge, bench: Bench, count: int) -> None:
    client.connect(bridge, KEY)
    client.leave()
    assert eventually(lambda: free(bench))
    process = psutil.Process()
    descriptors, threads = process.num_fds(), threading.active_count()
    for turn in range(count):
        match turn % 4:
            case 0:
                client(f"rpc.connect('127.0.0.1', {bridge.port}, key={KEY!r}) and None")
            case 1:
                RawClient(bridge.port, KEY).socket.close()
            case 2:
                with RawClient(bridge.port, KEY) as raw:
                    raw.greet()
            case 3:
                with RawClient(bridge.port, KEY) as raw:
                    raw.greet().ask(opening())
        # The client does not wait for the bridge to notice that it has left.
        assert eventually(lambda: free(bench))
    assert eventually(lambda: process.num_fds() <= descriptors and threading.active_count() <= threads)
    assert bench.restarts == 0
    assert eventually(lambda: all(link.terminated for link in bench.links))
