# SPDX-License-Identifier: Apache-2.0
"""A session with the RPC server on a board, over a transport that may lose and damage bytes.

Every packet holds a session id, a type and a body. Host and board each choose half of the id, so that bytes of an
earlier session are never taken for a reply. Requests are numbered: the board executes each number once and repeats
its reply on a retransmission, so a request can be resent until its reply arrives.
"""

import logging
import random
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from typing import TypeVar

from utvm.base.log import Excerpt
from utvm.errors import BoardError, TransportError
from utvm.session import framing, minrpc
from utvm.session.transport import Transport

_T = TypeVar("_T")
_FRAMES = logging.getLogger("utvm.session.rpc")
_BOARD = logging.getLogger("utvm.session.board")

_HEADER = struct.Struct("<HB")  # session id, type
_NUMBERED = struct.Struct("<BQ")  # number, length of the following MinRPC packet
_SLICE = 0.2  # Longest read in seconds: the latency of abort().
_DRAIN = 0.5  # Maximum seconds to discard stale input before a session.


class _Type(IntEnum):
    START = 0
    STARTED = 1
    TERMINATE = 2
    LOG = 3
    NUMBERED = 0x11
    FAULT = 0x12


class BoardFaulted(BoardError):
    """The board reported a fault; ``record_bytes`` is for :meth:`utvm.session.fault.FaultRecord.parse`."""

    def __init__(self, record_bytes: bytes) -> None:
        super().__init__("the board took a fault", "reset it to go on")
        self.record_bytes = record_bytes


class BoardWasReset(BoardError):
    """The board restarted and lost the session."""

    def __init__(self) -> None:
        super().__init__("the board was reset", "is its power stable, or does something else reset it?")


@dataclass(eq=False)
class Link:
    """One session at a time with the RPC server on a board.

    Args:
        transport: the byte stream; its owner closes it.
        start_timeout: seconds to start a session.
        start_retry: seconds until the second attempt to start; doubles with each attempt.
        resend_after: seconds until a request is resent; doubles with each retry.
        limit: longest packet accepted from the board, in bytes.
        on_log: called with each log message of the board.

    Attributes:
        bytes_sent, bytes_received: on the wire, framing included.
        resent: number of retransmissions.
    """

    transport: Transport
    _: KW_ONLY
    start_timeout: float = 5.0
    start_retry: float = 0.5
    resend_after: float = 1.0
    limit: int = 1 << 20
    on_log: Callable[[str], None] | None = None
    bytes_sent: int = field(default=0, init=False)
    bytes_received: int = field(default=0, init=False)
    resent: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._deframer = framing.Deframer(self.limit)
        self._inbox: deque[bytes] = deque()
        self._aborted = threading.Event()
        # Consecutive users of a board should not start with the same nonce.
        self._nonce = random.SystemRandom().randint(1, 255)
        self._session = self._number = 0

    @property
    def crc_errors(self) -> int:
        """Number of packets received with a wrong checksum."""
        return self._deframer.crc_errors

    @property
    def is_started(self) -> bool:
        """True if a session is active."""
        return self._session != 0

    def start(self) -> None:
        """Start a session; the previous one and its state on the board are discarded."""
        self._session = 0
        earlier_fault = self._drain()
        received = self.bytes_received
        deadline = time.monotonic() + self.start_timeout
        wait = self.start_retry
        attempts = 0
        while not self._session:
            if time.monotonic() >= deadline:
                if earlier_fault:
                    raise earlier_fault
                raise TransportError(
                    f"the board did not answer {attempts} attempts to begin a session within "
                    f"{self.start_timeout:g} s; {self.bytes_received - received} bytes came from it",
                    "does it run firmware with the RPC server, and are serial line and speed right?",
                )
            self._nonce = self._nonce % 255 + 1
            self._send(self._nonce, _Type.START, b"", after_reset=True)
            attempts += 1
            self._session = self._wait(self._accept_start, min(deadline, time.monotonic() + wait)) or 0
            wait *= 2
        self._number = 0

    def request(self, packet: bytes, timeout: float) -> bytes:
        """Have the board execute a MinRPC packet (without its length) exactly once, and return its reply.

        Any error ends the session: it is then unknown whether the board executed the packet.
        """
        if not self._session:
            raise TransportError("there is no session with the board", "start one")
        session, self._session = self._session, 0
        answer = self._request(session, packet, timeout)
        self._session = session
        return answer

    def terminate(self) -> None:
        """End the session, if any, and notify the board."""
        session, self._session = self._session, 0
        if session:
            self._send(session, _Type.TERMINATE, b"")

    def abort(self) -> None:
        """Make the current operation of another thread, and all later ones, raise a TransportError soon."""
        self._aborted.set()

    def _request(self, session: int, packet: bytes, timeout: float) -> bytes:
        number = (self._number + 1) % 256
        body = _NUMBERED.pack(number, len(packet)) + packet
        accept = _ReplyFilter(session, number)
        deadline = time.monotonic() + timeout
        wait = self.resend_after
        attempts = 0
        while attempts == 0 or time.monotonic() < deadline:
            self._send(session, _Type.NUMBERED, body)
            self.resent += attempts > 0
            attempts += 1
            answer = self._wait(accept, min(deadline, time.monotonic() + wait), session)
            if answer is not None:
                self._number = number
                return answer
            wait *= 2
        raise TransportError(
            f"the board did not answer request {number} ({minrpc.name_of(packet)}) within {timeout:g} s; "
            f"it was sent {attempts} times"
        )

    def _accept_start(self, session: int, kind: int, _body: bytes) -> int | None:
        good = kind == _Type.STARTED and session & 0xFF == self._nonce and session >> 8 != 0
        return session if good else None

    def _drain(self) -> BoardFaulted | None:
        """Discard stale input and pass on its log messages. A fault may be old, so it is returned, not raised."""
        fault = None
        deadline = time.monotonic() + _DRAIN
        while self._receive(0.0) and time.monotonic() < deadline:
            while self._inbox:
                try:
                    self._process(self._inbox.popleft(), lambda *_message: None, 0)
                except BoardFaulted as error:
                    fault = error
        self._inbox.clear()
        return fault

    def _receive(self, timeout: float) -> int:
        data = self.transport.read(timeout)
        self.bytes_received += len(data)
        self._inbox.extend(self._deframer.feed(data))
        return len(data)

    def _send(self, session: int, kind: _Type, body: bytes, *, after_reset: bool = False) -> None:
        if _FRAMES.isEnabledFor(logging.DEBUG):
            _FRAMES.debug("-> %04x %s, %d bytes: %s", session, kind.name, len(body), Excerpt(body))
        data = framing.encode(_HEADER.pack(session, kind) + body, after_reset=after_reset)
        self.transport.write(data)
        self.bytes_sent += len(data)

    def _wait(self, accept: Callable[[int, int, bytes], _T | None], deadline: float, session: int = 0) -> _T | None:
        """Return the first result of ``accept`` (session, type, body) that is not None; None on timeout."""
        out_of_time = False
        while True:
            while self._inbox:
                reply = self._process(self._inbox.popleft(), accept, session)
                if reply is not None:
                    return reply
            if self._aborted.is_set():
                raise TransportError("the wait for the board was cancelled")
            if out_of_time:
                return None
            # Read once more after the timeout: on a busy computer, the reply may already be buffered.
            left = deadline - time.monotonic()
            out_of_time = left <= 0
            self._receive(max(0.0, min(left, _SLICE)))

    def _process(self, payload: bytes, accept: Callable[[int, int, bytes], _T | None], session: int) -> _T | None:
        if len(payload) < _HEADER.size:
            return None
        session_number, kind = _HEADER.unpack_from(payload)
        body = payload[_HEADER.size :]
        if _FRAMES.isEnabledFor(logging.DEBUG):
            name = _Type(kind).name if kind in _Type.__members__.values() else f"type {kind}"
            _FRAMES.debug("<- %04x %s, %d bytes: %s", session_number, name, len(body), Excerpt(body))
        if kind == _Type.LOG:
            if session_number in (0, session):
                text = body.decode(errors="replace")
                _BOARD.info("%s", text)
                if self.on_log:
                    self.on_log(text)
            return None
        if kind == _Type.FAULT and session_number in (0, session):
            raise BoardFaulted(body)
        # Boards also send this at start-up; it matters only within a session.
        if kind == _Type.TERMINATE and session and session_number in (0, session):
            raise BoardWasReset
        return accept(session_number, kind, body)


class _ReplyFilter:
    def __init__(self, session: int, number: int) -> None:
        self._session = session
        self._number = number

    def __call__(self, session: int, kind: int, body: bytes) -> bytes | None:
        if kind != _Type.NUMBERED or session != self._session or body[:1] != bytes((self._number,)):
            return None
        packet = body[_NUMBERED.size :]
        if len(body) < _NUMBERED.size or _NUMBERED.unpack_from(body)[1] != len(packet):
            raise TransportError(
                f"the board's answer to request {self._number} contradicts its own length",
                "is its firmware of another version? Build and flash it again",
            )
        return packet
