# SPDX-License-Identifier: Apache-2.0
"""Watchdogs, alarms and pin interrupts of virtual STM32s, at the rates of the RCC (RM0385)."""

from pathlib import Path

import pytest

from tests.virtual.target import DEMCR, S_SLEEP, TRCENA, Target
from tests.virtual.test_masters import Chip
from utvm.probe.virtual import read_clock
from utvm.virtual.stm32.clocks import rates_on

RTC, WWDG, IWDG, RCC, GPIOC, SYSCFG, EXTI = (
    0x40002800,
    0x40002C00,
    0x40003000,
    0x40023800,
    0x40020800,
    0x40013800,
    0x40013C00,
)
CSR, IWDG_RESET, WWDG_RESET = RCC + 0x74, 1 << 29, 1 << 30
ENABLE_40_AND_41 = "ldr r2, =0xE000E104\nldr r1, =0x300\nstr r1, [r2]\n"


def _run_until_reset(target: Target, program: str) -> None:
    """Run a program that halts at its second start, after a watchdog reset."""
    target.load(
        f"""
        handler reset
        ldr r0, ={CSR:#x}
        ldr r7, [r0]
        ldr r1, ={IWDG_RESET | WWDG_RESET:#x}
        tst r7, r1
        beq 1f
        done
        1:
        {program}
        """
    )
    target.poke(DEMCR, TRCENA)  # no halt at the reset
    target.resume()
    target.wait_for_halt()


def test_independent_watchdog_resets_unless_reloaded(target: Target) -> None:
    _run_until_reset(
        target,
        f"""
        ldr r0, ={IWDG:#x}
        ldr r1, =0x5555
        str r1, [r0]
        movs r1, #9             @ ten steps of 4 / 32 kHz: 20,000 ticks of 16 MHz
        str r1, [r0, #8]
        ldr r1, =0xCCCC
        str r1, [r0]
        ldr r1, =0xAAAA
        movs r4, #10
        2: ldr r2, =5000        @ 10,000 ticks
        3: subs r2, #1
        bne 3b
        str r1, [r0]
        subs r4, #1
        bne 2b
        ldr r5, =0x20010100
        movs r6, #77
        str r6, [r5]
        4: b 4b
        """,
    )
    assert target.peek(0x20010100) == 77
    assert target.register(7) & (IWDG_RESET | WWDG_RESET) == IWDG_RESET


def test_independent_watchdog_has_its_own_clock(target: Target) -> None:
    """With twice the core clock, a reset comes after twice the instructions."""
    counts = []
    for hpre in (0x8, 0x0):  # the core at 8 and at 16 MHz
        target.load(
            f"""
            handler reset
            ldr r0, ={RCC:#x}
            ldr r7, [r0, #0x74]
            lsrs r7, r7, #30
            bcs 1f
            movs r1, #{hpre << 4}
            str r1, [r0, #8]
            ldr r0, ={IWDG:#x}
            ldr r1, =0xCCCC
            str r1, [r0]
            2: b 2b
            1: movs r1, #1
            lsls r1, r1, #24
            str r1, [r0, #0x74]
            done
            """
        )
        before = target.machine._cpu.now()
        target.poke(DEMCR, TRCENA)
        target.resume()
        target.wait_for_halt()
        counts.append(target.machine._cpu.now() - before)
    assert counts[0] == pytest.approx(8_000_000 * 4 * 4096 / 32_000, rel=0.01)
    assert counts[1] == pytest.approx(2 * counts[0], rel=0.01)


def test_window_watchdog_warns_one_step_before_it_bites(target: Target) -> None:
    program = f"""
        handler reset
        ldr r0, =0xE000E100
        movs r1, #1             @ interrupt 0
        str r1, [r0]
        ldr r0, ={WWDG:#x}
        ldr r1, =0x27F          @ EWI, no window, steps of 4096
        str r1, [r0, #4]
        movs r1, #0xC2          @ on, two steps above 0x40
        str r1, [r0]
        2: wfi
        b 2b
        handler irq0
        ldr r4, [r0]
        ldr r5, [r0, #8]
        movs r1, #0
        str r1, [r0, #8]
        ldr r6, [r0, #8]
        done
        """
    target.load(program)
    before = target.machine._cpu.now()
    target.resume()
    target.wait_for_halt()
    assert [target.register(number) for number in (4, 5, 6)] == [0xC0, 1, 0]
    assert target.machine._cpu.now() - before == pytest.approx(2 * 4096, rel=0.01)


@pytest.mark.parametrize("early", [False, True])
def test_window_watchdog_resets_late_and_early(target: Target, early: bool) -> None:
    refresh = "movs r1, #0x7F\nstr r1, [r0]" if early else ""
    _run_until_reset(
        target,
        f"""
        ldr r0, ={WWDG:#x}
        movs r1, #0x50
        str r1, [r0, #4]
        movs r1, #0xFF
        str r1, [r0]
        {refresh}
        5: ldr r4, [r0]
        ldr r5, =0x20010100
        str r4, [r5]
        b 5b
        """,
    )
    assert target.register(7) & (IWDG_RESET | WWDG_RESET) == WWDG_RESET
    if not early:
        assert target.peek(0x20010100) == 0x80 | 0x40  # the last count before the reset


def _alarm_after(target: Target, set_up: str) -> int:
    """Number of ticks from the set-up to the interrupt."""
    target.run(
        f"""
        handler reset
        {ENABLE_40_AND_41}
        ldr r2, =0xE000E100
        movs r1, #8             @ the wake-up timer's, 3
        str r1, [r2]
        ldr r0, ={RTC:#x}
        {set_up}
        1: b 1b
        handler irq3
        done
        handler irq41
        done
        """
    )
    return target.machine._cpu.now()


def test_alarm_and_wake_up_timer_come_in_time(target: Target) -> None:
    before = target.machine._cpu.now()
    _alarm_after(
        target,
        """
        ldr r1, =0x80000002     @ at second 2 of any minute and hour
        ldr r2, =0x808000
        orrs r1, r2
        str r1, [r0, #0x1C]
        ldr r1, =0x1100         @ ALRAE, ALRAIE
        str r1, [r0, #8]
        """,
    )
    assert target.machine._cpu.now() - before == pytest.approx(2 * 16_000_000, rel=0.01)
    assert target.peek(RTC + 0x0C) & 1 << 8
    assert target.peek(RTC) == 2
    before = target.machine._cpu.now()
    _alarm_after(
        target,
        """
        ldr r1, =0x4404         @ WUTE, WUTIE, in seconds
        movs r2, #0
        str r2, [r0, #0x14]
        str r1, [r0, #8]
        """,
    )
    assert target.machine._cpu.now() - before == pytest.approx(16_000_000, rel=0.01)
    assert target.peek(RTC + 0x0C) & 1 << 10


@pytest.mark.parametrize(
    ("board", "rcc", "domain", "rtc", "settings", "rate"),
    [
        ("stm32f746", RCC, 0x70, RTC, (0x08, 8 << 16), 1_000_000),
        ("nucleo-l4r5zi", 0x40021000, 0x90, RTC, None, 250_000),
        ("nucleo-h743zi", 0x58024400, 0x70, 0x58004000, (0x10, 8 << 8), 1_000_000),
    ],
)
def test_calendar_has_the_selected_clock(
    board: str, rcc: int, domain: int, rtc: int, settings: tuple[int, int] | None, rate: int
) -> None:
    """RTCSEL: LSE, LSI, and HSE divided by RTCPRE, on the STM32L4 by 32."""
    chip = Chip(board, rtc)
    core = rates_on(chip.machine._bus).core
    if settings:
        chip.put(rcc - rtc + settings[0], settings[1])
    for source, expected in ((1, 32_768), (2, 32_000), (3, rate)):
        chip.put(rcc - rtc + domain, source << 8)
        chip.put(0x10, (64 - 1) << 16 | round(expected / 64) - 1)
        chip.put(0x00, 0)
        chip.pass_ticks(3 * core + core // 100)
        assert chip.get(0x00) == 3


def test_pin_interrupts_at_the_selected_edge(target: Target) -> None:
    target.load(
        f"""
        handler reset
        {ENABLE_40_AND_41}
        ldr r0, ={SYSCFG:#x}
        movs r1, #0x20          @ EXTI13 of port C
        str r1, [r0, #0x14]
        ldr r0, ={EXTI:#x}
        mov r1, #0x2000
        str r1, [r0]
        str r1, [r0, #8]
        1: wfi
        b 1b
        handler irq40
        ldr r4, [r0, #0x14]
        str r4, [r0, #0x14]
        ldr r5, [r0, #0x14]
        done
        """
    )
    target.resume()
    target.wait_for(S_SLEEP)
    target.poke(GPIOC + 0x10, 1 << 12)  # another pin
    assert target.peek(EXTI + 0x14) == 0
    target.poke(GPIOC + 0x10, 1 << 13)
    target.wait_for_halt()
    assert [target.register(number) for number in (4, 5)] == [1 << 13, 0]
    target.poke(GPIOC + 0x10, 0)  # a falling edge
    assert target.peek(EXTI + 0x14) == 0


@pytest.mark.parametrize(("board", "idle"), [("nucleo-h743zi", 0x58004800), ("nucleo-l4r5zi", 0x40003000)])
def test_watchdog_of_h7_and_l4_resets(tmp_path: Path, board: str, idle: int) -> None:
    with Target(tmp_path, board) as target:
        target.halt()
        target.poke(idle, 0xCCCC)
        assert target.machine._cpu._next_event() is not None


def test_clock_set_by_firmware_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # HSE and PLL on; 8 MHz / 8 * 336 / 2; the PLL as the core's clock (RM0090, 7.3)
    stores = ((0, 0x01010083), (4, 0x07405408), (8, 2))
    program = "".join(f"ldr r1, ={value}\nstr r1, [r0, #{offset}]\n" for offset, value in stores)
    with Target(tmp_path, "stm32f407") as target:
        target.run(f"handler reset\nldr r0, ={RCC}\n{program}done")
        target.poke(RCC + 8, 0)  # a debugger sets another clock
        (tmp_path / "virtual.log").write_text(caplog.text)
        assert read_clock(tmp_path) == 168_000_000
