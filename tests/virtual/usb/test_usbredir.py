# SPDX-License-Identifier: Apache-2.0
"""The wire format with arbitrary input."""

import contextlib
import logging
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.virtual.usb.conftest import Plug
from tests.virtual.usb.peer import Peer
from utvm.virtual.usb.usbredir import Packet, PacketKind, PacketStream, ProtocolError

HELLO = struct.pack("<III64sI", 0, 68, 0, b"a guest", 0b1110010)

# Data that a probe may parse as the start of a command.
commands = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from([b"", b"\xf2\x08", b"\xf2\x0d", b"\xf2\x51", b"\xf2\x52", b"\xf2\x07", b"\x05\x00", b"\x06\x00"]),
    st.binary(max_size=40),
)
packets = st.one_of(
    st.binary(max_size=60),
    st.builds(
        lambda kind, body: struct.pack("<IIQ", kind, len(body), 5) + body,
        st.sampled_from([*range(30), *range(99, 106)]),
        st.binary(max_size=40),
    ),
    # Control and bulk packets with consistent lengths, for existing and missing endpoints.
    st.builds(
        lambda endpoint, head, data: (
            struct.pack("<IIQ", 100, 10 + len(data), 6)
            + struct.pack("<BBBBHH", endpoint, head[0], endpoint | head[1] & 0x7F, 0, head[2] | head[3] << 8, head[4])
            + struct.pack("<H", len(data))
            + data
        ),
        st.sampled_from([0x00, 0x80]),
        st.binary(min_size=5, max_size=5),
        st.just(b""),
    ),
    st.builds(
        lambda endpoint, data: struct.pack("<IIQBBHIH", 101, 10 + len(data), 7, endpoint, 0, len(data), 0, 0) + data,
        st.sampled_from([0x01, 0x02, 0x0F]),
        commands,
    ),
    st.builds(
        lambda endpoint, length: struct.pack("<IIQBBHIH", 101, 10, 8, endpoint, 0, length, 0, 0),
        st.sampled_from([0x81, 0x82, 0x83, 0x84, 0x8F]),
        st.integers(0, 0xFFFF),
    ),
)


@given(st.lists(packets, max_size=12), st.booleans(), st.data())
def test_any_bytes_are_packets_or_one_error(parts: list[bytes], with_hello: bool, data: st.DataObject) -> None:
    stream = (HELLO if with_hello else b"") + b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    whole, pieces = _read([stream]), _read([stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)])
    assert whole == pieces  # independent of the cuts


def _read(parts: list[bytes]) -> list[Packet | str]:
    wire, packets_read = PacketStream(), list[Packet | str]()
    try:
        for part in parts:
            packets_read += wire.feed(part)
    except ProtocolError as error:
        packets_read.append(str(error))
    return packets_read


@pytest.mark.parametrize(
    "stream, message",
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bytes"),
        (struct.pack("<III", 3, 0, 0), "before HELLO"),
        (HELLO + struct.pack("<IIQ", 0, 68, 0), "second HELLO"),
        (HELLO + struct.pack("<IIQ", 1, 10, 0), "kind 1"),
        (HELLO + struct.pack("<IIQ", 101, 1 << 31, 0), "bytes"),
        (HELLO + struct.pack("<IIQ", 6, 0, 0), "SET_CONFIGURATION of 0"),
        (HELLO + struct.pack("<IIQB", 3, 1, 0, 0), "RESET of 1"),
        (HELLO + struct.pack("<IIQBBHIH", 101, 10, 0, 1, 0, 64, 0, 0), "0 bytes of data, expected 64"),
        (HELLO + struct.pack("<IIQBBHIH", 101, 10, 0, 0x81, 0, 0, 0, 0x8000), "requests 2147483648 bytes"),
        (struct.pack("<III5s", 0, 5, 0, b"short"), "HELLO of 5"),
    ],
)
def test_invalid_packet_ends_the_connection(stream: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        list(PacketStream().feed(stream))


def test_capabilities_make_headers_longer() -> None:
    wire = PacketStream()
    (hello,) = wire.feed(struct.pack("<III64sI", 0, 68, 0, b"a guest", 0))
    assert (hello.kind, hello.data) == (PacketKind.HELLO, b"a guest")
    # Short header, and a bulk header of 8 bytes: the protocol's "usb_redir_header" and "usb_redir_bulk_packet"
    (bulk,) = wire.feed(struct.pack("<IIIBBHI", 101, 11, 9, 1, 0, 3, 0) + b"abc")
    assert (bulk.id, bulk.fields, bulk.data) == (9, (1, 0, 3, 0), b"abc")
    assert wire.encode(Packet(PacketKind.BULK_PACKET, 9, (1, 0, 3, 0))) == struct.pack(
        "<IIIBBHI", 101, 8, 9, 1, 0, 3, 0
    )


@pytest.mark.parametrize("kind", ["st-link", "cmsis-dap"])
def test_random_packets_do_not_stop_the_server(
    plug: "type[Plug]", kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped: list[object] = []
    monkeypatch.setattr(threading, "excepthook", escaped.append)
    caplog.set_level(logging.INFO)
    plugged = plug(kind)  # type: ignore[arg-type, call-arg]

    @given(st.lists(packets, min_size=1, max_size=8))
    def send(parts: list[bytes]) -> None:
        with plugged.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(HELLO + b"".join(parts))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass  # until the server closes, or has read the end

    send()
    assert not escaped
    with Peer(plugged.connect()) as peer:
        assert len(peer.descriptor(1) or b"") == 18
