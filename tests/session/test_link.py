# SPDX-License-Identifier: Apache-2.0
"""The session on a link: requests sent again, answers told apart, the board's troubles."""

import struct
from collections import deque
from collections.abc import Callable

import pytest

from utvm.errors import TransportError
from utvm.session.framing import Deframer, encode
from utvm.session.link import BoardFaulted, BoardWasReset, Link

START, STARTED, TERMINATE, LOG, NORMAL, NUMBERED, FAULT = 0, 1, 2, 3, 0x10, 0x11, 0x12


class Clock:
    """Time that passes only while a transport waits: these tests know it to the millisecond."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("utvm.session.link.time", clock)
    monkeypatch.setattr(Script, "clock", clock, raising=False)
    return clock


class Script:
    """A transport whose other end is a function from each message's session, type and body to messages back."""

    clock: Clock

    def __init__(self, board: Callable[["Script", int, int, bytes], None]) -> None:
        self.board = board
        self.messages: list[tuple[int, int, bytes]] = []
        self.written: list[bytes] = []
        self.sent = 0
        self._deframer = Deframer(1 << 16)
        self._arriving: deque[bytes] = deque()

    def say(self, session: int, kind: int, body: bytes = b"") -> None:
        self.put(encode(struct.pack("<HB", session, kind) + body))

    def put(self, data: bytes) -> None:
        self.sent += len(data)
        self._arriving.append(data)

    def read(self, timeout: float) -> bytes:
        if self._arriving:
            return self._arriving.popleft()
        self.clock.now += timeout
        return b""

    def write(self, data: bytes) -> None:
        self.written.append(data)
        for payload in self._deframer.feed(data):
            session, kind = struct.unpack_from("<HB", payload)
            self.messages.append((session, kind, payload[3:]))
            self.board(self, session, kind, payload[3:])

    def close(self) -> None: ...


def numbered(number: int, packet: bytes) -> bytes:
    return struct.pack("<BQ", number, len(packet)) + packet


def board(on_request: Callable[[Script, int, int, bytes], None]) -> Script:
    """A board that begins sessions; ``on_request`` gets the session, the number and the packet."""

    def act(script: Script, session: int, kind: int, body: bytes) -> None:
        if kind == START:
            script.say(session | 0x4200, STARTED)
        elif kind == NUMBERED:
            number, size = struct.unpack_from("<BQ", body)
            assert size == len(body) - 9
            on_request(script, session, number, body[9:])

    return Script(act)


def echo(script: Script, session: int, number: int, packet: bytes) -> None:
    script.say(session, NUMBERED, numbered(number, packet[::-1]))


def started(script: Script) -> Link:
    link = Link(script)
    link.start()
    return link


def test_requests_are_numbered_from_one_and_wrap() -> None:
    script = board(echo)
    link = started(script)
    for size in range(300):
        assert link.request(b"x" * size + b"y", 1.0) == b"y" + b"x" * size
    requests = [message for message in script.messages if message[1] == NUMBERED]
    assert [body[0] for _session, _kind, body in requests] == [n % 256 for n in range(1, 301)]
    assert len({session for session, _kind, _body in requests}) == 1
    assert link.resent == 0
    assert link.bytes_sent == sum(map(len, script.written))
    assert link.bytes_received == script.sent


def test_a_second_start_has_another_nonce_and_counts_from_one() -> None:
    script = board(echo)
    link = started(script)
    link.request(b"a", 1.0)
    link.start()
    link.request(b"b", 1.0)
    (first, _, _), (second, _, _) = (message for message in script.messages if message[1] == START)
    assert second == first % 255 + 1
    assert [body[0] for _session, kind, body in script.messages if kind == NUMBERED] == [1, 1]


def test_a_start_begins_with_fe_and_a_request_does_not() -> None:
    script = board(echo)
    started(script).request(b"a", 1.0)
    assert [data[:3] for data in script.written] == [b"\xfe\xff\xfd", b"\xff\xfd\x0d"]


def test_starts_are_tried_again_each_with_a_new_nonce() -> None:
    nonces: list[int] = []

    def deaf_at_first(script: Script, session: int, kind: int, _body: bytes) -> None:
        assert kind == START
        nonces.append(session)
        if len(nonces) == 3:
            script.say(nonces[1] | 0x7700, STARTED)  # The answer to an earlier attempt.
            script.say(session, STARTED)  # An id without the board's half.
            script.say(session | 0x0900, STARTED)

    script = Script(deaf_at_first)
    link = started(script)
    assert len(nonces) == len(set(nonces)) == 3
    assert all(1 <= nonce <= 255 for nonce in nonces)
    script.board = lambda *_: None
    link.terminate()
    assert script.messages[-1] == (nonces[2] | 0x0900, TERMINATE, b"")


def test_a_board_that_never_answers_is_an_error_in_time(clock: Clock) -> None:
    times: list[float] = []
    with pytest.raises(TransportError, match=r"4 attempts to begin a session within 5 s; 0 bytes"):
        started(Script(lambda *_: times.append(clock.now - 1000)))
    assert times == pytest.approx([0, 0.5, 1.5, 3.5])
    assert clock.now == pytest.approx(1005)


def test_a_request_is_sent_again_until_the_answer_comes(clock: Clock) -> None:
    times: list[float] = []

    def fifth_time(script: Script, session: int, number: int, packet: bytes) -> None:
        times.append(clock.now - 1000)
        if len(times) == 5:
            echo(script, session, number, packet)

    script = board(fifth_time)
    link = started(script)
    assert link.request(b"ab", 60.0) == b"ba"
    assert link.resent == 4
    assert len(set(script.written[1:])) == 1
    assert times == pytest.approx([0, 1, 3, 7, 15])


def test_a_damaged_answer_is_counted_and_asked_for_again() -> None:
    damaged: list[bool] = []

    def once_damaged(script: Script, session: int, number: int, packet: bytes) -> None:
        wire = encode(struct.pack("<HB", session, NUMBERED) + numbered(number, packet))
        script.put(wire if damaged else wire[:-1] + bytes((wire[-1] ^ 1,)))
        damaged.append(True)

    link = started(board(once_damaged))
    assert link.request(b"ab", 5.0) == b"ab"
    assert (link.resent, link.crc_errors) == (1, 1)


def test_answers_to_other_questions_are_dropped() -> None:
    def confused(script: Script, session: int, number: int, packet: bytes) -> None:
        script.say(session, NUMBERED, numbered(number - 1, b"old number"))
        script.say(session ^ 0x0100, NUMBERED, numbered(number, b"old session"))
        script.say(session, NORMAL, struct.pack("<Q", 3) + b"old")
        script.say(session, STARTED)
        script.say(session ^ 1, TERMINATE)
        script.say(session ^ 1, FAULT, b"old")
        script.put(encode(b"\x01"))
        script.say(session, NUMBERED)
        echo(script, session, number, packet)

    link = started(board(confused))
    assert link.request(b"ab", 5.0) == b"ba"
    assert link.resent == 0


def test_no_answer_is_an_error_that_says_what_was_asked(clock: Clock) -> None:
    link = started(board(lambda *_: None))
    call = struct.pack("<i", 3) + b"the rest"
    with pytest.raises(TransportError, match=r"request 1 \(function call, 12 bytes\) within 6 s; .* 3 times"):
        link.request(call, 6.0)
    assert clock.now == pytest.approx(1006)
    with pytest.raises(TransportError, match="no session"):
        link.request(call, 6.0)


def test_an_answer_that_contradicts_its_length_is_an_error() -> None:
    def liar(script: Script, session: int, number: int, _packet: bytes) -> None:
        script.say(session, NUMBERED, struct.pack("<BQ", number, 7) + b"short")

    with pytest.raises(TransportError, match="contradicts its own length"):
        started(board(liar)).request(b"ab", 1.0)


@pytest.mark.parametrize("with_id", [True, False])
def test_a_reset_board_says_so(with_id: bool) -> None:
    link = started(board(lambda script, session, *_: script.say(session if with_id else 0, TERMINATE)))
    with pytest.raises(BoardWasReset, match="the board was reset"):
        link.request(b"ab", 1.0)
    assert not link.is_started


@pytest.mark.parametrize("with_id", [True, False])
def test_a_fault_is_raised_with_its_record(with_id: bool) -> None:
    record = bytes(range(68))
    link = started(board(lambda script, session, *_: script.say(session if with_id else 0, FAULT, record)))
    with pytest.raises(BoardFaulted, match="took a fault") as caught:
        link.request(b"ab", 1.0)
    assert caught.value.record_bytes == record
    assert not link.is_started


def test_what_came_before_the_session_is_not_about_it() -> None:
    logs: list[str] = []
    script = board(echo)
    script.say(0, LOG, b"boot")
    script.say(0, FAULT, b"an old one")
    script.say(0, TERMINATE)
    script.put(encode(b"half a packet")[:-3])
    link = Link(script, on_log=logs.append)
    link.start()
    assert link.request(b"ab", 1.0) == b"ba"
    assert logs == ["boot"]


def test_an_earlier_fault_explains_why_no_session_begins() -> None:
    script = Script(lambda *_: None)
    script.say(0, FAULT, b"record")
    with pytest.raises(BoardFaulted) as caught:
        started(script)
    assert caught.value.record_bytes == b"record"


def test_boot_message_is_not_a_reset_while_starting() -> None:
    def booting(script: Script, session: int, kind: int, _body: bytes) -> None:
        script.say(0, TERMINATE)
        if kind == START:
            script.say(session | 0x0100, STARTED)

    assert started(Script(booting)).is_started


def test_logs_of_this_session_are_passed_on() -> None:
    def talkative(script: Script, session: int, number: int, packet: bytes) -> None:
        script.say(session, LOG, b"caf\xc3\xa9 \xff")
        script.say(session ^ 1, LOG, b"of another session")
        script.say(0, LOG, b"of none")
        echo(script, session, number, packet)

    logs: list[str] = []
    link = Link(board(talkative), on_log=logs.append)
    link.start()
    link.request(b"a", 1.0)
    assert logs == ["café �", "of none"]


def test_a_board_that_only_logs_does_not_answer() -> None:
    def chatter(script: Script, _session: int, _number: int, _packet: bytes) -> None:
        script.read = endless.__get__(script)  # type: ignore[method-assign]

    def endless(script: Script, _timeout: float) -> bytes:
        script.clock.now += 0.01
        return encode(b"\0\0\x03chatter")

    with pytest.raises(TransportError, match="did not answer request 1"):
        started(board(chatter)).request(b"a", 5.0)


def test_terminate_is_sent_once_with_the_sessions_id() -> None:
    script = board(echo)
    link = started(script)
    link.terminate()
    link.terminate()
    assert [(kind, session >> 8) for session, kind, _body in script.messages] == [(START, 0), (TERMINATE, 0x42)]
    with pytest.raises(TransportError, match="no session"):
        link.request(b"ab", 1.0)


def test_abort_ends_a_request_and_all_that_follow(clock: Clock) -> None:
    link = started(board(lambda *_: link.abort()))
    for _ in range(2):
        with pytest.raises(TransportError, match=r"cancelled|no session"):
            link.request(b"ab", 60.0)
    with pytest.raises(TransportError, match="cancelled"):
        link.start()
    assert clock.now < 1001
