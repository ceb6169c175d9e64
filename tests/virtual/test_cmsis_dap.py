# SPDX-License-Identifier: Apache-2.0
"""CMSIS-DAP's commands, as in Arm's documentation, on a fake board."""

import struct

import pytest
from fake_board import DHCSR, RAM, FakeBoard
from hypothesis import given
from hypothesis import strategies as st

from utvm.virtual.cmsis_dap import PACKET_BYTES, CmsisDap

OK, FAULT, MISMATCH = 1, 4, 0x11
DP, AP, READ, MATCH, MASK = 0, 1, 2, 0x10, 0x20
CSW, TAR, DRW, IDR = 0x0, 0x4, 0xC, 0xC
POWER_UP = 0x50000000


class Host:
    """A host with a connected, powered debug port."""

    def __init__(self) -> None:
        self.board = FakeBoard()
        self.probe = CmsisDap(self.board, serial="ME")
        assert self.probe.execute(b"\x02\x01") == b"\x02\x01"
        assert self.transfer((DP | 0x4, POWER_UP), (DP | 0x8, 0), (AP | CSW, 0x23000052)) == (3, OK, [])

    def transfer(self, *requests: tuple[int, int] | int) -> tuple[int, int, list[int]]:
        """Transfer; a request with a value is a pair."""
        pairs = [request if isinstance(request, tuple) else (request, None) for request in requests]
        parts = [bytes([code]) + (b"" if value is None else struct.pack("<I", value)) for code, value in pairs]
        reply = self.probe.execute(bytes([0x05, 0, len(requests)]) + b"".join(parts))
        assert reply[0] == 0x05
        return reply[1], reply[2], [value for (value,) in struct.iter_unpack("<I", reply[3:])]


@pytest.fixture
def host() -> Host:
    return Host()


def test_info_describes_the_probe(host: Host) -> None:
    def info(number: int) -> bytes:
        reply = host.probe.execute(bytes([0, number]))
        assert reply[:2] == bytes([0, len(reply) - 2])
        return reply[2:]

    assert info(3) == b"ME\0"
    assert info(4) == b"2.1.0\0"
    assert info(0xF0) == b"\x01"  # SWD only
    assert struct.unpack("<H", info(0xFF)) == (PACKET_BYTES,)
    assert info(0xFE)[0] >= 1
    assert info(0x77) == b""


def test_only_swd_is_wired(host: Host) -> None:
    assert host.probe.execute(b"\x02\x02") == b"\x02\x00"
    assert host.transfer(DP | READ) == (0, 0, [])  # not connected: no acknowledgement
    assert host.probe.execute(b"\x02\x00") == b"\x02\x01"
    assert host.transfer(DP | READ) == (1, OK, [0x5BA02477])


def test_unpowered_board_does_not_acknowledge(host: Host) -> None:
    host.board.volts = 0.2
    assert host.transfer(DP | READ) == (0, 0, [])
    assert host.probe.execute(struct.pack("<BBHB", 0x06, 0, 1, AP | READ | DRW))[1:4] == bytes(3)


def test_memory_is_accessed_through_the_access_port(host: Host) -> None:
    host.transfer((AP | TAR, RAM), (AP | DRW, 0x11223344), (AP | DRW, 0x55667788))
    assert host.board.ram[:8] == struct.pack("<II", 0x11223344, 0x55667788)
    # The reply is the requested register: the probe handles posted reads.
    assert host.transfer((AP | TAR, RAM), AP | READ | DRW, AP | READ | DRW, AP | READ | TAR) == (
        4,
        OK,
        [0x11223344, 0x55667788, RAM + 8],
    )


def test_blocks_are_written_and_read(host: Host) -> None:
    words = list(range(100, 200))
    host.transfer((AP | TAR, RAM))
    block = host.probe.execute(struct.pack("<BBHB100I", 0x06, 0, 100, AP | DRW, *words))
    assert block == struct.pack("<BHB", 0x06, 100, OK)
    host.transfer((AP | TAR, RAM))
    reply = host.probe.execute(struct.pack("<BBHB", 0x06, 0, 100, AP | READ | DRW))
    assert reply == struct.pack("<BHB100I", 0x06, 100, OK, *words)


def test_bus_error_is_a_fault_until_cleared(host: Host) -> None:
    assert host.transfer((AP | TAR, 0x40000000), AP | READ | DRW, AP | READ | IDR) == (1, FAULT, [])
    assert host.transfer(AP | READ | TAR) == (0, FAULT, [])
    assert host.transfer((DP | 0x8, 0)) == (0, FAULT, [])  # SELECT waits, too
    count, ack, (status,) = host.transfer(DP | READ | 0x4)
    assert (count, ack, status & 1 << 5) == (1, OK, 1 << 5)
    assert host.probe.execute(struct.pack("<BBI", 0x08, 0, 1 << 2)) == b"\x08\x00"
    assert host.transfer((AP | TAR, RAM), AP | READ | DRW) == (2, OK, [0])


def test_failure_of_the_last_write_is_reported(host: Host) -> None:
    assert host.transfer((AP | TAR, 0x40000000), (AP | DRW, 1)) == (2, FAULT, [])


def test_read_is_repeated_until_a_match(host: Host) -> None:
    host.probe.execute(struct.pack("<BBHH", 0x04, 0, 64, 2))
    ready = (AP | READ | DRW | MATCH, 1 << 16)
    select = [(AP | CSW, 0x23000042), (AP | TAR, DHCSR)]  # no increment
    assert host.transfer(*select, (MASK, 1 << 16), ready) == (4, OK, [])
    before = len(host.board.accesses)
    assert host.transfer(*select, (MASK, 1 << 17), (AP | READ | DRW | MATCH, 1 << 17)) == (3, MISMATCH, [])
    assert len(host.board.accesses) - before == 3  # once, and two retries


def test_reset_pin(host: Host) -> None:
    pins = struct.Struct("<BBBI")
    assert host.probe.execute(pins.pack(0x10, 0, 0x80, 0))[1] & 0x80 == 0
    assert host.board.reset_held
    assert host.probe.execute(pins.pack(0x10, 0xFF, 0x00, 0))[1] & 0x80 == 0  # not selected: does not change
    assert host.probe.execute(pins.pack(0x10, 0x80, 0x80, 0))[1] & 0x80
    assert (host.board.reset_held, host.board.resets) == (False, 1)


def test_power_on_releases_the_reset_pin(host: Host) -> None:
    host.probe.execute(struct.pack("<BBBI", 0x10, 0, 0x80, 0))
    host.probe.power_on()
    assert not host.board.reset_held


def test_sequences_and_settings_are_accepted(host: Host) -> None:
    for command in (b"\x12\x33" + bytes(7), b"\x11\x00\x00\x10\x00", b"\x13\x00", b"\x09\x01\x00", b"\x01\x00\x01"):
        assert host.probe.execute(command) == bytes([command[0], 0])
    assert (
        host.probe.execute(b"\x1d\x02\x08\xe3\x8a") == b"\x1d\x00\xff\xff"
    )  # 8 bits out, 10 in: the line is not driven
    assert host.probe.execute(b"\x07") == b""


@pytest.mark.parametrize("command", [b"\x05\x00", b"\x05\x00\x02\x00\x01", b"\x06\x00\xff", b"\x12\x40\x00", b"\x11"])
def test_truncated_command_is_an_error(host: Host, command: bytes) -> None:
    assert host.probe.execute(command) == bytes([command[0], 0xFF])


def test_too_long_reply_is_an_error(host: Host) -> None:
    assert host.probe.execute(bytes([0x05, 0, 200, *[DP | READ] * 200])) == b"\x05\xff"
    assert host.probe.execute(struct.pack("<BBHB", 0x06, 0, 128, AP | READ | DRW)) == b"\x06\xff"


def test_unknown_command_is_refused(host: Host) -> None:
    assert host.probe.execute(b"\x99") == b"\xff"


def test_lost_target_is_a_fault(host: Host) -> None:
    host.probe.lose_target()
    assert host.transfer(AP | READ | IDR) == (0, FAULT, [])


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=64),
            st.builds(
                lambda c, b: bytes([c]) + b, st.sampled_from([0, 2, 5, 6, 8, 0x10, 0x12, 0x1D]), st.binary(max_size=40)
            ),
        )
    )
)
def test_random_commands_have_valid_replies(commands: list[bytes]) -> None:
    probe = CmsisDap(FakeBoard(), serial="ME")
    probe.execute(b"\x02\x01")
    for command in commands:
        assert len(probe.execute(command)) <= PACKET_BYTES
