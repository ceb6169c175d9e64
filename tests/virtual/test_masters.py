# SPDX-License-Identifier: Apache-2.0
"""SPI and I2C masters of the virtual boards, without a device or with a scripted one; PPI, GPIOTE, DAC, ADC and
Nordic's watchdog.

Registers: RM0090, RM0385, RM0432, RM0433 and the Product Specifications of nRF52840 and nRF5340.
"""

import pytest

from tests.virtual.test_signals import Wires
from utvm import boards
from utvm.drivers.connection import Pin
from utvm.errors import BoardError
from utvm.virtual.machine import BoardModel

RAM = 0x20002000


class Chip:
    def __init__(self, board: str, base: int = 0) -> None:
        self.machine, self.base = BoardModel(boards.load(board).machine_spec()), base

    def put(self, offset: int, value: int, size: int = 4) -> None:
        self.machine.write(self.base + offset, value.to_bytes(size, "little"))

    def get(self, offset: int, size: int = 4) -> int:
        return int.from_bytes(self.machine.read(self.base + offset, size), "little")

    def wire(self, name: str) -> Pin:
        device = Pin(Wires(self.machine), name)
        assert device.sent() == b""
        return device

    def pass_ticks(self, ticks: int) -> None:
        self.machine._cpu._slept += ticks

    def pends(self, line: int) -> bool:
        word = self.machine.read(0xE000E200 + 4 * (line // 32), 4)
        return bool(int.from_bytes(word, "little") >> line % 32 & 1)


@pytest.mark.parametrize("scripted", [False, True])
def test_spi_of_the_f4_exchanges_bytes(scripted: bool) -> None:
    chip = Chip("stm32f407", 0x40013000)
    device = chip.wire("SPI1") if scripted else None
    if device:
        device.reply(b"\x12\x34")
    chip.put(0x00, 0x344)  # SPE, MSTR, software NSS
    received = []
    for byte in (0x9F, 0x00, 0xAA):
        assert chip.get(0x08) & 3 == 2  # TXE without RXNE
        chip.put(0x0C, byte)
        assert chip.get(0x08) & 3 == 3
        received.append(chip.get(0x0C))
    assert received == ([0x12, 0x34, 0xFF] if device else [0xFF] * 3)
    if device:
        assert (device.sent(), device.sent()) == (b"\x9f\x00\xaa", b"")


def test_spi_of_the_f4_overruns_and_interrupts() -> None:
    chip = Chip("stm32f407", 0x40013000)
    chip.put(0x04, 1 << 6)  # RXNEIE
    chip.put(0x00, 0x344)
    chip.put(0x0C, 1)
    assert chip.pends(35)
    chip.put(0x0C, 2)
    assert chip.get(0x08) & 0x40  # OVR, until DR and SR are read
    chip.get(0x0C)
    chip.get(0x08)
    assert chip.get(0x08) == 2


@pytest.mark.parametrize("board", ["stm32f746", "nucleo-l4r5zi", "nucleo-l552ze-q"])
def test_spi_fifo_moves_two_bytes_per_halfword(board: str) -> None:
    chip = Chip(board, 0x40013000)
    device = chip.wire("SPI1")
    device.reply(bytes(range(1, 5)))
    chip.put(0x04, 0x1700)  # eight bits, RXNE from a byte on
    chip.put(0x00, 0x344)
    chip.put(0x0C, 0xBBAA, 2)
    chip.put(0x0C, 0xCC, 1)
    assert chip.get(0x08) >> 9 & 3 == 3
    assert [chip.get(0x0C, 2), chip.get(0x0C, 1)] == [0x0201, 3]
    assert chip.get(0x08) & 0x601 == 0
    assert device.sent() == b"\xaa\xbb\xcc"


def test_spi_of_the_h7_ends_after_its_size() -> None:
    chip = Chip("nucleo-h743zi", 0x40013000)
    device = chip.wire("SPI1")
    device.reply(b"\x55\x66")
    chip.put(0x04, 2)  # TSIZE
    chip.put(0x08, 7)
    chip.put(0x0C, 1 << 22)
    chip.put(0x00, 1)
    chip.put(0x00, 0x201)
    for byte in (1, 2):
        assert chip.get(0x14) & 0xA == 2  # TXP, not EOT
        chip.put(0x20, byte, 1)
    assert chip.get(0x14) & 0xA == 8
    assert [chip.get(0x30, 1), chip.get(0x30, 1)] == [0x55, 0x66]
    assert chip.get(0x14) & 1 == 0
    chip.put(0x18, 8)
    assert chip.get(0x14) & 8 == 0


def test_spi_of_the_h7_holds_bytes_until_it_starts() -> None:
    chip = Chip("nucleo-h743zi", 0x40013000)
    chip.wire("SPI1").reply(bytes(range(20)))
    chip.put(0x04, 20)
    chip.put(0x08, 7)
    chip.put(0x0C, 1 << 22)
    chip.put(0x00, 1)
    held = 0
    while chip.get(0x14) & 2:
        chip.put(0x20, held, 1)
        held += 1
    assert (held, chip.get(0x14) & 8) == (16, 0)
    chip.put(0x00, 0x201)
    received = []
    for byte in range(16, 20):
        assert chip.get(0x14) & 2
        chip.put(0x20, byte, 1)
        received.append(chip.get(0x30, 1))
    assert chip.get(0x14) & 8
    while chip.get(0x14) & 1:
        received.append(chip.get(0x30, 1))
    assert received == list(range(20))


def test_i2c_of_the_f4_reads_a_register_of_a_device() -> None:
    chip = Chip("stm32f407", 0x40005400)
    chip.put(0x00, 1)
    device = chip.wire("I2C1.50")
    device.reply(b"\xab")
    for address in (0xA0, 0xA1):
        chip.put(0x00, 0x501)  # START, ACK
        assert chip.get(0x14) == 1  # SB
        chip.put(0x10, address)
        assert chip.get(0x14) == 2  # ADDR
        assert chip.get(0x18) == (7 if address == 0xA0 else 3)
        if address == 0xA0:
            chip.put(0x10, 0x07)
            assert chip.get(0x14) == 0x84  # TXE, BTF
    chip.put(0x00, 0x201)  # STOP
    assert chip.get(0x14) & 0x40
    assert (chip.get(0x10), chip.get(0x18), device.sent()) == (0xAB, 0, b"\x07")


def test_i2c_without_a_device_does_not_acknowledge() -> None:
    old = Chip("stm32f407", 0x40005400)
    old.put(0x00, 1)
    old.put(0x04, 0x100)  # ITERREN
    old.put(0x00, 0x101)
    old.put(0x10, 0xA0)
    assert (old.get(0x14), old.pends(32)) == (0x400, True)  # AF
    for board in ("stm32f746", "nucleo-l4r5zi", "nucleo-h743zi"):
        new = Chip(board, 0x40005400)
        new.put(0x00, 1 | 1 << 4)  # NACKIE
        new.put(0x04, 0x020120A0)  # START, AUTOEND, one byte to 0x50
        assert new.get(0x18) == 0x31  # NACKF, STOPF, TXE
        assert new.pends(31)
        new.put(0x1C, 0x30)
        assert new.get(0x18) == 1


def test_i2c_of_the_f7_writes_and_reads() -> None:
    chip = Chip("stm32f746", 0x40005400)
    device = chip.wire("I2C1.1d")
    device.reply(b"\x10\x20")
    chip.put(0x00, 1)
    chip.put(0x04, 0x0001203A)  # a byte to 0x1D, software end
    assert chip.get(0x18) & 0x8042 == 0x8002  # BUSY, TXIS
    chip.put(0x28, 0x0D)
    assert chip.get(0x18) & 0x42 == 0x40  # TC
    chip.put(0x04, 0x0202243A)  # two bytes from it, AUTOEND
    received = []
    while chip.get(0x18) & 4:
        received.append(chip.get(0x24))
    assert (received, device.sent(), chip.get(0x18) & 0x8020) == ([0x10, 0x20], b"\x0d", 0x20)


def test_i2c_of_the_l4_sends_a_first_byte_to_ten_bits_of_address() -> None:
    chip = Chip("nucleo-l4r5zi", 0x40005400)
    device = chip.wire("I2C1.30f")
    chip.put(0x00, 1)
    chip.put(0x28, 0x0D)  # before START
    chip.put(0x04, 2 << 16 | 1 << 25 | 1 << 13 | 1 << 11 | 0x30F)
    assert chip.get(0x18) & 2
    chip.put(0x28, 0x0E)
    assert (chip.get(0x18) & 0x8022, device.sent()) == (0x20, b"\x0d\x0e")


@pytest.mark.parametrize(
    ("board", "base", "name"), [("nrf52840dk", 0x40003000, "SPI0"), ("nrf5340dk", 0x50009000, "SPIM1_S")]
)
def test_nordics_masters_move_buffers(board: str, base: int, name: str) -> None:
    chip = Chip(board, base)
    spi, i2c = chip.wire(name), chip.wire(f"{name}.68")
    spi.reply(b"\x01\x02\x03")
    chip.machine.write(RAM, b"\x9f\0\0\0")
    chip.put(0x500, 7)
    for offset, value in ((0x534, RAM + 16), (0x538, 3), (0x544, RAM), (0x548, 1)):
        chip.put(offset, value)
    chip.put(0x010, 1)
    assert (chip.get(0x118), chip.get(0x53C), chip.machine.read(RAM + 16, 4)) == (1, 3, b"\1\2\3\0")
    assert spi.sent() == b"\x9f"
    i2c.reply(b"\x71\x72\x73")
    chip.put(0x500, 6)
    chip.put(0x200, 1 << 7 | 1 << 12)  # LASTTX to STARTRX, LASTRX to STOP
    chip.put(0x588, 0x68)
    chip.put(0x008, 1)
    assert (chip.get(0x104), chip.get(0x124), chip.machine.read(RAM + 16, 4)) == (1, 0, b"qrs\0")
    chip.put(0x588, 0x69)
    chip.put(0x008, 1)
    assert (chip.get(0x124), chip.get(0x4C4)) == (1, 2)  # ERROR, ANACK


def test_nordics_masters_move_bytes() -> None:
    chip = Chip("nrf52840dk", 0x40004000)
    chip.wire("SPI1").reply(b"\x42")
    chip.put(0x500, 1)
    chip.put(0x51C, 0x11)
    assert (chip.get(0x108), chip.get(0x518)) == (1, 0x42)
    chip.wire("SPI1.20").reply(b"\x31\x32")
    chip.put(0x500, 5)
    chip.put(0x588, 0x20)
    chip.put(0x200, 1)  # BB to SUSPEND
    chip.put(0x000, 1)
    received = [chip.get(0x518)]
    chip.put(0x200, 2)  # BB to STOP
    chip.put(0x020, 1)
    assert ([*received, chip.get(0x518)], chip.get(0x104)) == ([0x31, 0x32], 1)


def test_wire_needs_a_master() -> None:
    with pytest.raises(BoardError, match="SPI9"):
        Chip("stm32f407").wire("SPI9")


def test_ppi_connects_a_timer_event_to_a_pin() -> None:
    chip = Chip("nrf52840dk")
    led = Pin(Wires(chip.machine), "P0.13")
    chip.put(0x40006510, 0x00130D03)  # GPIOTE: channel 0 is a task that toggles P0.13, from high on
    assert led.level is True
    for address, value in (
        (0x4001F510, 0x40008140),
        (0x4001F514, 0x40006000),
        (0x4001F504, 1),
        (0x40008510, 0),
        (0x40008508, 3),
        (0x40008540, 16000),
        (0x40008200, 1),
        (0x40008000, 1),
    ):
        chip.put(address, value)
    led.clear()
    timer = next(device for start, device in chip.machine._bus.devices if start == 0x40008000)
    assert timer.next_event() == chip.machine._cpu.now() + 64000  # type: ignore[attr-defined]
    for _ in range(3):
        chip.pass_ticks(64000)
        chip.get(0x40008540)
    assert [edge.level for edge in led.edges()] == [False, True, False]
    chip.put(0x4001F508, 1)
    chip.pass_ticks(64000)
    chip.get(0x40008540)
    assert len(led.edges()) == 3


def test_dppi_connects_an_event_to_a_task() -> None:
    chip = Chip("nrf5340dk")
    for address, value in ((0x5001B180, 0x80000005), (0x5001C084, 0x80000005), (0x5001B000, 1)):
        chip.put(address, value)  # EGU0's event 0 publishes to channel 5, which EGU1's task 1 subscribes to
    assert chip.get(0x5001C104) == 0
    chip.put(0x50017504, 1 << 5)
    chip.put(0x5001B000, 1)
    assert chip.get(0x5001C104) == 1


def test_gpiote_sees_edges_and_levels() -> None:
    chip = Chip("nrf52840dk")
    button = Pin(Wires(chip.machine), "P0.11")
    chip.put(0x4000072C + 0x10000000, 3 << 16 | 3 << 2)  # PIN_CNF of P0.11: pull-up, sense low
    chip.put(0x40006510, 0x00020B01)  # IN of a falling edge
    chip.put(0x40006304, 1)
    button.drive(False)
    assert (chip.get(0x40006100), chip.get(0x4000617C), chip.pends(6)) == (1, 1, True)
    chip.put(0x40006100, 0)
    button.drive(True)
    assert chip.get(0x40006100) == 0


def test_nordics_watchdog_resets_unless_reloaded() -> None:
    chip = Chip("nrf52840dk", 0x40010000)
    chip.put(0x504, 32767)
    chip.put(0x000, 1)
    for reloaded in (True, False):
        chip.pass_ticks(60_000_000)
        assert chip.get(0x100) == 0
        if reloaded:
            chip.put(0x600, 0x6E524635)
    chip.pass_ticks(5_000_000)
    assert (chip.get(0x100), chip.get(0x400)) == (1, 1)
    chip.pass_ticks(5000)
    chip.put(0x508, 1)
    assert chip.get(0x400) == 0


@pytest.mark.parametrize(
    ("board", "control"), [("stm32f407", 5), ("nucleo-l4r5zi", 1 | 1 << 1 | 5 << 2), ("nucleo-h743zi", 0x17)]
)
def test_dac_is_triggered_by_a_timer(board: str, control: int) -> None:
    chip = Chip(board, 0x40007400)
    chip.put(0x00, 1)
    chip.put(0x10, 0x80)
    assert chip.get(0x2C) == 0x800
    chip.put(0x00, control)  # triggered by TIM6
    chip.put(0x08, 0x123)
    assert chip.get(0x2C) == 0x800
    for offset, value in ((0x04, 0x20), (0x2C, 9), (0x14, 1)):  # MMS: update; UG
        chip.put(0x40001000 - 0x40007400 + offset, value)
    assert chip.get(0x2C) == 0x123


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "base"), [("nucleo-l4r5zi", 0x50040000), ("nucleo-h743zi", 0x40022000), ("nucleo-h743zi", 0x40022100)]
)
def test_adc_of_l4_and_h7_converts(board: str, base: int) -> None:
    chip = Chip(board, base)
    chip.put(0x08, 1 << 28)
    chip.put(0x08, 1 << 31 | 1 << 28)
    assert chip.get(0x08) == 1 << 28  # calibrated
    chip.put(0x08, 1 << 28 | 1)
    assert chip.get(0x00) & 1
    chip.put(0x40, 0x321)  # a debugger sets the value
    chip.put(0x08, 1 << 28 | 4)
    assert (chip.get(0x00) & 4, chip.get(0x40), chip.get(0x00) & 4, chip.get(0x08) & 5) == (4, 0x321, 0, 1)
