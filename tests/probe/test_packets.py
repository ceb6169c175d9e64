# SPDX-License-Identifier: Apache-2.0
"""The packet codec, compared with examples of the GDB manual and checked by properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.probe.packets import PacketError, PacketReader, decode, encode, escape

PAYLOADS = st.binary(max_size=300)


def test_checksum_of_the_manual() -> None:
    # GDB manual, section Overview: the two-digit checksum is the modulo-256 sum of all characters between $ and #.
    assert encode(b"OK") == b"$OK#9a"
    assert encode(b"") == b"$#00"


def test_escape_of_the_manual() -> None:
    # "the byte 0x7d would be transmitted as the two bytes 0x7d 0x5d"
    assert escape(b"\x7d") == b"\x7d\x5d"
    assert escape(b"a$b#c*d") == b"a}\x04b}\x03c}\x0ad"


def test_run_length_of_the_manual() -> None:
    # "0* " is "0000": the repeat count is the character code minus 29, and a space is 32.
    assert decode(b"0* ") == b"0000"
    assert decode(b"x0*\x22y") == b"x" + b"0" * 6 + b"y"


@pytest.mark.parametrize("payload", [b"*!", b"0*", b"ab}", b"0*\x1d"])
def test_malformed_payloads_are_refused(payload: bytes) -> None:
    with pytest.raises(PacketError):
        decode(payload)


@given(PAYLOADS)
def test_escaping_round_trips_without_frame_characters(data: bytes) -> None:
    escaped = escape(data)
    assert decode(escaped) == data
    assert not set(escaped) & set(b"$#*")


@given(st.lists(PAYLOADS, max_size=5), st.data())
def test_packets_are_read_from_any_chunks(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"+".join(encode(escape(payload)) for payload in payloads)
    reader = PacketReader()
    received = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:cut])
        stream = stream[cut:]
        while (payload := reader.next_packet()) is not None:
            received.append(payload)
    assert received == payloads


@given(st.binary(min_size=1, max_size=40), st.integers(1, 255))
def test_wrong_checksum_is_refused_and_reading_goes_on(payload: bytes, error: int) -> None:
    good = escape(payload)
    wrong = b"$%b#%02x" % (good, (sum(good) + error) & 0xFF)
    reader = PacketReader()
    reader.feed(wrong + encode(b"OK"))
    with pytest.raises(PacketError):
        reader.next_packet()
    assert reader.next_packet() == b"OK"


def test_notifications_and_acknowledgments_are_skipped() -> None:
    reader = PacketReader()
    reader.feed(b"++-%Stop:T05#" + b"%02x" % (sum(b"Stop:T05") & 0xFF) + b"+" + encode(b"E01"))
    assert reader.next_packet() == b"E01"
    assert reader.next_packet() is None


def test_endless_packet_is_limited() -> None:
    reader = PacketReader()
    reader.feed(b"$" + b"a" * (1 << 20))
    reader.feed(b"a" * 2)
    with pytest.raises(PacketError):
        reader.next_packet()


@given(st.binary(max_size=400))
def test_garbage_raises_only_packet_errors(garbage: bytes) -> None:
    reader = PacketReader()
    reader.feed(garbage)
    for _ in range(garbage.count(b"#") + 1):
        try:
            reader.next_packet()
        except PacketError:
            continue


@pytest.mark.nightly
@given(st.lists(st.binary(max_size=2000), max_size=50))
def test_streams_of_garbage_raise_only_packet_errors(pieces: list[bytes]) -> None:
    reader = PacketReader()
    for piece in pieces:
        reader.feed(b"$" + piece + b"#")
        for _ in range(piece.count(b"#") + 2):
            try:
                reader.next_packet()
            except PacketError:
                continue
