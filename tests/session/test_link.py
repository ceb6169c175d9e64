# SPDX-License-Identifier: Apache-2.0
"""The session on a link: requests are sent again, stale replies are dropped, the board's errors are raised."""

import struct
from collections import deque
from collections.abc import Callable

import pytest

from utvm.errors import TransportError
from utvm.session.framing import Deframer, encode
from utvm.session.link import BoardFaulted, BoardWasReset, Link

START, STARTED, TERMINATE, LOG, NORMAL, NUMBERED, FAULT = 0, 1, 2, 3, 0x10, 0x11, 0x12


class Clock:
    """A clock that advances only while a transport waits, so that times are exact."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("utvm.session.link.time", clock)
    monkeypatch.setattr(FakeTransport, "clock", clock, raising=False)
    return clock


class FakeTransport:
    """A fake transport. Its function gets each message's session, type and body, and sends messages back."""

    clock: Clock

    def __init__(self, respond: Callable[["FakeTransport", int, int, bytes], None]) -> None:
        self.respond = respond
        self.messages: list[tuple[int, int, bytes]] = []
        self.written: list[bytes] = []
        self.sent = 0
        self._deframer = Deframer(1 << 16)
        self._incoming: deque[bytes] = deque()

    def send(self, session: int, kind: int, body: bytes = b"") -> None:
        self.send_bytes(encode(struct.pack("<HB", session, kind) + body))

    def send_bytes(self, data: bytes) -> None:
        self.sent += len(data)
        self._incoming.append(data)

    def read(self, timeout: float) -> bytes:
        if self._incoming:
            return self._incoming.popleft()
        self.clock.now += timeout
        return b""

    def write(self, data: bytes) -> None:
        self.written.append(data)
        for payload in self._deframer.feed(data):
            session, kind = struct.unpack_from("<HB", payload)
            self.messages.append((session, kind, payload[3:]))
            self.respond(self, session, kind, payload[3:])

    def close(self) -> None: ...


def numbered_body(number: int, packet: bytes) -> bytes:
    return struct.pack("<BQ", number, len(packet)) + packet


def fake_board(on_request: Callable[[FakeTransport, int, int, bytes], None]) -> FakeTransport:
    """A board that starts sessions; ``on_request`` gets the session, the number and the packet."""

    def respond(transport: FakeTransport, session: int, kind: int, body: bytes) -> None:
        if kind == START:
            transport.send(session | 0x4200, STARTED)
        elif kind == NUMBERED:
            number, size = struct.unpack_from("<BQ", body)
            assert size == len(body) - 9
            on_request(transport, session, number, body[9:])

    return FakeTransport(respond)


def echo(transport: FakeTransport, session: int, number: int, packet: bytes) -> None:
    transport.send(session, NUMBERED, numbered_body(number, packet[::-1]))


def start_link(transport: FakeTransport) -> Link:
    link = Link(transport)
    link.start()
    return link


def test_requests_are_numbered_from_one_and_wrap() -> None:
    transport = fake_board(echo)
    link = start_link(transport)
    for size in range(300):
        assert link.request(b"x" * size + b"y", 1.0) == b"y" + b"x" * size
    requests = [message for message in transport.messages if message[1] == NUMBERED]
    assert [body[0] for _session, _kind, body in requests] == [n % 256 for n in range(1, 301)]
    assert len({session for session, _kind, _body in requests}) == 1
    assert link.resent == 0
    assert link.bytes_sent == sum(map(len, transport.written))
    assert link.bytes_received == transport.sent


def test_second_start_has_another_nonce_and_counts_from_one() -> None:
    transport = fake_board(echo)
    link = start_link(transport)
    link.request(b"a", 1.0)
    link.start()
    link.request(b"b", 1.0)
    (first, _, _), (second, _, _) = (message for message in transport.messages if message[1] == START)
    assert second == first % 255 + 1
    assert [body[0] for _session, kind, body in transport.messages if kind == NUMBERED] == [1, 1]


def test_start_begins_with_fe_and_a_request_does_not() -> None:
    transport = fake_board(echo)
    start_link(transport).request(b"a", 1.0)
    assert [data[:3] for data in transport.written] == [b"\xfe\xff\xfd", b"\xff\xfd\x0d"]


def test_each_attempt_to_start_has_a_new_nonce() -> None:
    nonces: list[int] = []

    def answer_third(transport: FakeTransport, session: int, kind: int, _body: bytes) -> None:
        assert kind == START
        nonces.append(session)
        if len(nonces) == 3:
            transport.send(nonces[1] | 0x7700, STARTED)  # The answer to an earlier attempt.
            transport.send(session, STARTED)  # An id without the board's half.
            transport.send(session | 0x0900, STARTED)

    transport = FakeTransport(answer_third)
    link = start_link(transport)
    assert len(nonces) == len(set(nonces)) == 3
    assert all(1 <= nonce <= 255 for nonce in nonces)
    transport.respond = lambda *_: None
    link.terminate()
    assert transport.messages[-1] == (nonces[2] | 0x0900, TERMINATE, b"")


def test_silent_board_is_an_error_in_time(clock: Clock) -> None:
    times: list[float] = []
    with pytest.raises(TransportError, match=r"4 attempts to begin a session within 5 s; 0 bytes"):
        start_link(FakeTransport(lambda *_: times.append(clock.now - 1000)))
    assert times == pytest.approx([0, 0.5, 1.5, 3.5])
    assert clock.now == pytest.approx(1005)


def test_request_is_sent_again_until_the_reply_comes(clock: Clock) -> None:
    times: list[float] = []

    def answer_fifth(transport: FakeTransport, session: int, number: int, packet: bytes) -> None:
        times.append(clock.now - 1000)
        if len(times) == 5:
            echo(transport, session, number, packet)

    transport = fake_board(answer_fifth)
    link = start_link(transport)
    assert link.request(b"ab", 60.0) == b"ba"
    assert link.resent == 4
    assert len(set(transport.written[1:])) == 1
    assert times == pytest.approx([0, 1, 3, 7, 15])


def test_damaged_reply_is_counted_and_requested_again() -> None:
    damaged: list[bool] = []

    def damage_first(transport: FakeTransport, session: int, number: int, packet: bytes) -> None:
        wire = encode(struct.pack("<HB", session, NUMBERED) + numbered_body(number, packet))
        transport.send_bytes(wire if damaged else wire[:-1] + bytes((wire[-1] ^ 1,)))
        damaged.append(True)

    link = start_link(fake_board(damage_first))
    assert link.request(b"ab", 5.0) == b"ab"
    assert (link.resent, link.crc_errors) == (1, 1)


def test_replies_to_other_requests_are_dropped() -> None:
    def send_stale_replies(transport: FakeTransport, session: int, number: int, packet: bytes) -> None:
        transport.send(session, NUMBERED, numbered_body(number - 1, b"old number"))
        transport.send(session ^ 0x0100, NUMBERED, numbered_body(number, b"old session"))
        transport.send(session, NORMAL, struct.pack("<Q", 3) + b"old")
        transport.send(session, STARTED)
        transport.send(session ^ 1, TERMINATE)
        transport.send(session ^ 1, FAULT, b"old")
        transport.send_bytes(encode(b"\x01"))
        transport.send(session, NUMBERED)
        echo(transport, session, number, packet)

    link = start_link(fake_board(send_stale_replies))
    assert link.request(b"ab", 5.0) == b"ba"
    assert link.resent == 0


def test_error_for_no_reply_names_the_request(clock: Clock) -> None:
    link = start_link(fake_board(lambda *_: None))
    call = struct.pack("<i", 3) + b"the rest"
    with pytest.raises(TransportError, match=r"request 1 \(function call, 12 bytes\) within 6 s; .* 3 times"):
        link.request(call, 6.0)
    assert clock.now == pytest.approx(1006)
    with pytest.raises(TransportError, match="no session"):
        link.request(call, 6.0)


def test_reply_that_contradicts_its_length_is_an_error() -> None:
    def send_wrong_length(transport: FakeTransport, session: int, number: int, _packet: bytes) -> None:
        transport.send(session, NUMBERED, struct.pack("<BQ", number, 7) + b"short")

    with pytest.raises(TransportError, match="contradicts its own length"):
        start_link(fake_board(send_wrong_length)).request(b"ab", 1.0)


@pytest.mark.parametrize("with_id", [True, False])
def test_reset_of_the_board_is_raised(with_id: bool) -> None:
    link = start_link(fake_board(lambda transport, session, *_: transport.send(session if with_id else 0, TERMINATE)))
    with pytest.raises(BoardWasReset, match="the board was reset"):
        link.request(b"ab", 1.0)
    assert not link.is_started


@pytest.mark.parametrize("with_id", [True, False])
def test_fault_is_raised_with_its_record(with_id: bool) -> None:
    record = bytes(range(68))
    link = start_link(
        fake_board(lambda transport, session, *_: transport.send(session if with_id else 0, FAULT, record))
    )
    with pytest.raises(BoardFaulted, match="took a fault") as caught:
        link.request(b"ab", 1.0)
    assert caught.value.record_bytes == record
    assert not link.is_started


def test_earlier_messages_do_not_affect_the_session() -> None:
    logs: list[str] = []
    transport = fake_board(echo)
    transport.send(0, LOG, b"boot")
    transport.send(0, FAULT, b"an old one")
    transport.send(0, TERMINATE)
    transport.send_bytes(encode(b"half a packet")[:-3])
    link = Link(transport, on_log=logs.append)
    link.start()
    assert link.request(b"ab", 1.0) == b"ba"
    assert logs == ["boot"]


def test_earlier_fault_is_raised_if_no_session_starts() -> None:
    transport = FakeTransport(lambda *_: None)
    transport.send(0, FAULT, b"record")
    with pytest.raises(BoardFaulted) as caught:
        start_link(transport)
    assert caught.value.record_bytes == b"record"


def test_boot_message_is_not_a_reset_while_starting() -> None:
    def boot(transport: FakeTransport, session: int, kind: int, _body: bytes) -> None:
        transport.send(0, TERMINATE)
        if kind == START:
            transport.send(session | 0x0100, STARTED)

    assert start_link(FakeTransport(boot)).is_started


def test_logs_of_this_session_are_forwarded() -> None:
    def log_and_echo(transport: FakeTransport, session: int, number: int, packet: bytes) -> None:
        transport.send(session, LOG, b"caf\xc3\xa9 \xff")
        transport.send(session ^ 1, LOG, b"of another session")
        transport.send(0, LOG, b"of none")
        echo(transport, session, number, packet)

    logs: list[str] = []
    link = Link(fake_board(log_and_echo), on_log=logs.append)
    link.start()
    link.request(b"a", 1.0)
    assert logs == ["café �", "of none"]


def test_board_that_only_logs_does_not_reply() -> None:
    def replace_read(transport: FakeTransport, _session: int, _number: int, _packet: bytes) -> None:
        transport.read = read_log.__get__(transport)  # type: ignore[method-assign]

    def read_log(transport: FakeTransport, _timeout: float) -> bytes:
        transport.clock.now += 0.01
        return encode(b"\0\0\x03chatter")

    with pytest.raises(TransportError, match="did not answer request 1"):
        start_link(fake_board(replace_read)).request(b"a", 5.0)


def test_terminate_is_sent_once_with_the_session_id() -> None:
    transport = fake_board(echo)
    link = start_link(transport)
    link.terminate()
    link.terminate()
    assert [(kind, session >> 8) for session, kind, _body in transport.messages] == [(START, 0), (TERMINATE, 0x42)]
    with pytest.raises(TransportError, match="no session"):
        link.request(b"ab", 1.0)


def test_abort_ends_this_request_and_later_ones(clock: Clock) -> None:
    link = start_link(fake_board(lambda *_: link.abort()))
    for _ in range(2):
        with pytest.raises(TransportError, match=r"cancelled|no session"):
            link.request(b"ab", 60.0)
    with pytest.raises(TransportError, match="cancelled"):
        link.start()
    assert clock.now < 1001
