# SPDX-License-Identifier: Apache-2.0
"""Features of the virtual STM32F407 that differ from the F746: core identity, breakpoints, USART, clocks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import FLASH, Target
from utvm.virtual.stlink import StLink

FP_CTRL, FP_COMP = 0xE0002000, 0xE0002008
USART2 = 0x40004400
SR, DR, BRR, CR1 = USART2, USART2 + 4, USART2 + 8, USART2 + 12
ORE, RXNE, TC, TXE = 1 << 3, 1 << 5, 1 << 6, 1 << 7
UE, TE, RE = 1 << 13, 1 << 3, 1 << 2
SPIN = "handler reset\nloop: adds r0, #1\nb loop"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path, "stm32f407") as target:
        yield target


@pytest.mark.parametrize(
    ("address", "value"),
    [
        (0xE000ED00, 0x410FC241),  # CPUID: Cortex-M4 r0p1 (RM0090, 38.6; ARM 100166, 4.2)
        (0xE000EF40, 0x10110021),  # MVFR0 and 1: OpenOCD recognises an FPv4-SP by them
        (0xE000EF44, 0x11000011),
        (0xE000EF48, 0),  # no MVFR2
        (0xE00FFFE0, 0xC4),  # ROM table of a Cortex-M4
        (0xE0042000, 0x100F6413),  # DBGMCU_IDCODE of an STM32F407, revision Y
        (0x1FFF7A20, 0x0400FFFF),  # flash size: 1024 KiB, at 0x1FFF7A22
        (0x40023C14, 0x0FFFAAED),  # FLASH_OPTCR as delivered (RM0090, 3.9.8)
        (0x40023860, 0x36FEC9FF),  # RCC_APB1LPENR (RM0090, 7.3.20)
        (FP_CTRL, 0x260),  # version 1: six comparators for code, two for data
    ],
)
def test_identification_registers(target: Target, address: int, value: int) -> None:
    assert target.peek(address) == value


def test_debug_port_has_the_id_of_a_cortex_m4(target: Target) -> None:
    probe = StLink(target.machine)
    probe.execute(bytes([0xF2, 0x30, 0xA3]).ljust(16, b"\0"), b"", 12)
    reply = probe.execute(bytes([0xF2, 0x31]).ljust(16, b"\0"), b"", 12)
    assert int.from_bytes(reply[4:8], "little") == 0x2BA01477


@pytest.mark.parametrize(("half", "stops"), [(1, "even"), (2, "odd"), (3, "even odd")])
def test_breakpoint_selects_half_a_word(target: Target, half: int, stops: str) -> None:
    target.load("handler reset\n.balign 4\neven: adds r0, #1\nodd: adds r1, #1\nb even")
    target.poke(FP_CTRL, 3)
    target.poke(FP_COMP + 20, half << 30 | target.symbols["even"] | 1)
    for label in 2 * stops.split():
        target.resume()
        target.wait_for_halt()
        assert target.pc == target.symbols[label]
        target.poke(FP_CTRL, 2)
        target.step()
        target.poke(FP_CTRL, 3)


def test_flash_patch_is_no_breakpoint(target: Target) -> None:
    target.load("handler reset\nmovs r0, #1\ndone")
    target.poke(FP_CTRL, 3)
    target.poke(FP_COMP, FLASH + 0x200 | 1)  # REPLACE is 0: remapping, which is not modelled
    target.resume()
    target.wait_for_halt()
    assert target.register(0) == 1


def load_receiver(target: Target) -> None:
    target.load(SPIN)
    target.poke(BRR, 139)
    target.poke(CR1, UE | TE | RE)


def test_usart_sends_and_sets_its_flags(target: Target) -> None:
    load_receiver(target)
    assert target.peek(SR) == TXE | TC
    target.poke(DR, ord("x"))
    assert target.output == b"x"
    assert target.peek(SR) == TXE
    target.poke(DR, ord("y"))
    assert target.peek(SR) == 0
    target.resume()
    target.wait_until(lambda: target.peek(SR) == TXE | TC)
    assert target.output == b"xy"
    target.poke(SR, ~TC & 0xFFFFFFFF)
    assert target.peek(SR) == TXE


def test_overrun_is_cleared_by_reading_sr_and_dr(target: Target) -> None:
    load_receiver(target)
    target.machine.console_input(b"ab")
    target.resume()
    target.wait_until(lambda: target.peek(SR) & ORE)
    target.halt()
    assert target.peek(SR) & (ORE | RXNE) == ORE | RXNE
    assert target.peek(DR) == ord("a")
    assert target.peek(SR) & (ORE | RXNE) == 0


def test_dr_alone_does_not_clear_an_overrun(target: Target) -> None:
    load_receiver(target)
    target.machine.console_input(b"ab")
    target.resume()
    target.wait_until(lambda: target.machine.instructions > 20000)
    target.halt()
    target.peek(DR)
    assert target.peek(SR) & (ORE | RXNE) == ORE
