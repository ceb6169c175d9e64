# SPDX-License-Identifier: Apache-2.0
"""Flash controller, UARTE and identification of nRF52 and nRF53.

Registers: nRF52840 Product Specification 1.7, 4.3 and 6.34; nRF5340 Product Specification 1.3, NVMC and UARTE.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.virtual.target import XPSR, Target
from utvm import boards
from utvm.virtual.bus import BusError
from utvm.virtual.dap import SwDebugPort
from utvm.virtual.machine import BoardModel

PENDING = 0xE000E200
WRITE, ERASE = 1, 2
MEGABAUD, RAM, BUFFER, FULL = 0x10000000, 0x20002000, 0x20002100, 0x20002200


@dataclass(frozen=True)
class Chip:
    board: str
    nvmc: int
    uarte: int
    line: int

    @property
    def ready(self) -> int:
        return self.nvmc + 0x400

    @property
    def config(self) -> int:
        return self.nvmc + 0x504


CHIPS = [Chip("nrf52840dk", 0x4001E000, 0x40002000, 2), Chip("nrf5340dk", 0x50039000, 0x50008000, 8)]


@pytest.fixture(params=CHIPS, ids=lambda chip: chip.board)
def chip(request: pytest.FixtureRequest) -> Chip:
    parameter: Chip = request.param
    return parameter


@pytest.fixture
def target(chip: Chip, tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path, chip.board) as target:
        yield target


def _erase(target: Target, chip: Chip, page: int) -> None:
    """Erase a page, by the chip's method."""
    target.poke(chip.config, ERASE)
    if chip.board == "nrf52840dk":
        target.poke(chip.nvmc + 0x508, page)
    else:
        target.poke(page, 0xFFFFFFFF)


def test_factory_information_is_that_of_the_nrf52840(tmp_path: Path) -> None:
    with Target(tmp_path, "nrf52840dk") as target:
        words = [target.peek(0x10000000 + offset) for offset in (0x10, 0x14, 0x100, 0x10C, 0x110)]
    assert words == [4096, 256, 0x52840, 256, 1024]


def test_factory_information_is_that_of_the_nrf5340(tmp_path: Path) -> None:
    with Target(tmp_path, "nrf5340dk") as target:
        words = [target.peek(0x00FF0200 + offset) for offset in (0xC, 0x10, 0x18, 0x1C, 0x20, 0x24)]
    assert words == [0x5340, 0x514B4141, 512, 1024, 4096, 256]


@pytest.mark.parametrize(
    ("address", "value"),
    [
        (0xE000ED00, 0x410FD214),  # CPUID: Cortex-M33 r0p4
        (0xE000ED44, 0x00000210),  # ID_PFR1: the Security Extension (DDI 0553B, D1.2)
        (0xE000EE08, 0x00010000),  # DSCSR: in Secure state
        (0xE000EFB8, 0x000000FF),  # DAUTHSTATUS: both states may be debugged
        (0x00FF8000, 0x50FA50FA),  # UICR.APPROTECT, unprotected
        (0x00FF801C, 0x50FA50FA),  # UICR.SECUREAPPROTECT
    ],
)
def test_nrf5340_is_secure_and_unprotected(tmp_path: Path, address: int, value: int) -> None:
    with Target(tmp_path, "nrf5340dk") as target:
        assert target.peek(address) == value
        assert target.peek(0xE000EDF0) >> 20 & 1  # DHCSR.S_SDE


def test_nrf5340_has_four_access_ports(tmp_path: Path) -> None:
    with Target(tmp_path, "nrf5340dk") as target:
        port = SwDebugPort(target.machine, target.machine.port_ids)
        port.write(0x4, 1 << 28 | 1 << 30)
        values = []
        for number in range(5):
            for register in (0xFC, 0x0C):
                port.write(0x8, number << 24 | register & 0xF0)
                if number > 1 or register == 0xFC:
                    port.read_ap(register & 0xF)
                    values.append(port.read(0xC))
    assert port.read(0x0) == 0x6BA02477
    assert values == [0x84770001, 0x84770001, 0x12880000, 3, 0x12880000, 3, 0, 0]


def test_secure_registers_have_own_selectors(tmp_path: Path) -> None:
    with Target(tmp_path, "nrf5340dk") as target:
        target.halt()
        target.poke(RAM, 0x880AF380)  # msr msplim, r0
        target.set_register(XPSR, 1 << 24)
        target.set_register(0, 0x20000100)
        target.set_register(13, 0x20001000)
        target.set_register(15, RAM)
        target.step()
        assert [target.register(number) for number in (0x1A, 17, 0x1C, 0x1D)] == [0x20001000, 0x20001000, 0x20000100, 0]
        target.set_register(0x1A, 0x20000800)
        assert target.register(13) == 0x20000800


def test_flash_writes_are_enabled_and_only_clear_bits(target: Target, chip: Chip) -> None:
    with pytest.raises(BusError):
        target.poke(0x2000, 0)
    target.poke(chip.config, WRITE)
    with pytest.raises(BusError):
        target.machine.write(0x2000, b"\0\0")
    target.poke(0x2000, 0x0FF0FFFF)
    assert (target.peek(chip.ready), target.peek(chip.ready)) == (0, 1)
    target.poke(0x2000, 0x12345678)
    assert target.peek(0x2000) == 0x0FF0FFFF & 0x12345678
    assert target.peek(0x2004) == 0xFFFFFFFF


def test_page_is_erased_when_enabled(target: Target, chip: Chip) -> None:
    target.poke(chip.config, WRITE)
    for address in (0x1FFC, 0x2000, 0x2FFC, 0x3000):
        target.poke(address, 0)
    _erase(target, chip, 0x2004)  # no page starts there
    assert target.peek(0x2000) == 0
    _erase(target, chip, 0x2000)
    assert [target.peek(a) for a in (0x1FFC, 0x2000, 0x2FFC, 0x3000)] == [0, 0xFFFFFFFF, 0xFFFFFFFF, 0]
    target.poke(chip.nvmc + 0x50C, 1)
    assert [target.peek(a) for a in (0x1FFC, 0x3000)] == [0xFFFFFFFF] * 2


def test_writing_does_not_erase(target: Target, chip: Chip) -> None:
    target.poke(chip.config, WRITE)
    target.poke(0x2000, 0)
    target.poke(0x2000, 0xFFFFFFFF)
    target.poke(chip.nvmc + 0x508, 0x2000)
    assert target.peek(0x2000) == 0


def test_nrf53_has_no_page_erase_register(tmp_path: Path) -> None:
    chip = CHIPS[1]
    with Target(tmp_path, chip.board) as target:
        target.poke(chip.config, WRITE)
        target.poke(0x2000, 0)
        target.poke(chip.config, ERASE)
        target.poke(chip.nvmc + 0x508, 0x2000)
        assert target.peek(0x2000) == 0


class Line(Target):
    """A UARTE, accessed by register offsets."""

    def __init__(self, directory: Path, chip: Chip) -> None:
        super().__init__(directory, chip.board)
        self.base, self.line = chip.uarte, chip.line

    def put(self, offset: int, value: int) -> None:
        self.poke(self.base + offset, value)

    def get(self, offset: int) -> int:
        return self.peek(self.base + offset)

    def buffer(self, register: int, address: int, size: int) -> None:
        self.put(register, address)
        self.put(register + 4, size)

    def memory(self, size: int, address: int = BUFFER) -> bytes:
        return self.machine.read(address, -(-size // 4) * 4)[:size]


START_RX, STOP_RX, START_TX, RX_BUFFER, TX_BUFFER, AMOUNT = 0x0, 0x4, 0x8, 0x534, 0x544, 8
END_RX, END_TX, ERROR, TIMEOUT, RX_STARTED = 0x110, 0x120, 0x124, 0x144, 0x14C


@pytest.fixture
def uarte(chip: Chip, tmp_path: Path) -> Iterator[Line]:
    with Line(tmp_path, chip) as line:
        line.halt()
        line.poke(RAM, 0xE7FEE7FE)  # b .
        line.set_register(XPSR, 1 << 24)
        line.set_register(15, RAM)
        line.resume()
        line.put(0x524, MEGABAUD)
        line.machine.write(BUFFER, b"abc\0")
        line.buffer(TX_BUFFER, BUFFER, 3)
        line.put(START_TX, 1)  # ignored: not enabled
        line.put(0x500, 8)
        yield line


def test_buffer_is_sent_and_interrupts_at_its_end(uarte: Line) -> None:
    assert not uarte.output
    uarte.put(START_TX, 1)
    uarte.wait_until(lambda: uarte.get(END_TX))
    assert bytes(uarte.output) == b"abc"
    assert uarte.get(TX_BUFFER + AMOUNT) == 3
    assert not uarte.peek(PENDING)
    uarte.put(0x304, 1 << 8)
    assert uarte.peek(PENDING) & 1 << uarte.line


def test_receive_buffer_is_filled_and_replaced(uarte: Line) -> None:
    uarte.buffer(RX_BUFFER, BUFFER, 2)
    uarte.put(START_RX, 1)
    uarte.machine.console_input(b"12345")
    uarte.wait_until(lambda: uarte.get(END_RX))
    assert (uarte.memory(2), uarte.get(RX_BUFFER + AMOUNT)) == (b"12", 2)
    uarte.put(END_RX, 0)
    uarte.put(RX_BUFFER, FULL)
    uarte.put(START_RX, 1)
    uarte.wait_until(lambda: uarte.get(END_RX))
    assert uarte.memory(2, FULL) == b"34"
    assert not uarte.get(ERROR)


def test_sixth_unread_byte_is_lost(uarte: Line) -> None:
    uarte.buffer(RX_BUFFER, BUFFER, 1)
    uarte.put(START_RX, 1)
    uarte.machine.console_input(b"1234567")
    uarte.wait_until(lambda: uarte.get(ERROR))
    assert uarte.get(0x480) == 1  # OVERRUN
    uarte.buffer(RX_BUFFER, FULL, 8)
    uarte.put(START_RX, 1)
    uarte.machine.console_input(b"8")
    uarte.wait_until(lambda: uarte.memory(6, FULL) == b"234568")
    uarte.put(STOP_RX, 1)
    assert (uarte.get(TIMEOUT), uarte.get(END_RX), uarte.get(RX_BUFFER + AMOUNT)) == (1, 1, 6)


def test_shortcut_starts_the_next_buffer(uarte: Line) -> None:
    uarte.buffer(RX_BUFFER, BUFFER, 2)
    uarte.put(0x200, 1 << 5)  # ENDRX_STARTRX
    uarte.put(START_RX, 1)
    uarte.put(RX_STARTED, 0)
    uarte.put(RX_BUFFER, FULL)
    uarte.machine.console_input(b"1234")
    uarte.wait_until(lambda: uarte.memory(2, FULL) == b"34")
    assert uarte.memory(2) == b"12"
    assert uarte.get(RX_STARTED)


@pytest.mark.parametrize("task", [START_RX, START_TX])
def test_buffer_in_flash_is_refused(uarte: Line, task: int) -> None:
    uarte.buffer(RX_BUFFER, 0x1000, 1)
    uarte.buffer(TX_BUFFER, 0x1000, 1)
    with pytest.raises(BusError):
        uarte.put(task, 1)


def test_buffer_may_lie_in_two_regions_of_ram(uarte: Line) -> None:
    uarte.machine.write(0x20001FFE, b"both")
    uarte.buffer(TX_BUFFER, 0x20001FFE, 4)
    uarte.put(START_TX, 1)
    uarte.wait_until(lambda: uarte.get(END_TX))
    assert bytes(uarte.output) == b"both"


def test_rtc_event_needs_enabling() -> None:
    machine = BoardModel(boards.load("nrf52840dk").machine_spec())
    rtc1, compared = 0x40011000, 0x140

    def poke(offset: int, value: int) -> None:
        machine.write(rtc1 + offset, value.to_bytes(4, "little"))

    events = []
    for enabled in (0, 1 << 16):
        poke(0x344, enabled)  # EVTENSET
        poke(0x540, 1)
        poke(0x008, 1)
        poke(0x000, 1)
        machine._cpu._slept += 2 * 64_000_000 // 32768
        events.append(int.from_bytes(machine.read(rtc1 + compared, 4), "little"))
        poke(0x004, 1)
    assert events == [0, 1]
