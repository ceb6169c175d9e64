# SPDX-License-Identifier: Apache-2.0
"""SysTick, TIM2, USART3, clocks and GPIO run by instructions and set the flags of RM0385."""

import pytest

from tests.virtual.target import Target

SYSTICK, TIM2, USART3, DWT = 0xE000E010, 0x40000000, 0x40004800, 0xE0001000
UIF = 1
COMPARED = 0x1E  # four channels with the compare value 0 (RM0385, 23.4.5)
ORE, IDLE, RXNE, TC, TXE = 1 << 3, 1 << 4, 1 << 5, 1 << 6, 1 << 7

LOOP = "1: subs r2, #1\nbne 1b\n"  # two instructions a round


def _systick(target: Target, reload: int, rounds: int, control: int = 7) -> int:
    """Number of SysTick interrupts in a loop of 2 * rounds instructions."""
    target.run(
        f"""
        handler reset
        movs r7, #0
        ldr r0, ={SYSTICK:#x}
        ldr r1, ={reload}
        str r1, [r0, #4]
        movs r1, #0
        str r1, [r0, #8]
        ldr r2, ={rounds}
        movs r1, #{control}
        str r1, [r0]
        {LOOP}
        movs r1, #0
        str r1, [r0]
        done
        handler sys_tick
        adds r7, #1
        bx lr
        """
    )
    return target.register(7)


@pytest.mark.parametrize("reload", [99, 999, 0xFFFF])
def test_systick_period_is_reload_plus_one(target: Target, reload: int) -> None:
    instructions = 2 * 100_000
    interrupts = _systick(target, reload, 100_000)
    # The handler's two instructions also count.
    assert interrupts == (instructions + 2 * interrupts) // (reload + 1)


def test_systick_external_clock_is_divided_by_eight(target: Target) -> None:
    interrupts = _systick(target, 99, 100_000, control=3)
    assert interrupts == (200_000 + 2 * interrupts) // 800


def test_systick_counts_down_reloads_and_flags(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r0, ={SYSTICK:#x}
        movs r1, #5
        str r1, [r0, #4]
        str r1, [r0, #8]        @ any value clears
        ldr r12, [r0, #8]
        movs r1, #5
        str r1, [r0]
        ldr r2, [r0, #8]        @ one tick: reloaded
        ldr r3, [r0, #8]
        ldr r4, [r0, #8]
        ldr r5, [r0]            @ not yet
        ldr r6, [r0, #8]
        ldr r7, [r0, #8]        @ 0
        ldr r8, [r0]            @ COUNTFLAG, and reading takes it back
        ldr r9, [r0]
        ldr r10, [r0, #8]
        done
        """
    )
    assert [target.register(number) for number in (12, 2, 3, 4, 6, 7, 10)] == [0, 5, 4, 3, 1, 0, 3]
    assert [target.register(number) for number in (5, 8, 9)] == [5, 5 | 1 << 16, 5]


def test_systick_stops_while_the_core_is_halted(target: Target) -> None:
    target.load(
        f"""
        handler reset
        ldr r0, ={SYSTICK:#x}
        ldr r1, =1000
        str r1, [r0, #4]
        movs r1, #5
        str r1, [r0]
        nop
        done
        """
    )
    for _ in range(5):
        target.step()
    before = target.peek(SYSTICK + 8)
    assert target.peek(SYSTICK + 8) == before
    target.step()
    assert target.peek(SYSTICK + 8) == before - 1 or before == 0


TIM2_START = f"""
    handler reset
    movs r7, #0
    ldr r0, =0xE000E100
    mov r1, #1 << 28
    str r1, [r0]
    ldr r0, ={TIM2:#x}
"""


def test_tim2_interrupts_at_its_rate(target: Target) -> None:
    target.run(
        f"""
        {TIM2_START}
        movs r1, #9
        str r1, [r0, #0x28]     @ PSC
        movs r1, #99
        str r1, [r0, #0x2C]     @ ARR
        movs r1, #1
        str r1, [r0, #0x14]     @ UG takes PSC over
        movs r1, #0
        str r1, [r0, #0x10]
        movs r1, #1
        str r1, [r0, #0x0C]     @ UIE
        ldr r2, =100000
        str r1, [r0]
        {LOOP}
        movs r1, #0
        str r1, [r0]
        done
        handler irq28
        adds r7, #1
        movs r3, #0
        str r3, [r0, #0x10]
        bx lr
        """
    )
    interrupts = target.register(7)
    assert interrupts == (200_000 + 4 * interrupts) // 1000


def test_tim2_counts_32_bits_and_sets_flags(target: Target) -> None:
    target.run(
        f"""
        {TIM2_START}
        ldr r1, =0xFFFFFFFD
        str r1, [r0, #0x24]
        movs r1, #1
        str r1, [r0]
        ldr r2, [r0, #0x24]
        ldr r3, [r0, #0x10]
        nop
        ldr r4, [r0, #0x24]
        ldr r5, [r0, #0x10]
        done
        """
    )
    assert [target.register(number) for number in (2, 3, 4, 5)] == [0xFFFFFFFE, 0, 1, UIF | COMPARED]


def test_tim2_stops_in_one_pulse_mode(target: Target) -> None:
    target.run(
        f"""
        {TIM2_START}
        movs r1, #9
        str r1, [r0, #0x2C]
        movs r1, #9             @ OPM, CEN
        str r1, [r0]
        movs r2, #100
        {LOOP}
        ldr r3, [r0]
        ldr r4, [r0, #0x24]
        ldr r5, [r0, #0x10]
        done
        """
    )
    assert [target.register(number) for number in (3, 4, 5)] == [8, 0, UIF | COMPARED]


def test_tim2_preloads_arr(target: Target) -> None:
    target.run(
        f"""
        {TIM2_START}
        movs r1, #99
        str r1, [r0, #0x2C]
        movs r1, #0x80          @ ARPE
        str r1, [r0]
        movs r1, #9
        str r1, [r0, #0x2C]     @ in effect after the next update
        movs r1, #0x81
        str r1, [r0]
        movs r2, #10
        {LOOP}
        ldr r3, [r0, #0x24]
        movs r2, #50
        {LOOP.replace("1", "2").replace("#2", "#1")}
        ldr r4, [r0, #0x24]
        done
        """
    )
    assert target.register(3) > 9
    assert target.register(4) <= 9


UART = f"""
    ldr r0, ={USART3:#x}
    movs r1, #10
    str r1, [r0, #0x0C]         @ a character takes 100 ticks
"""


def test_usart_flags_follow_the_line(target: Target) -> None:
    target.poke(DWT, 1)
    target.run(
        f"""
        handler reset
        {UART}
        movs r1, #0x9           @ UE, TE
        str r1, [r0]
        ldr r8, [r0, #0x1C]
        movs r1, #'H'
        str r1, [r0, #0x28]
        ldr r3, [r0, #0x1C]     @ in the shift register: TDR is free, the line is not
        movs r1, #'i'
        str r1, [r0, #0x28]
        ldr r4, [r0, #0x1C]     @ both are full
        ldr r2, ={DWT:#x}
        ldr r6, [r2, #4]        @ CYCCNT, which counts the time that passes while a loop polls
        1: ldr r5, [r0, #0x1C]
        tst r5, #{TC}
        beq 1b
        ldr r7, [r2, #4]
        done
        """
    )
    assert bytes(target.output) == b"Hi"
    flags = [target.register(number) & (TC | TXE) for number in (8, 3, 4, 5)]
    assert flags == [TC | TXE, TXE, 0, TC | TXE]
    assert 180 <= target.register(7) - target.register(6) <= 204


def test_disabled_usart_sends_nothing(target: Target) -> None:
    target.run(f"handler reset\n{UART}\nmovs r1, #'x'\nstr r1, [r0, #0x28]\ndone")
    assert bytes(target.output) == b""


def test_usart_sends_by_interrupt(target: Target) -> None:
    target.run(
        f"""
        handler reset
        {UART}
        ldr r2, =0xE000E104
        movs r1, #1 << 7        @ interrupt 39
        str r1, [r2]
        ldr r4, =text
        ldr r1, =0x89           @ UE, TE, TXEIE
        str r1, [r0]
        1: wfi
        cmp r5, #1
        bne 1b
        done
        handler irq39
        ldrb r1, [r4], #1
        cbz r1, 2f
        str r1, [r0, #0x28]
        bx lr
        2: movs r1, #0x9
        str r1, [r0]
        movs r5, #1
        bx lr
        text: .asciz "interrupts"
        .balign 2
        """
    )
    assert bytes(target.output) == b"interrupts"


ECHO = f"""
    handler reset
    {UART}
    ldr r2, =0xE000E104
    movs r1, #1 << 7
    str r1, [r2]
    movs r4, #0
    ldr r1, =0x2D               @ UE, RE, TE, RXNEIE
    str r1, [r0]
    1: wfi
    b 1b
    handler irq39
    ldr r1, [r0, #0x24]
    str r1, [r0, #0x28]
    bx lr
"""


def test_usart_receives_by_interrupt(target: Target) -> None:
    target.load(ECHO)
    target.resume()
    target.machine.console_input(b"anybody there?")
    target.wait_until(lambda: len(target.output) == 14)
    assert bytes(target.output) == b"anybody there?"


def test_usart_overrun_loses_data(target: Target) -> None:
    target.load(f"handler reset\n{UART}\nmovs r1, #5\nstr r1, [r0]\nmovw r2, #1000\n{LOOP}\ndone")
    for _ in range(12):
        target.step()
    target.machine.console_input(b"ab")
    target.resume()
    target.wait_for_halt()
    assert target.peek(USART3 + 0x1C) & (ORE | RXNE) == ORE | RXNE
    assert target.peek(USART3 + 0x24) == ord("a")
    target.poke(USART3 + 0x20, ORE)
    assert target.peek(USART3 + 0x1C) & (ORE | RXNE) == 0


def test_usart_detects_an_idle_line(target: Target) -> None:
    # r4 counts rounds of six instructions from the first character's end to IDLE. The store ends polling.
    target.load(
        f"""
        handler reset
        {UART}
        movs r1, #5             @ UE, RE
        str r1, [r0]
        1: ldr r2, [r0, #0x1C]
        tst r2, #{RXNE}
        beq 1b
        mov r6, r2
        ldr r1, [r0, #0x24]
        movs r4, #0
        2: adds r4, #1
        ldr r2, [r0, #0x1C]
        ldr r1, [r0, #0x24]
        str r1, [r0, #0x10]     @ GTPR
        tst r2, #{IDLE}
        beq 2b
        movs r1, #{IDLE}
        str r1, [r0, #0x20]
        ldr r3, [r0, #0x1C]
        movw r2, #1000
        {LOOP.replace("1", "3").replace("#3", "#1")}
        ldr r5, [r0, #0x1C]     @ once is enough: nothing has come since
        done
        """
    )
    while not target.peek(USART3) & 1:
        target.step()
    target.machine.console_input(b"abc")
    target.resume()
    target.wait_for_halt()
    assert not target.register(6) & IDLE
    assert 300 - 12 <= 6 * target.register(4) <= 300 + 12  # two more characters, and one idle character
    assert [target.register(number) & IDLE for number in (3, 5)] == [0, 0]


def test_usart_character_restarts_idle_detection(target: Target) -> None:
    target.load(f"handler reset\n{UART}\nmovs r1, #5\nstr r1, [r0]\nmovw r2, #1000\n{LOOP}\ndone")
    while not target.peek(USART3) & 1:
        target.step()
    for byte in b"ab":
        target.machine.console_input(bytes([byte]))
        while not target.peek(USART3 + 0x1C) & RXNE:
            target.step()
            assert not target.peek(USART3 + 0x1C) & IDLE
        assert target.peek(USART3 + 0x24) == byte
        for _ in range(50):
            target.step()
    for _ in range(60):
        target.step()
    assert target.peek(USART3 + 0x1C) & IDLE


@pytest.mark.parametrize(
    ("enables", "typed", "flag"), [("#0x15", b"a", IDLE), ("#0x05", b"ab", ORE)], ids=["IDLEIE", "EIE"]
)
def test_usart_interrupts_for_idle_and_error(target: Target, enables: str, typed: bytes, flag: int) -> None:
    target.load(
        f"""
        handler reset
        {UART}
        ldr r2, =0xE000E104
        movs r1, #1 << 7
        str r1, [r2]
        movs r1, #{int(flag == ORE)}           @ EIE
        str r1, [r0, #0x08]
        movs r1, {enables}
        str r1, [r0]
        1: wfi
        cmp r5, #1
        bne 1b
        done
        handler irq39
        ldr r4, [r0, #0x1C]
        movs r1, #{flag}
        str r1, [r0, #0x20]
        movs r5, #1
        bx lr
        """
    )
    while not target.peek(USART3) & 1:
        target.step()
    target.machine.console_input(typed)
    target.resume()
    target.wait_for_halt()
    assert target.register(4) & (ORE | IDLE) == flag
    assert not target.peek(USART3 + 0x1C) & flag


def test_enabled_clocks_are_ready(target: Target) -> None:
    rcc, pwr = 0x40023800, 0x40007000
    assert target.peek(rcc) == 0x83
    target.poke(rcc, 0x01010083)
    assert target.peek(rcc) == 0x03030083
    target.poke(rcc + 8, 2)
    assert target.peek(rcc + 8) == 0xA
    target.poke(pwr, 0x3C000)
    assert target.peek(pwr + 4) & 0x34000 == 0x34000
    target.poke(rcc, 0x83)
    assert target.peek(rcc) == 0x83


def test_gpio_outputs_are_set_and_cleared_by_bsrr(target: Target) -> None:
    port = 0x40020C00
    target.poke(port, 0x5555_5555)  # all pins are outputs
    target.poke(port + 0x18, 0x0000_00F0)
    target.poke(port + 0x18, 0x0030_0001)
    assert target.peek(port + 0x14) == target.peek(port + 0x10) == 0xC1
