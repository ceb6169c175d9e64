# SPDX-License-Identifier: Apache-2.0
"""The GDB client with a scripted server: replies that real servers send after errors only."""

import contextlib

import pytest
from fake_gdb_server import FakeGdbServer
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm.errors import BoardError, ProbeError, UtvmError
from utvm.probe.gdb import GdbClient
from utvm.probe.packets import Stop, encode, escape


def client_of(server: FakeGdbServer, timeout: float = 5.0) -> GdbClient:
    return GdbClient(server.connect(), timeout=timeout)


def test_silent_server_is_an_error() -> None:
    def silent_on_memory(request: bytes) -> list[bytes] | None:
        return [] if request.startswith(b"m") else None

    with FakeGdbServer(silent_on_memory) as server, client_of(server, timeout=0.2) as gdb:
        with pytest.raises(ProbeError, match="did not answer within") as caught:
            gdb.read_memory(0x20000000, 4)
        assert caught.value.hint


def test_closed_connection_is_an_error() -> None:
    def hang_up_on_memory(request: bytes) -> list[bytes] | None:
        if request.startswith(b"m"):
            raise ConnectionAbortedError
        return None

    with (
        FakeGdbServer(hang_up_on_memory) as server,
        client_of(server) as gdb,
        pytest.raises(ProbeError, match=r"closed the connection|broke"),
    ):
        gdb.read_memory(0x20000000, 4)


@pytest.mark.parametrize(
    "reply", [b"$OK#00", b"$}#7d", b"$zz#f4", b"$" + b"a" * 100 + b"*\x1d#00"], ids=["sum", "cut", "hex", "run"]
)
def test_malformed_reply_is_a_probe_error(reply: bytes) -> None:
    with (
        FakeGdbServer(lambda request: [reply] if request.startswith(b"m") else None) as server,
        client_of(server) as gdb,
        pytest.raises(ProbeError),
    ):
        gdb.read_memory(0x20000000, 4)


@pytest.mark.parametrize("reply", [b"E01", b"E.no such memory", b"", b"12"])
def test_refused_read_is_a_board_error(reply: bytes) -> None:
    with (
        FakeGdbServer(lambda request: [encode(reply)] if request.startswith(b"m") else None) as server,
        client_of(server) as gdb,
        pytest.raises(BoardError, match="0x20000000"),
    ):
        gdb.read_memory(0x20000000, 4)


def test_stop_before_a_reply_is_remembered() -> None:
    def reply(request: bytes) -> list[bytes] | None:
        if request == b"c":
            return []
        if request.startswith(b"m"):
            return [encode(b"O"), encode(b"T05watch:20000010;thread:1;"), encode(b"2a000000")]
        return None

    with FakeGdbServer(reply) as server, client_of(server) as gdb:
        gdb.resume()
        assert gdb.read_memory(0x20000000, 4) == b"\x2a\0\0\0"
        assert gdb.wait_for_stop(0.0) == Stop(5, "write", 0x20000010)


def test_missed_step_is_repeated() -> None:
    """OpenOCD reports a stop without a step if half a second passes inside its step."""
    pc, steps = 0x100, 0

    def reply(request: bytes) -> list[bytes] | None:
        nonlocal pc, steps
        if request == b"s":
            steps += 1
            pc += 2 if steps == 2 else 0
            return [encode(b"T05")]
        return [encode(pc.to_bytes(4, "little").hex().encode())] if request == b"p1" else None

    with FakeGdbServer(reply) as server, client_of(server) as gdb:
        assert gdb.step().signal == 5
        assert (steps, gdb.read_register("pc")) == (2, 0x102)


def test_branch_to_itself_is_stepped() -> None:
    def reply(request: bytes) -> list[bytes] | None:
        return {b"s": [encode(b"T05")], b"p1": [encode(b"00010000")]}.get(request)

    with FakeGdbServer(reply) as server, client_of(server) as gdb:
        assert gdb.step().signal == 5
        assert gdb.read_register("pc") == 0x100


def test_running_target_is_no_error() -> None:
    with FakeGdbServer(lambda request: [] if request == b"c" else None) as server, client_of(server) as gdb:
        gdb.resume()
        assert gdb.wait_for_stop(0.1) is None


@pytest.mark.parametrize("packet_size", [0x4000, 0x200, 0x80])
def test_large_writes_are_split_at_the_packet_size(packet_size: int) -> None:
    written = bytearray(40_000)
    packet_sizes = []

    def reply(request: bytes) -> list[bytes] | None:
        if request.startswith(b"qSupported"):
            return [encode(b"PacketSize=%x" % packet_size)]
        if not request.startswith(b"X"):
            return None
        head, _, data = request.partition(b":")
        address, size = (int(number, 16) for number in head[1:].split(b","))
        assert size == len(data)
        written[address : address + size] = data
        packet_sizes.append(len(encode(head + b":" + escape(data))))
        return [encode(b"OK")]

    for data in (b"}" * 40_000, bytes(range(256)) * 156 + bytes(64)):
        with FakeGdbServer(reply) as server, client_of(server) as gdb:
            gdb.write_memory(0, data)
        assert bytes(written) == data
    assert max(packet_sizes) <= packet_size


def test_client_is_in_sync_after_a_failed_write() -> None:
    # OpenOCD 0.12 acknowledges the large write, and replies twice to the small one after it.
    def reply(request: bytes) -> list[bytes] | None:
        if request.startswith(b"X") and b",0:" in request:
            return [encode(b"E0E"), encode(b"OK")]
        if request.startswith(b"X"):
            return [encode(b"OK")]
        return [encode(b"01020304")] if request.startswith(b"m") else None

    with FakeGdbServer(reply) as server, client_of(server) as gdb:
        with pytest.raises(BoardError, match="100 bytes at 0x60000000"):
            gdb.write_memory(0x60000000, bytes(100))
        assert gdb.read_memory(0, 4) == b"\1\2\3\4"


@pytest.mark.parametrize("offer", [b"PacketSize=", b"PacketSize=zz", b"PacketSize=10", b"PacketSize=-4000"])
def test_unusable_packet_size_is_refused(offer: bytes) -> None:
    with (
        FakeGdbServer(lambda request: [encode(offer)] if request.startswith(b"qSupported") else None) as server,
        pytest.raises(ProbeError, match="unusable packet size"),
        client_of(server),
    ):
        pass


def test_monitor_output_is_joined() -> None:
    def reply(request: bytes) -> list[bytes] | None:
        if request == b"qRcmd," + b"reset halt".hex().encode():
            return [encode(b"O" + b"one ".hex().encode()), encode(b"O"), encode(b"two".hex().encode())]
        if request == b"qRcmd," + b"fail".hex().encode():
            return [encode(b"O" + b"why".hex().encode()), encode(b"E01")]
        return None

    with FakeGdbServer(reply) as server, client_of(server) as gdb:
        assert gdb.monitor("reset halt") == "one two"
        with pytest.raises(ProbeError, match="'fail' failed: why"):
            gdb.monitor("fail")


def test_unknown_register_is_named() -> None:
    with FakeGdbServer() as server, client_of(server) as gdb, pytest.raises(BoardError, match="r99"):
        gdb.read_register("r99")


def try_garbage(garbage: list[bytes]) -> None:
    def reply(request: bytes) -> list[bytes] | None:
        return garbage if request[:1] in (b"m", b"p", b"s") else None

    with FakeGdbServer(reply) as server:
        for use in (lambda g: g.read_memory(0, 4), lambda g: g.read_register("pc"), lambda g: g.step()):
            with contextlib.suppress(UtvmError), client_of(server, timeout=0.03) as gdb:
                use(gdb)


GARBAGE = st.lists(st.binary(max_size=60) | st.binary(max_size=20).map(encode), min_size=1, max_size=4)


@pytest.mark.slow
@given(GARBAGE)
@settings(max_examples=12, deadline=None)
def test_garbage_raises_only_our_errors(garbage: list[bytes]) -> None:
    try_garbage(garbage)


@pytest.mark.nightly
@given(GARBAGE)
@settings(max_examples=400, deadline=None)
def test_much_garbage_raises_only_our_errors(garbage: list[bytes]) -> None:
    try_garbage(garbage)
