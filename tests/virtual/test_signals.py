# SPDX-License-Identifier: Apache-2.0
"""Signals of a virtual STM32: pins that suites read and drive, timer channels, DMA requests, and clocks.

Expected values are computed from RM0385, sections 8, 15, 16 and 23.
"""

import itertools
from collections.abc import Callable

import pytest

from tests.virtual.target import RAM, Target
from utvm import boards
from utvm.drivers.connection import Pin
from utvm.errors import BoardError
from utvm.virtual.machine import BoardModel

GPIOB, GPIOC, TIM3, TIM1, ADC, DMA1, RCC, RTC = (
    0x40020400,
    0x40020800,
    0x40000400,
    0x40010000,
    0x40012000,
    0x40026000,
    0x40023800,
    0x40002800,
)


class Wires:
    """Adapts a model's memory for :class:`Pin`."""

    def __init__(self, machine: BoardModel) -> None:
        self.read_memory: Callable[[int, int], bytes] = machine.read
        self.write_memory: Callable[[int, bytes], None] = machine.write


def pin_of(target: Target, name: str) -> Pin:
    return Pin(Wires(target.machine), name)


def _start(timer: int, rounds: int) -> str:
    start = f"handler reset\nldr r0, ={timer:#x}\nmovs r1, #1\nstr r1, [r0]\n"
    return f"{start}ldr r2, ={rounds}\n1: subs r2, #1\nbne 1b\ndone"


def test_edges_of_an_output_have_their_ticks(target: Target) -> None:
    led = pin_of(target, "PB0")
    target.load(
        f"handler reset\nldr r0, ={GPIOB:#x}\nmovs r1, #1\nstr r1, [r0]\nstr r1, [r0, #0x14]\n"
        "nop\nnop\nmovs r1, #0\nstr r1, [r0, #0x14]\ndone"
    )
    led.clear()
    target.resume()
    target.wait_for_halt()
    rise, fall = led.edges()
    assert (rise.level, fall.level, fall.tick - rise.tick) == (True, False, 4)
    assert led.level is False
    led.clear()
    assert led.edges() == []


def test_input_is_driven_until_released(target: Target) -> None:
    button = pin_of(target, "PC13")
    read = f"handler reset\nldr r0, ={GPIOC + 0x10:#x}\nldr r1, [r0]\nlsrs r1, #13\ndone"
    button.drive(True)
    target.run(read)
    assert target.register(1) == 1
    target.poke(GPIOC + 0x0C, 2 << 26)
    button.drive(None)
    assert button.level is False


def test_unknown_pin_is_refused(target: Target) -> None:
    for name in ("PX1", "TIM3_CH9", "a name of more than 16 letters"):
        with pytest.raises(BoardError, match="there is no pin"):
            pin_of(target, name)
    assert pin_of(target, "TIM3_CH1").level is None


def test_signals_are_not_mapped_for_the_core(target: Target) -> None:
    target.run("handler reset\nldr r0, =0xF1000000\nldr r1, [r0]\ndone\nhandler hard_fault\nmovs r4, #1\ndone")
    assert target.register(4) == 1


def test_pins_of_the_nrf52840_are_driven_and_read() -> None:
    machine = BoardModel(boards.load("nrf52840dk").machine_spec())
    led, button = (Pin(Wires(machine), name) for name in ("P0.13", "P1.03"))
    for address, value in ((0x50000518, 1 << 13), (0x50000508, 1 << 13)):  # DIRSET, OUTSET (6.9.2)
        machine.write(address, value.to_bytes(4, "little"))
    button.drive(True)
    assert int.from_bytes(machine.read(0x50000810, 4), "little") >> 3 & 1  # P1's IN
    assert [edge.level for edge in led.edges()] == [True]


def test_pwm_has_its_period_and_duty(target: Target) -> None:
    output = pin_of(target, "TIM3_CH2")
    target.run(
        f"""
        handler reset
        ldr r0, ={TIM3:#x}
        movs r1, #99
        str r1, [r0, #0x2C]
        movs r1, #30
        str r1, [r0, #0x38]
        ldr r1, =0x6000         @ PWM mode 1
        str r1, [r0, #0x18]
        movs r1, #0x10          @ CC2E
        str r1, [r0, #0x20]
        movs r1, #1
        str r1, [r0]
        ldr r2, =500
        1: subs r2, #1
        bne 1b
        done
        """
    )
    edges = output.edges()[1:]
    rises = [edge.tick for edge in edges if edge.level]
    falls = [edge.tick for edge in edges if not edge.level]
    assert {after - before for before, after in itertools.pairwise(rises)} == {100}
    assert falls[0] - rises[0] in (30, 30 - 100)


def test_edge_captures_and_resets_the_counter(target: Target) -> None:
    signal = pin_of(target, "TIM3_CH2")
    target.load(_start(TIM3, 100))
    for offset, value in ((0x18, 0x0102), (0x20, 0x13), (0x08, 0x64)):  # CH1 falls; reset by TI2FP2
        target.poke(TIM3 + offset, value)
    target.resume()
    target.wait_for_halt()
    count = target.peek(TIM3 + 0x24)
    signal.drive(True)
    assert (target.peek(TIM3 + 0x38), target.peek(TIM3 + 0x24)) == (count, 0)
    assert target.peek(TIM3 + 0x10) & 0x47 == 0x45 & ~4  # TIF and UIF; a read of CCR2 has cleared CC2IF


def test_update_requests_dma(target: Target) -> None:
    stream = DMA1 + 0x10 + 2 * 0x18
    target.load(_start(TIM3, 60))
    target.poke(RAM, 0x11)
    target.poke(RAM + 4, 0x22)
    for offset, value in ((4, 2), (8, TIM3 + 0x34), (12, RAM), (0, 5 << 25 | 2 << 13 | 2 << 11 | 1 << 10 | 1 << 6 | 1)):
        target.poke(stream + offset, value)
    for offset, value in ((0x2C, 49), (0x0C, 1 << 8)):  # UDE
        target.poke(TIM3 + offset, value)
    target.resume()
    target.wait_for_halt()
    assert (target.peek(TIM3 + 0x34), target.peek(stream + 4)) == (0x22, 0)


def test_continuous_conversions_are_stored_by_dma(target: Target) -> None:
    stream = DMA1 + 0x400 + 0x10
    target.load("handler reset\nldr r2, =400\n1: subs r2, #1\nbne 1b\ndone")
    target.poke(ADC + 0x4C, 0x123)
    for offset, value in ((4, 4), (8, ADC + 0x4C), (12, RAM), (0, 1 << 13 | 1 << 11 | 1 << 10 | 1)):
        target.poke(stream + offset, value)
    target.poke(ADC + 0x08, 1 << 30 | 1 << 9 | 1 << 8 | 3)  # SWSTART, DDS, DMA, CONT, ADON
    target.resume()
    target.wait_for_halt()
    assert target.machine.read(RAM, 8) == bytes.fromhex("2301230123012301")


@pytest.mark.parametrize(
    ("timer", "config", "cycles"),
    [(TIM3, 0, 1), (TIM3, 4 << 10, 1), (TIM3, 5 << 10, 2), (TIM3, 7 << 10, 8), (TIM1, 5 << 13, 2), (TIM1, 5 << 10, 1)],
)
def test_timer_has_twice_the_clock_of_a_divided_bus(target: Target, timer: int, config: int, cycles: int) -> None:
    # RM0385, 5.2 and 5.3.3
    target.run(
        f"handler reset\nldr r0, ={RCC:#x}\nldr r1, ={config:#x}\nstr r1, [r0, #8]\n"
        + f"ldr r0, ={timer:#x}\nmovs r1, #1\nstr r1, [r0]\n"
        + "nop\n" * 30
        + "ldr r2, [r0, #0x24]\ndone"
    )
    assert target.register(2) == 31 // cycles


def test_pin_is_a_tamper_and_time_stamp_input(target: Target) -> None:
    button = pin_of(target, "PC13")
    target.poke(RTC + 0x08, 1 << 11)  # TSE at a rising edge
    target.poke(RTC + 0x40, 1)
    button.drive(True)
    assert target.peek(RTC + 0x0C) & (1 << 11 | 1 << 13) == 1 << 11 | 1 << 13


def test_branch_to_itself_takes_no_instructions(target: Target) -> None:
    target.run(
        """
        handler reset
        ldr r0, =0xE000E010
        ldr r1, =999999
        str r1, [r0, #4]
        movs r1, #7
        str r1, [r0]
        movs r7, #0
        b .
        handler sys_tick
        adds r7, #1
        cmp r7, #100
        beq 1f
        bx lr
        1: done
        """
    )
    assert target.register(7) == 100
    assert target.machine.instructions < 1000
    assert target.machine._cpu.now() > 99_000_000


def test_step_executes_a_branch_to_itself(target: Target) -> None:
    target.load("handler reset\nmovs r0, #1\nat: b .")
    for _ in range(3):
        target.step()
        target.wait_for_halt()
    assert target.pc == target.symbols["at"]
