# SPDX-License-Identifier: Apache-2.0
"""The ST-Link's commands, as OpenOCD's driver sends them, on a fake board."""

import struct

import pytest
from fake_board import RAM, FakeBoard
from hypothesis import given
from hypothesis import strategies as st

from utvm.virtual.stlink import StLink

OK = 0x80
SWD_AP_FAULT = 0x11
DP = 0xFFFF


class Host:
    """Sends commands and unpacks replies, as a host does."""

    def __init__(self) -> None:
        self.board = FakeBoard()
        self.probe = StLink(self.board)
        self.send(0xF2, 0x30, 0xA3, reply=2)

    def send(self, *command: int, data: bytes = b"", reply: int = 0) -> bytes:
        return self.probe.execute(bytes(command).ljust(16, b"\0"), data, reply)

    def block(self, order: int, address: int, size: int, data: bytes = b"", access_port: int = 0) -> bytes:
        command = struct.pack("<BBIHB", 0xF2, order, address, size, access_port).ljust(16, b"\0")
        return self.probe.execute(command, data, 0 if data else size)

    def status(self) -> tuple[int, int]:
        status, address = struct.unpack_from("<BxxxI", self.send(0xF2, 0x3E, reply=12))
        return status, address

    def dap(self, port: int, register: int) -> tuple[int, int]:
        reply = self.send(*struct.pack("<BBHH", 0xF2, 0x45, port, register), reply=8)
        return reply[0], struct.unpack_from("<I", reply, 4)[0]


@pytest.fixture
def host() -> Host:
    return Host()


def test_version_is_v2_1(host: Host) -> None:
    version, vendor, product = struct.unpack(">H", host.send(0xF1, reply=6)[:2]) + struct.unpack(
        "<HH", host.send(0xF1, reply=6)[2:]
    )
    assert (version >> 12, version >> 6 & 0x3F, version & 0x3F) == (2, 40, 27)
    assert (vendor, product) == (0x0483, 0x374B)


def test_target_voltage_is_3v3(host: Host) -> None:
    reference, target = struct.unpack("<II", host.send(0xF7, reply=8))
    assert 2 * target * 1.2 / reference == pytest.approx(3.3, abs=0.01)


def test_mode_is_reported(host: Host) -> None:
    assert host.send(0xF5, reply=2)[0] == 2
    host.send(0xF2, 0x21)
    assert host.send(0xF5, reply=2)[0] == 1


def test_jtag_is_not_wired(host: Host) -> None:
    assert host.send(0xF2, 0x30, 0xA4, reply=2)[0] not in (OK, 0)


@pytest.mark.parametrize(("write", "read", "size"), [(0x08, 0x07, 6144), (0x48, 0x47, 6144), (0x0D, 0x0C, 64)])
def test_blocks_up_to_the_limit_are_transferred(host: Host, write: int, read: int, size: int) -> None:
    data = bytes(i * 7 & 0xFF for i in range(size))
    host.block(write, RAM, size, data)
    assert host.status()[0] == OK
    assert host.block(read, RAM, size) == data


@pytest.mark.parametrize(("write", "size"), [(0x08, 6148), (0x48, 6146), (0x0D, 65)])
def test_blocks_beyond_the_limit_are_refused(host: Host, write: int, size: int) -> None:
    host.block(write, RAM, size, b"\xff" * size)
    assert host.status()[0] != OK
    assert not any(host.board.ram)


@pytest.mark.parametrize(
    ("order", "address", "size"), [(0x08, RAM + 2, 4), (0x08, RAM, 6), (0x48, RAM + 1, 2), (0x08, RAM, 8)]
)
def test_blocks_of_another_size_are_refused(host: Host, order: int, address: int, size: int) -> None:
    host.block(order, address, size, b"\xff" * (size if size != 8 else 4))
    assert host.status()[0] != OK
    assert not any(host.board.ram)


@pytest.mark.parametrize(("order", "width"), [(0x08, 4), (0x48, 2), (0x0D, 1)])
def test_blocks_use_accesses_of_their_width(host: Host, order: int, width: int) -> None:
    host.board.accesses.clear()
    host.block(order, RAM, 8, bytes(8))
    sizes = {size for _, _, size in host.board.accesses}
    assert sizes == ({8} if width == 4 else {width})  # the memory splits blocks of words


def test_fault_is_reported_once_with_its_address(host: Host) -> None:
    host.block(0x07, 0x60000000, 4)
    assert host.status() == (SWD_AP_FAULT, 0x60000000)
    host.block(0x08, RAM, 4, b"abcd")
    assert host.status()[0] == OK
    assert bytes(host.board.ram[:4]) == b"abcd"


def test_words_without_increment_stay_at_one_address(host: Host) -> None:
    host.block(0x50, RAM, 8, b"abcdefgh")
    assert bytes(host.board.ram[:8]) == b"efgh\0\0\0\0"
    assert host.block(0x54, RAM, 8) == b"efghefgh"


def test_missing_access_port_is_refused(host: Host) -> None:
    assert host.send(0xF2, 0x4B, 1, reply=2)[0] == 0x1D
    host.block(0x08, RAM, 4, b"abcd", access_port=1)
    assert host.status()[0] == 0x1D
    assert not any(host.board.ram)


def test_debug_port_registers(host: Host) -> None:
    assert host.dap(DP, 0x00) == (OK, 0x5BA02477)
    assert host.dap(DP, 0x04) == (OK, 0xF0000000)
    assert host.dap(DP, 0x34)[1] & 0xF == 1  # bank 3: DLPIDR
    assert host.dap(0, 0xFC) == (OK, 0x74770001)


def test_sticky_error_stays_until_cleared(host: Host) -> None:
    def write(port: int, register: int, value: int) -> int:
        return host.send(*struct.pack("<BBHHI", 0xF2, 0x46, port, register, value), reply=2)[0]

    assert write(0, 0x00, 0x12) == OK
    assert write(0, 0x04, 0x60000000) == OK
    assert write(0, 0x0C, 1) != OK
    assert host.dap(DP, 0x04)[1] & 0x20
    host.block(0x08, RAM, 4, b"abcd")
    assert host.status()[0] == 0x19
    assert not any(host.board.ram)
    assert write(DP, 0x00, 4) == OK
    assert host.dap(DP, 0x04)[1] == 0xF0000000


def test_core_registers(host: Host) -> None:
    assert host.send(0xF2, 0x33, 15, reply=8) == struct.pack("<BxxxI", OK, 0x100F)
    assert host.send(*struct.pack("<BBBI", 0xF2, 0x34, 3, 0xCAFE), reply=2)[0] == OK
    assert host.board.registers[3] == 0xCAFE
    everything = host.send(0xF2, 0x3A, reply=88)
    assert struct.unpack_from("<21I", everything, 4)[:4] == (0x1000, 0x1001, 0x1002, 0xCAFE)


def test_mixed_accesses(host: Host) -> None:
    orders = bytes([5, 1, 2, 3]) + b""
    values = struct.pack("<4I", 0, RAM + 8, 0x12345678, RAM + 8)
    host.send(*struct.pack("<BBI", 0xF2, 0x51, 4), data=orders + values)
    reply = struct.unpack("<8I", host.send(0xF2, 0x52, reply=32))
    assert reply == (0, 0, 0, 0x12345678, OK, OK, OK, OK)


def test_mixed_accesses_report_the_failed_one(host: Host) -> None:
    host.send(*struct.pack("<BBI", 0xF2, 0x51, 2), data=bytes([3, 3, 0, 0]) + struct.pack("<2I", RAM, 0x60000000))
    assert struct.unpack("<4I", host.send(0xF2, 0x52, reply=16)) == (0, 0, OK, SWD_AP_FAULT)


def test_too_many_mixed_accesses_are_refused(host: Host) -> None:
    items = 65
    host.send(*struct.pack("<BBI", 0xF2, 0x51, items), data=b"\x03" * 68 + struct.pack("<I", RAM) * items)
    assert OK not in struct.unpack("<130I", host.send(0xF2, 0x52, reply=520))


def test_debug_port_waits_for_power_up_after_a_power_cycle(host: Host) -> None:
    host.block(0x07, RAM, 4)
    assert host.status()[0] == OK
    host.probe.lose_target()
    host.block(0x07, RAM, 4)
    assert host.status()[0] != OK
    assert host.dap(DP, 4) == (OK, 0)
    host.send(0xF2, 0x30, 0xA3, reply=2)
    host.block(0x07, RAM, 4)
    assert host.status()[0] == OK


def test_reset_pin(host: Host) -> None:
    host.send(0xF2, 0x3C, 0, reply=2)
    assert host.board.reset_held
    host.send(0xF2, 0x3C, 1, reply=2)
    assert (host.board.reset_held, host.board.resets) == (False, 1)
    host.send(0xF2, 0x3C, 2, reply=2)
    assert (host.board.reset_held, host.board.resets) == (False, 2)


def test_unknown_command_is_logged_and_refused(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    reply = host.send(0xF2, 0x99, reply=2)
    assert len(reply) == 2
    assert reply[0] not in (OK, 0)
    assert "f299" in caplog.text


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=80), st.integers(0, 600))
def test_random_command_does_not_stop_the_probe(command: bytes, data: bytes, reply_size: int) -> None:
    host = Host()
    for group in (command[:1], b"\xf2"):
        assert len(host.probe.execute(group + command[1:], data, reply_size)) == reply_size
    assert host.send(0xF2, 0x31, reply=12)[0] == OK


@pytest.mark.nightly
@given(st.lists(st.tuples(st.integers(0, 0x60), st.binary(min_size=14, max_size=14), st.binary(max_size=400))))
def test_random_commands_do_not_stop_the_probe(commands: list[tuple[int, bytes, bytes]]) -> None:
    host = Host()
    for order, rest, data in commands:
        assert len(host.probe.execute(bytes([0xF2, order]) + rest, data, 64)) == 64
    assert host.send(0xF2, 0x31, reply=12)[0] == OK


@pytest.mark.parametrize("volts", [0.0, 0.4, 1.8, 5.0])
def test_target_voltage_equals_the_board(volts: float) -> None:
    reference, target = struct.unpack("<II", StLink(FakeBoard(volts)).execute(b"\xf7".ljust(16, b"\0"), b"", 8))
    assert 2 * target * 1.2 / reference == pytest.approx(volts, abs=0.01)


@pytest.mark.slow
def test_unpowered_board_does_not_reply() -> None:
    probe = StLink(FakeBoard(volts=0.2))
    assert probe.execute(b"\xf2\x30\xa3".ljust(16, b"\0"), b"", 2)[0] == 0x09  # the status for a missing core
    assert probe.execute(b"\xf5".ljust(16, b"\0"), b"", 2)[0] == 1  # no debug mode
