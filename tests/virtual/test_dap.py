# SPDX-License-Identifier: Apache-2.0
"""The debug port and its access port against ADIv5 (ARM IHI 0031)."""

import struct

import pytest
from fake_board import IDS, RAM, RAM_SIZE, FakeBoard
from hypothesis import given
from hypothesis import strategies as st

from utvm.virtual.dap import (
    AP_BASE,
    AP_BD0,
    AP_CSW,
    AP_DRW,
    AP_IDR,
    AP_TAR,
    DP_ABORT,
    DP_CTRL_STAT,
    DP_DPIDR,
    DP_RDBUFF,
    DP_SELECT,
    JTAG_APACC,
    JTAG_DPACC,
    JtagDebugPort,
    MemoryAccessPort,
    SwDebugPort,
)

POWER_REQUESTS = 0x50000000
POWERED = 0xF0000000
STICKYERR = 0x20
WORDS_INCREMENT = 0x12
BYTES_INCREMENT = 0x10
WORDS_FIXED = 0x02


@pytest.fixture
def memory() -> FakeBoard:
    return FakeBoard()


@pytest.fixture
def port(memory: FakeBoard) -> SwDebugPort:
    port = SwDebugPort(memory, IDS)
    port.write(DP_CTRL_STAT, POWER_REQUESTS)
    return port


def set_ap(port: SwDebugPort, register: int, value: int) -> None:
    port.write(DP_SELECT, register & 0xF0)
    port.write_ap(register & 0xC, value)


def get_ap(port: SwDebugPort, register: int, access_port: int = 0) -> int:
    port.write(DP_SELECT, access_port << 24 | register & 0xF0)
    port.read_ap(register & 0xC)
    return port.read(DP_RDBUFF)


def test_identification_registers() -> None:
    port = SwDebugPort(FakeBoard(), IDS)
    assert port.read(DP_DPIDR) == 0x5BA02477
    port.write(DP_CTRL_STAT, POWER_REQUESTS)
    assert get_ap(port, AP_IDR) == 0x74770001
    assert get_ap(port, AP_BASE) & 3 == 3  # a debug component is present, format of ADIv5


def test_power_up_is_required_and_acknowledged(memory: FakeBoard) -> None:
    port = SwDebugPort(memory, IDS)
    assert port.read(DP_CTRL_STAT) == 0
    set_ap(port, AP_TAR, RAM)
    assert port.read(DP_CTRL_STAT) & STICKYERR
    port.write(DP_ABORT, 1 << 2)
    port.write(DP_CTRL_STAT, POWER_REQUESTS)
    assert port.read(DP_CTRL_STAT) == POWERED


def test_banked_registers(port: SwDebugPort) -> None:
    def banked(bank: int) -> int:
        port.write(DP_SELECT, bank)
        return port.read(DP_CTRL_STAT)

    assert banked(0) == POWERED
    assert banked(2) & 1  # TARGETID: bit 0 is one
    assert banked(3) & 0xF == 1  # DLPIDR: SWD protocol version 2
    port.write(DP_CTRL_STAT, 0)  # this bank cannot be written, and CTRL/STAT is not in it
    assert banked(0) == POWERED


def test_missing_access_port_reads_as_zero(port: SwDebugPort) -> None:
    assert get_ap(port, AP_IDR, access_port=1) == 0
    assert not port.failed


def test_reads_are_posted(port: SwDebugPort, memory: FakeBoard) -> None:
    memory.ram[0:8] = struct.pack("<II", 0x11111111, 0x22222222)
    set_ap(port, AP_CSW, WORDS_INCREMENT)
    set_ap(port, AP_TAR, RAM)
    port.read_ap(AP_DRW)
    assert port.read_ap(AP_DRW) == 0x11111111
    assert port.read(DP_RDBUFF) == 0x22222222


def test_bytes_are_in_their_lanes(port: SwDebugPort, memory: FakeBoard) -> None:
    set_ap(port, AP_CSW, BYTES_INCREMENT)
    set_ap(port, AP_TAR, RAM + 1)
    port.write_ap(AP_DRW, 0xAABBCCDD)
    port.write_ap(AP_DRW, 0xAABBCCDD)
    assert bytes(memory.ram[:4]) == b"\x00\xcc\xbb\x00"
    set_ap(port, AP_TAR, RAM + 2)
    assert get_ap(port, AP_DRW) == 0x00BB0000


def test_increment_wraps_within_1_kib(port: SwDebugPort, memory: FakeBoard) -> None:
    set_ap(port, AP_CSW, WORDS_INCREMENT)
    set_ap(port, AP_TAR, RAM + 0x3FC)
    port.write_ap(AP_DRW, 1)
    port.write_ap(AP_DRW, 2)
    assert get_ap(port, AP_TAR) == RAM + 4
    assert memory.ram[0x3FC] == 1
    assert memory.ram[0] == 2


def test_address_stays_without_increment(port: SwDebugPort, memory: FakeBoard) -> None:
    set_ap(port, AP_CSW, WORDS_FIXED)
    set_ap(port, AP_TAR, RAM)
    port.write_ap(AP_DRW, 1)
    port.write_ap(AP_DRW, 2)
    assert bytes(memory.ram[:8]) == struct.pack("<II", 2, 0)


def test_banked_data_registers_access_four_words(port: SwDebugPort, memory: FakeBoard) -> None:
    set_ap(port, AP_CSW, WORDS_INCREMENT)
    set_ap(port, AP_TAR, RAM + 0x14)
    for index in range(4):
        set_ap(port, AP_BD0 + 4 * index, index + 1)
    assert bytes(memory.ram[0x10:0x20]) == struct.pack("<4I", 1, 2, 3, 4)
    assert get_ap(port, AP_TAR) == RAM + 0x14


def test_unsupported_csw_values_read_back_as_words(port: SwDebugPort) -> None:
    set_ap(port, AP_CSW, 0x23)  # 64 bits, packed
    assert get_ap(port, AP_CSW) & 0x37 == 0x02


def test_bus_error_is_sticky_until_abort(port: SwDebugPort, memory: FakeBoard) -> None:
    set_ap(port, AP_CSW, WORDS_INCREMENT)
    set_ap(port, AP_TAR, 0x60000000)
    port.write_ap(AP_DRW, 1)
    assert port.read(DP_CTRL_STAT) == POWERED | STICKYERR
    set_ap(port, AP_TAR, RAM)
    port.write_ap(AP_DRW, 0x55)
    assert not any(memory.ram)
    port.write(DP_ABORT, 1 << 2)
    assert port.read(DP_CTRL_STAT) == POWERED
    set_ap(port, AP_TAR, RAM)
    port.write_ap(AP_DRW, 0x55)
    assert memory.ram[0] == 0x55


def test_unaligned_access_is_a_bus_error(port: SwDebugPort) -> None:
    set_ap(port, AP_CSW, WORDS_INCREMENT)
    set_ap(port, AP_TAR, RAM + 2)
    port.read_ap(AP_DRW)
    assert port.failed


@given(st.integers(0, 2), st.integers(0, RAM_SIZE - 0x410), st.binary(min_size=4, max_size=64))
def test_blocks_equal_single_accesses(size_log: int, offset: int, data: bytes) -> None:
    width = 1 << size_log
    address = RAM + offset // 0x400 * 0x400
    data = data[: len(data) // width * width]
    single, block = FakeBoard(), FakeBoard()
    port = SwDebugPort(single, IDS)
    port.write(DP_CTRL_STAT, POWER_REQUESTS)
    set_ap(port, AP_CSW, 0x10 | size_log)
    set_ap(port, AP_TAR, address)
    for offset_in_data in range(0, len(data), width):
        lane = 8 * (address + offset_in_data & 3)
        port.write_ap(AP_DRW, int.from_bytes(data[offset_in_data : offset_in_data + width], "little") << lane)
    SwDebugPort(block, IDS).ap.write_block(address, data, width)
    assert single.ram == block.ram
    assert SwDebugPort(block, IDS).ap.read_block(address, len(data), width) == data


def test_jtag_scan_returns_the_previous_result(memory: FakeBoard) -> None:
    """IHI 0031, B3.2: 32 bits of data, two address bits, one bit for a read; the reply ends with OK."""
    other = FakeBoard()
    other.ram[0:4] = struct.pack("<I", 0x55667788)
    ports = [
        MemoryAccessPort(fake_board, identification=0x44770001 + n, base=0)
        for n, fake_board in enumerate((memory, other))
    ]
    port = JtagDebugPort(dict(enumerate(ports)))

    def scan(instruction: int, register: int, value: int | None = None) -> int:
        before = port.capture(instruction)
        port.update(instruction, (value or 0) << 3 | register >> 1 & 6 | (value is None))
        assert before & 7 == 2
        return before >> 3

    scan(JTAG_DPACC, DP_CTRL_STAT, POWER_REQUESTS)
    scan(JTAG_DPACC, DP_CTRL_STAT)
    assert scan(JTAG_DPACC, DP_SELECT, 1 << 24) == POWERED
    scan(JTAG_APACC, AP_CSW, WORDS_INCREMENT)
    scan(JTAG_APACC, AP_TAR, RAM)
    scan(JTAG_APACC, AP_DRW)
    assert scan(JTAG_DPACC, DP_RDBUFF) == 0x55667788
    assert scan(JTAG_DPACC, DP_RDBUFF) == 0
    # An error is sticky, and accesses are ignored, until a one is written to it.
    scan(JTAG_APACC, AP_TAR, 0x70000000)
    scan(JTAG_APACC, AP_DRW)
    scan(JTAG_APACC, AP_TAR, RAM)
    scan(JTAG_DPACC, DP_CTRL_STAT)
    assert scan(JTAG_DPACC, DP_CTRL_STAT, POWER_REQUESTS | STICKYERR) == POWERED | STICKYERR
    scan(JTAG_APACC, AP_TAR)
    assert scan(JTAG_DPACC, DP_CTRL_STAT) == 0x70000000
    assert scan(JTAG_DPACC, DP_RDBUFF) == POWERED
