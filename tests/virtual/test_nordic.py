# SPDX-License-Identifier: Apache-2.0
"""The nRF52's flash controller and UART (nRF52840 Product Specification 1.7, 4.3 and 6.33), by their registers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.bench import XPSR, Bench
from utvm.virtual.bus import BusError

READY, CONFIG, ERASE_PAGE, ERASE_ALL = 0x4001E400, 0x4001E504, 0x4001E508, 0x4001E50C
WRITE, ERASE = 1, 2
UART = 0x40002000
START_RX, START_TX, RX_READY, TX_READY, ERROR = UART, UART + 0x8, UART + 0x108, UART + 0x11C, UART + 0x124
INTERRUPTS_ON, ERROR_SOURCE, ENABLE = UART + 0x304, UART + 0x480, UART + 0x500
RXD, TXD, BAUD_RATE = UART + 0x518, UART + 0x51C, UART + 0x524
PENDING = 0xE000E200
MEGABAUD, RAM = 0x10000000, 0x20002000


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path, "nrf52840dk") as made:
        yield made


def test_factory_information_is_that_of_the_chip(bench: Bench) -> None:
    assert [bench.peek(0x10000000 + offset) for offset in (0x10, 0x14, 0x100, 0x10C, 0x110)] == [
        4096,
        256,
        0x52840,
        256,
        1024,
    ]


def test_words_are_written_where_that_is_enabled_and_bits_only_go_to_0(bench: Bench) -> None:
    with pytest.raises(BusError):
        bench.poke(0x2000, 0)
    bench.poke(CONFIG, WRITE)
    with pytest.raises(BusError):
        bench.machine.write(0x2000, b"\0\0")
    bench.poke(0x2000, 0x0FF0FFFF)
    assert (bench.peek(READY), bench.peek(READY)) == (0, 1)
    bench.poke(0x2000, 0x12345678)
    assert bench.peek(0x2000) == 0x0FF0FFFF & 0x12345678
    assert bench.peek(0x2004) == 0xFFFFFFFF


def test_a_page_is_erased_by_its_address_where_that_is_enabled(bench: Bench) -> None:
    bench.poke(CONFIG, WRITE)
    for address in (0x1FFC, 0x2000, 0x2FFC, 0x3000):
        bench.poke(address, 0)
    bench.poke(ERASE_PAGE, 0x2000)
    assert bench.peek(0x2000) == 0
    bench.poke(CONFIG, ERASE)
    bench.poke(ERASE_PAGE, 0x2004)  # no page begins there
    assert bench.peek(0x2000) == 0
    bench.poke(ERASE_PAGE, 0x2000)
    assert [bench.peek(a) for a in (0x1FFC, 0x2000, 0x2FFC, 0x3000)] == [0, 0xFFFFFFFF, 0xFFFFFFFF, 0]
    bench.poke(ERASE_ALL, 1)
    assert [bench.peek(a) for a in (0x1FFC, 0x3000)] == [0xFFFFFFFF] * 2


@pytest.fixture
def uart(bench: Bench) -> Bench:
    bench.halt()
    bench.poke(RAM, 0xE7FEE7FE)  # b .
    bench.set_register(XPSR, 1 << 24)
    bench.set_register(15, RAM)
    bench.resume()
    bench.poke(BAUD_RATE, MEGABAUD)
    bench.poke(START_TX, 1)  # to no effect: it is not enabled
    bench.poke(TXD, ord("x"))
    bench.poke(ENABLE, 4)
    bench.poke(START_TX, 1)
    bench.poke(START_RX, 1)
    return bench


def test_a_byte_is_sent_and_its_end_interrupts_where_that_is_enabled(uart: Bench) -> None:
    uart.poke(TXD, ord("a"))
    uart.wait_until(lambda: uart.peek(TX_READY))
    assert bytes(uart.output) == b"a"
    assert not uart.peek(PENDING)
    uart.poke(INTERRUPTS_ON, 1 << 7)
    assert uart.peek(PENDING) & 1 << 2


def test_six_bytes_wait_and_a_seventh_is_lost(uart: Bench) -> None:
    uart.machine.console_input(b"1234567")
    uart.wait_until(lambda: uart.peek(ERROR))
    assert uart.peek(ERROR_SOURCE) == 1
    got = bytearray()
    for _ in range(6):
        assert uart.peek(RX_READY)
        uart.poke(RX_READY, 0)
        got.append(uart.peek(RXD))
    assert got == b"123456"
    assert not uart.peek(RX_READY)
    uart.machine.console_input(b"8")
    uart.wait_until(lambda: uart.peek(RX_READY))
    assert uart.peek(RXD) == ord("8")
