# SPDX-License-Identifier: Apache-2.0
"""A probe as a USB device, plugged into a guest with Debian's library for usbredir."""

import struct
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.virtual.fake_board import RAM
from tests.virtual.usb.conftest import Plug
from tests.virtual.usb.peer import CANCELLED, INVALID, STALL, SUCCESS, Peer

DEVICE, CONFIGURATION, STRING, INTERFACE, ENDPOINT, QUALIFIER, ASSOCIATION = 1, 2, 3, 4, 5, 6, 11
CLASS_SPECIFIC = 0x24
BULK, INTERRUPT = 2, 3


class Configuration(NamedTuple):
    """A configuration, parsed by the tables of USB 2.0, 9.6, and of CDC 1.2, 5.2.3."""

    interfaces: list[tuple[int, ...]]
    endpoints: dict[int, tuple[int, ...]]
    associations: list[tuple[int, ...]]
    functional: list[bytes]


def parse(text: bytes) -> Configuration:
    head = struct.unpack("<BBHBBBBB", text[:9])
    assert head[:3] == (9, CONFIGURATION, len(text))
    assert head[6] & 0x80  # reserved, set to one
    configuration = Configuration([], {}, [], [])
    offset = 9
    while offset < len(text):
        size, kind = text[offset : offset + 2]
        descriptor = text[offset : offset + size]
        assert size == len(descriptor) == {INTERFACE: 9, ENDPOINT: 7, ASSOCIATION: 8}.get(kind, size)
        if kind == INTERFACE:
            configuration.interfaces.append(tuple(descriptor[2:]))
        elif kind == ENDPOINT:
            address, *rest = struct.unpack("<BBHB", descriptor[2:])
            configuration.endpoints[address] = (configuration.interfaces[-1][0], *rest)
        elif kind == ASSOCIATION:
            configuration.associations.append(tuple(descriptor[2:]))
        else:
            assert kind == CLASS_SPECIFIC
            configuration.functional.append(descriptor[2:])
        offset += size
    for number, interface in enumerate(configuration.interfaces):
        assert interface[:2] == (number, 0)  # numbered from 0 on, no alternate setting
        assert interface[2] == sum(owner == number for owner, *_ in configuration.endpoints.values())
    assert head[3] == len(configuration.interfaces)
    return configuration


def text_of(peer: Peer, index: int) -> str:
    descriptor = peer.descriptor(STRING, index)
    assert descriptor
    assert tuple(descriptor[:2]) == (len(descriptor), STRING)
    return descriptor[2:].decode("utf-16-le")


def test_st_link_descriptors(peer: Peer) -> None:
    device = struct.unpack("<BBHBBBBHHHBBBB", peer.descriptor(DEVICE) or b"")
    assert device[:7] == (18, DEVICE, 0x0200, 0xEF, 2, 1, 64)  # a device with interface associations
    assert device[7:10] == (0x0483, 0x374B, 0x0100)
    assert [text_of(peer, index) for index in device[10:13]] == ["utvm virtual board", "Virtual ST-Link", "S-1"]
    assert device[13] == 1
    configuration = parse(peer.descriptor(CONFIGURATION) or b"")
    assert configuration.interfaces[0][2:6] == (3, 0xFF, 0xFF, 0xFF)
    assert text_of(peer, configuration.interfaces[0][6]) == "ST-Link Debug"
    debug = {address: rest[1:] for address, rest in configuration.endpoints.items() if rest[0] == 0}
    assert debug == {0x81: (BULK, 64, 0), 0x01: (BULK, 64, 0), 0x82: (BULK, 64, 0)}


@pytest.mark.parametrize(
    ("product", "out", "trace", "interfaces", "version"),
    [
        (0x3748, 0x02, 0x83, 1, bytes([0x2A, 0x07])),  # V2 J40 S7: 4, 6 and 6 bits
        (0x374D, 0x01, 0x82, 3, bytes([0x30, 0x00])),
        (0x374E, 0x01, 0x82, 3, bytes([0x30, 0x00])),
        (0x374F, 0x01, 0x82, 3, bytes([0x30, 0x00])),
        (0x3752, 0x01, 0x82, 3, bytes([0x2A, 0x1B])),
        (0x3753, 0x01, 0x82, 3, bytes([0x30, 0x00])),
        (0x3754, 0x01, 0x82, 3, bytes([0x30, 0x00])),
    ],
)
def test_products_of_st_link(
    plug: Callable[..., Plug], product: int, out: int, trace: int, interfaces: int, version: bytes
) -> None:
    """Endpoints and replies as OpenOCD 0.12 expects them (src/jtag/drivers/stlink_usb.c)."""
    with Peer(plug("st-link", product).connect()) as peer:
        device = struct.unpack("<BBHBBBBHHHBBBB", peer.descriptor(DEVICE) or b"")
        assert device[7:9] == (0x0483, product)
        configuration = parse(peer.descriptor(CONFIGURATION) or b"")
        assert len(configuration.interfaces) == interfaces
        assert {address for address, rest in configuration.endpoints.items() if rest[0] == 0} == {0x81, out, trace}
        assert peer.put(out, b"\xf1".ljust(16, b"\0")) == SUCCESS
        assert peer.get(0x81, 64) == version + struct.pack("<HH", 0x0483, product)
        if version[0] >> 4 == 3:
            assert peer.put(out, b"\xfb".ljust(16, b"\0")) == SUCCESS
            reply = peer.get(0x81, 64)
            assert (reply[0], reply[8:]) == (3, struct.pack("<HH", 0x0483, product))
            assert peer.put(out, b"\xf2\x62".ljust(16, b"\0")) == SUCCESS
            reply = peer.get(0x81, 64)
            assert len(reply) == 52 and struct.unpack_from("<3I", reply, 8) == (5, 24000, 8000)


def test_trace_endpoint_sends_the_bytes_of_swo(plug: Callable[..., Plug]) -> None:
    """Commands as in OpenOCD 0.12, src/jtag/drivers/stlink_usb.c."""
    plugged = plug("st-link")
    with Peer(plugged.connect()) as peer:

        def execute(command: bytes) -> bytes:
            assert peer.put(0x01, command.ljust(16, b"\0")) == SUCCESS
            return peer.get(0x81, 64)

        assert execute(b"\xf2\x40" + struct.pack("<HI", 4096, 2_000_000))[0] == 0x80
        plugged.board.trace.extend(b"\x01H\x01i")
        assert execute(b"\xf2\x42") == b"\x04\x00"
        assert peer.get(0x82, 64) == b"\x01H\x01i"
        assert execute(b"\xf2\x42") == b"\x00\x00"


def test_com_port_is_one_function_of_two_interfaces(peer: Peer) -> None:
    configuration = parse(peer.descriptor(CONFIGURATION) or b"")
    (association,) = configuration.associations
    assert association[:5] == (1, 2, 2, 2, 1)
    assert [interface[3:6] for interface in configuration.interfaces[1:]] == [(2, 2, 1), (10, 0, 0)]
    # Header, call management, abstract control, union: CDC 1.2, table 13
    assert [part[0] for part in configuration.functional] == [0, 1, 2, 6]
    assert configuration.functional[3][1:] == bytes([1, 2])
    endpoints = sorted((address >> 7, rest[1]) for address, rest in configuration.endpoints.items() if rest[0])
    assert endpoints == [(0, BULK), (1, BULK), (1, INTERRUPT)]


def test_cmsis_dap_is_recognised_by_its_interface(cmsis_dap: Plug) -> None:
    with Peer(cmsis_dap.connect()) as peer:
        device = struct.unpack("<BBHBBBBHHHBBBB", peer.descriptor(DEVICE) or b"")
        assert text_of(peer, device[12]) == "S-1"
        configuration = parse(peer.descriptor(CONFIGURATION) or b"")
        (interface,) = configuration.interfaces
        assert interface[2:6] == (2, 0xFF, 0, 0)
        assert "CMSIS-DAP" in text_of(peer, interface[6])
        # Out first, then in: Arm's documentation, "USB configuration"
        assert list(configuration.endpoints.items()) == [(0x01, (0, BULK, 512, 0)), (0x81, (0, BULK, 512, 0))]
        assert len(peer.descriptor(QUALIFIER) or b"") == 10
        assert peer.device[0] == 2  # high speed


def test_usbredir_agrees_with_the_descriptors(peer: Peer) -> None:
    configuration = parse(peer.descriptor(CONFIGURATION) or b"")
    assert peer.order[:4] == ["hello", "interface_info", "ep_info", "device_connect"]
    assert peer.device == (1, 0xEF, 2, 1, 0x0483, 0x374B, 0x0100)
    assert peer.interfaces == [(interface[0], *interface[3:6]) for interface in configuration.interfaces]
    announced = {
        address: (owner, kind, size, interval) for address, (kind, interval, owner, size) in peer.endpoints.items()
    }
    assert announced == configuration.endpoints


def test_descriptor_is_cut_to_the_requested_length(peer: Peer) -> None:
    assert peer.descriptor(CONFIGURATION, length=9) == (peer.descriptor(CONFIGURATION) or b"")[:9]


@pytest.mark.parametrize("descriptor", [(STRING, 99), (QUALIFIER, 0), (15, 0), (DEVICE, 1), (CONFIGURATION, 1)])
def test_missing_descriptor_is_refused(peer: Peer, descriptor: tuple[int, int]) -> None:
    assert peer.descriptor(*descriptor) is None


def test_configuration_is_selected(peer: Peer) -> None:
    peer.order.clear()
    assert peer.configure(1).fields == (SUCCESS, 1)
    assert peer.order == ["interface_info", "ep_info", "configuration_status"]
    assert peer.configure(2).fields == (INVALID, 1)
    assert peer.configure(0).fields == (SUCCESS, 0)
    assert peer.put(0x01, b"\xf1") == INVALID  # not configured: no endpoint but the first
    assert peer.control(0x80, 8, length=1).data == b"\0"


def test_there_are_no_alternate_settings(peer: Peer) -> None:
    assert peer.set_alternate(0, 0).fields == (SUCCESS, 0, 0)
    assert peer.set_alternate(0, 1).fields[0] == INVALID
    assert peer.set_alternate(7, 0).fields[0] == INVALID


def test_endpoint_is_halted_and_released(peer: Peer) -> None:
    assert peer.control(0x02, 3, 0, 0x01).fields[3] == SUCCESS
    assert peer.control(0x82, 0, 0, 0x01, 2).data == b"\1\0"
    assert peer.put(0x01, b"\xf1") == STALL
    assert peer.control(0x02, 1, 0, 0x01).fields[3] == SUCCESS
    assert peer.put(0x01, b"\xf1") == SUCCESS


@pytest.mark.parametrize(
    "request_type, request_code, index", [(0x80, 99, 0), (0x82, 0, 0x55), (0x81, 10, 9), (0xC0, 1, 0)]
)
def test_unknown_request_is_refused(peer: Peer, request_type: int, request_code: int, index: int) -> None:
    assert peer.control(request_type, request_code, 0, index, 2).fields[3] == STALL


def test_only_interrupt_endpoints_are_polled(peer: Peer) -> None:
    assert peer.listen_to_interrupts(0x83).fields == (SUCCESS, 0x83)
    assert peer.listen_to_interrupts(0x81).fields[0] == INVALID


def test_missing_endpoints_are_refused(peer: Peer) -> None:
    assert peer.put(0x0F, b"x") == INVALID
    assert peer.wait_for(peer.request(0x8F, 1)).fields[1] == INVALID
    assert peer.wait_for(peer.request(0x83, 1)).fields[1] == INVALID  # an interrupt endpoint


# The ST-Link's commands through its endpoints


def command(peer: Peer, *words: int) -> None:
    assert peer.put(0x01, bytes(words).ljust(16, b"\0")) == SUCCESS


def test_command_has_a_reply(peer: Peer) -> None:
    command(peer, 0xF1)
    version, vendor, product = struct.unpack(">H", (reply := peer.get(0x81, 64))[:2]) + struct.unpack("<HH", reply[2:])
    assert (version >> 12, version >> 6 & 0x3F, vendor, product) == (2, 40, 0x0483, 0x374B)


def test_reply_and_request_wait_for_each_other(peer: Peer) -> None:
    number = peer.request(0x81, 64)
    command(peer, 0xF5)
    assert len(peer.wait_for(number).data) == 2
    command(peer, 0xF7)
    assert [len(peer.get(0x81, 5)), len(peer.get(0x81, 5))] == [5, 3]


def test_request_is_cancelled(peer: Peer) -> None:
    number = peer.request(0x81, 64)
    assert peer.cancel(number).fields[:3] == (0x81, CANCELLED, 0)
    command(peer, 0xF1)
    assert len(peer.get(0x81, 64)) == 6  # the cancelled request took no data


def test_memory_is_written_and_read(st_link: Plug, peer: Peer) -> None:
    command(peer, 0xF2, 0x30, 0xA3)
    assert peer.get(0x81, 64)[0] == 0x80
    data = bytes(range(256)) * 24  # 6144 bytes, the largest block
    command(peer, *struct.pack("<BBIH", 0xF2, 0x08, RAM, len(data)))
    for offset in range(0, len(data), 1000):
        assert peer.put(0x01, data[offset : offset + 1000]) == SUCCESS
    assert st_link.board.ram[: len(data)] == data
    command(peer, *struct.pack("<BBIH", 0xF2, 0x07, RAM, len(data)))
    assert peer.get(0x81, len(data)) == data
    command(peer, *struct.pack("<BBIH", 0xF2, 0x0C, RAM + 7, 1))
    assert peer.get(0x81, 64)[:1] == b"\x07"  # a single byte comes in a reply of two


def test_mixed_accesses(st_link: Plug, peer: Peer) -> None:
    command(peer, 0xF2, 0x30, 0xA3)
    peer.get(0x81, 64)
    command(peer, *struct.pack("<BBI", 0xF2, 0x51, 3))
    assert peer.put(0x01, bytes([1, 2, 3, 0]) + struct.pack("<3I", RAM, 0x12345678, RAM)) == SUCCESS
    command(peer, 0xF2, 0x52)
    assert struct.unpack("<6I", peer.get(0x81, 64)) == (0, 0, 0x12345678, 0x80, 0x80, 0x80)
    assert st_link.board.ram[:4] == struct.pack("<I", 0x12345678)


def test_bus_reset_discards_an_incomplete_command(peer: Peer) -> None:
    command(peer, *struct.pack("<BBIH", 0xF2, 0x08, RAM, 64))
    peer.reset()
    command(peer, 0xF1)
    assert len(peer.get(0x81, 64)) == 6


def test_guest_that_never_reads_is_refused(peer: Peer) -> None:
    # A read command has a reply of 6144 bytes: 280 would be 1.7 MB.
    read = struct.pack("<BBIH", 0xF2, 0x07, RAM, 6144).ljust(16, b"\0")
    assert STALL in {peer.put(0x01, read) for _ in range(280)}


# The COM port


def test_com_port_sends_and_receives(st_link: Plug, peer: Peer) -> None:
    st_link.printed.append(b"before ")
    assert peer.get(0x84, 64) == b"before "
    number = peer.request(0x84, 64)
    st_link.printed.append(b"later")
    assert peer.wait_for(number).data == b"later"
    assert peer.put(0x02, b"hello") == SUCCESS
    assert st_link.typed == b"hello"


def test_com_port_settings_are_read_back(peer: Peer) -> None:
    coding = struct.pack("<IBBB", 921600, 0, 0, 8)
    assert peer.control(0x21, 0x20, 0, 1, data=coding).fields[3] == SUCCESS
    assert peer.control(0xA1, 0x21, 0, 1, 7).data == coding
    assert peer.control(0x21, 0x22, 3, 1).fields[3] == SUCCESS
    assert peer.control(0x21, 0x20, 0, 1, data=b"short").fields[3] == STALL


# Unplug and replug


def test_reconnection_is_a_replug(st_link: Plug) -> None:
    with Peer(st_link.connect()) as first:
        command(first, *struct.pack("<BBIH", 0xF2, 0x08, RAM, 64))  # without its data
        st_link.printed.append(b"one ")
        assert first.get(0x84, 64) == b"one "
    st_link.printed.append(b"two")
    with Peer(st_link.connect()) as second:
        command(second, 0xF1)
        assert len(second.get(0x81, 64)) == 6
        assert second.get(0x84, 64) == b"two"


def test_probe_unplugs_itself(st_link: Plug) -> None:
    with Peer(st_link.connect()) as peer:
        st_link.server.unplug()
        with pytest.raises(AssertionError, match="the device is gone"):
            peer.wait(lambda: False)
    with Peer(st_link.connect()) as again:
        command(again, 0xF1)
        assert len(again.get(0x81, 64)) == 6


@pytest.mark.slow
def test_second_guest_is_refused(st_link: Plug, peer: Peer) -> None:
    with st_link.connect() as second:
        assert second.recv(100) == b""
    command(peer, 0xF1)
    assert len(peer.get(0x81, 64)) == 6


def test_guest_of_few_capabilities_is_served(st_link: Plug) -> None:
    with Peer(st_link.connect(), capabilities=(1, 4)) as peer:
        assert len(peer.descriptor(DEVICE) or b"") == 18
        command(peer, 0xF1)
        assert len(peer.get(0x81, 64)) == 6


def test_listening_socket_is_not_taken_over(plug: Callable[[str], Plug]) -> None:
    first = plug("st-link")
    with pytest.raises(OSError, match="another process listens there"):
        Plug("st-link", first.path)
    first.close()
    assert not first.path.exists()
