# SPDX-License-Identifier: Apache-2.0
"""The board's framing against the host's: two independent implementations of one description."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utvm.session.framing import Deframer, encode

_LIMIT = 300
# Framing bytes are frequent, so that random bytes sometimes look like packets.
_STREAM = st.lists(
    st.one_of(
        st.sampled_from([b"\xff", b"\xff\xfd", b"\xff\xfe", b"\xff\xff", b"\xfe", b"\xfd"]),
        st.binary(max_size=20),
        st.binary(max_size=40).map(encode),
        st.binary(max_size=40).map(lambda payload: encode(payload)[:-1]),
        st.binary(min_size=_LIMIT - 1, max_size=_LIMIT + 2).map(encode),
    )
).map(b"".join)


@pytest.fixture(scope="module")
def wire(load_library: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    return load_library(["framing.c"], Path(__file__).with_name("wire.c"))


def send(wire: ctypes.CDLL, payload: bytes, first: int) -> bytes:
    wire.wire_send(payload, len(payload), first)
    count = ctypes.c_uint32.in_dll(wire, "wire_sent_count").value
    return bytes((ctypes.c_uint8 * 65536).in_dll(wire, "wire_sent")[:count])


def receive(wire: ctypes.CDLL, stream: bytes) -> list[bytes]:
    wire.wire_listen(_LIMIT)
    payload = (ctypes.c_uint8 * 65536).in_dll(wire, "wire_payload")
    lengths = ((wire.wire_take(byte)) for byte in stream)
    return [bytes(payload[:length]) for length in lengths if length >= 0]


@settings(max_examples=300, deadline=None)
@given(
    payload=st.one_of(st.binary(max_size=400), st.binary(max_size=9).map(lambda some: some * 40)), cut=st.floats(0, 1)
)
def test_board_and_host_send_equal_bytes(wire: ctypes.CDLL, payload: bytes, cut: float) -> None:
    assert send(wire, payload, int(cut * len(payload))) == encode(payload)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(stream=_STREAM)
def test_board_and_host_receive_equal_packets(wire: ctypes.CDLL, stream: bytes) -> None:
    host = Deframer(_LIMIT)
    expected = host.feed(stream)
    assert receive(wire, stream) == expected
    assert wire.wire_crc_errors() == host.crc_errors
    assert wire.wire_dropped() == host.dropped


def test_packet_is_received_after_noise(wire: ctypes.CDLL) -> None:
    stream = b"\xff\xfd\xff\xff\xff" + b"noise\xff" + encode(b"\xff\xfd inside", after_reset=True)
    assert receive(wire, stream) == [b"\xff\xfd inside"]
