# SPDX-License-Identifier: Apache-2.0
"""The host's link and the board's, over a line that loses, doubles, reorders, cuts and changes data.

The board is the real runtime in a process; only the line between the two is a fake.
"""

import random
import struct
from collections.abc import Iterator

import pytest

from hil_tests.programs import handwritten
from utvm import boards
from utvm.errors import BoardError, TransportError
from utvm.firmware import build
from utvm.session.link import Link
from utvm.session.transport import ChildProcess

_BEGIN = struct.pack("<iQ", 2, 5) + b"0.8.0" + struct.pack("<i", 0)
_BYTES = 64


class LossyLine:
    """A fake line: data that is written in one piece may be lost, doubled, delayed, cut or changed."""

    def __init__(self, transport: ChildProcess, rate: float, seed: int) -> None:
        self._transport = transport
        self._rate = rate
        self._random = random.Random(seed)
        self._delayed: dict[str, bytes] = {}
        self.packets = 0

    def read(self, timeout: float) -> bytes:
        return self._damage("down", self._transport.read(timeout))

    def write(self, data: bytes) -> None:
        self._transport.write(self._damage("up", data))

    def close(self) -> None:
        self._transport.close()

    def _damage(self, direction: str, data: bytes) -> bytes:
        if not data:
            return data
        self.packets += 1
        delayed = self._delayed.pop(direction, b"")
        if self._random.random() >= self._rate:
            return data + delayed
        kind = self._random.choice(["lose", "double", "hold", "cut", "change", "insert"])
        position = self._random.randrange(len(data))
        if kind == "lose":
            data = b""
        elif kind == "double":
            data += data
        elif kind == "hold":
            self._delayed[direction] = data
            data = b""
        elif kind == "cut":
            data = data[:position]
        elif kind == "change":
            data = data[:position] + self._random.randbytes(1) + data[position + 1 :]
        else:
            data = data[:position] + self._random.randbytes(self._random.randrange(1, 9)) + data[position:]
        return data + delayed


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildProcess]:
    program = build(boards.load("host"), [handwritten("idle", "  return 0;")], "rpc").elf
    with ChildProcess("host", [program], log=tmp_path_factory.mktemp("board") / "log") as child:
        yield child


class Conversation:
    """Writes to a tensor on the board and reads it back, repeatedly; recovers from every error."""

    def __init__(self, line: LossyLine, seed: int) -> None:
        self.link = Link(line, start_timeout=20, start_retry=0.002, resend_after=0.002)
        self.recovered = 0
        self._random = random.Random(seed)
        self._line = line
        self._address = 0
        self._content = b""

    def run(self, packets: int) -> None:
        self._begin()
        while self._line.packets < packets:
            try:
                if self._random.random() < 0.5:
                    self._content = self._random.randbytes(_BYTES)
                    reply = self._request(self._tensor(7) + struct.pack("<Q", _BYTES) + self._content)
                    assert reply == struct.pack("<iii", 4, 1, 0)
                else:
                    reply = self._request(self._tensor(6) + struct.pack("<Q", _BYTES))
                    assert reply == struct.pack("<i", 8) + self._content
            except (TransportError, BoardError):
                self._begin()

    def _request(self, packet: bytes) -> bytes:
        return self.link.request(packet, 0.5)

    def _tensor(self, code: int) -> bytes:
        return struct.pack("<iQiiiBBHqQ", code, self._address, 1, 0, 1, 1, 8, 1, _BYTES, 0)

    def _begin(self) -> None:
        self.recovered += 1
        while True:
            try:
                self.link.start()
                self._request(_BEGIN)
                tensor = struct.pack("<iQiiiBBHqQ", 7, 0, 1, 0, 1, 1, 8, 1, _BYTES, 0)
                reply = self._request(struct.pack("<ii", 17, 2) + tensor + struct.pack("<i", 0))
            except (TransportError, BoardError):
                continue
            assert struct.unpack_from("<iii", reply) == (4, 1, 4)
            (self._address,) = struct.unpack_from("<Q", reply, 12)
            self._content = b""
            # Memory has an unknown content before it is written.
            self._content = self._random.randbytes(_BYTES)
            try:
                self._request(self._tensor(7) + struct.pack("<Q", _BYTES) + self._content)
            except (TransportError, BoardError):
                continue
            return


@pytest.mark.parametrize(
    ("packets", "rate"),
    [
        pytest.param(1_000, 0.5, marks=pytest.mark.slow),
        pytest.param(3_000, 0.05, marks=pytest.mark.slow),
        pytest.param(100_000, 0.1, marks=pytest.mark.nightly),
    ],
)
def test_no_packet_is_wrong_and_every_session_recovers(board: ChildProcess, packets: int, rate: float) -> None:
    line = LossyLine(board, rate, seed=packets)
    conversation = Conversation(line, seed=packets)
    conversation.run(packets)
    assert conversation.link.resent > packets * rate / 20, "the line was hardly lossy"
    # Over a good line, it continues at once.
    link = Link(board, start_timeout=20)
    link.start()
    assert link.request(_BEGIN, 20) == struct.pack("<iii", 4, 1, 0)


def test_host_with_its_predecessors_nonce_is_served(board: ChildProcess) -> None:
    first = Link(board, start_timeout=20)
    first.start()
    for _ in range(3):
        first.request(_BEGIN, 20)
    # It ends without a message. A nonce is one of 255.
    second = Link(board, start_timeout=20)
    second._nonce = (first._nonce - 2) % 255 + 1
    second.start()
    assert second._nonce == first._nonce
    assert second.request(_BEGIN, 5) == struct.pack("<iii", 4, 1, 0)


def test_unnumbered_request_is_answered(board: ChildProcess) -> None:
    """Type 0x10, as microTVM's host sent it."""
    from utvm.session.framing import Deframer, encode

    link = Link(board, start_timeout=20)
    link.start()
    session = link._session
    board.write(encode(struct.pack("<HBQ", session, 0x10, len(_BEGIN)) + _BEGIN))
    deframer, replies = Deframer(4096), []
    while not replies:
        replies = deframer.feed(board.read(1.0))
    assert replies == [struct.pack("<HBQ", session, 0x10, 12) + struct.pack("<iii", 4, 1, 0)]
