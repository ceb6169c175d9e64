# SPDX-License-Identifier: Apache-2.0
"""A virtual board has all peripherals of its chip: models of some, stored registers for the others."""

import binascii
import zlib

import pytest

from tests.virtual.target import Target
from utvm import boards
from utvm.errors import ConfigError
from utvm.virtual import blocks
from utvm.virtual.bus import BusError
from utvm.virtual.machine import BoardModel

TIM3, TIM1, RNG, CRC, ADC1, LTDC, GPIOD = (
    0x40000400,
    0x40010000,
    0x50060800,
    0x40023000,
    0x40012000,
    0x40016800,
    0x40020C00,
)
MODELLED = [name for name in boards.names() if boards.load(name).virtual.model]


def test_unmodelled_peripheral_is_reported_once(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r0, ={LTDC:#x}
        ldr r1, [r0, #0x18]     @ GCR: 0x2220 after a reset (RM0385, 18.7.5)
        movs r2, #0x2C
        str r2, [r0, #8]
        ldr r3, [r0, #8]
        str r2, [r0, #0x44]     @ CPSR is read-only
        ldr r4, [r0, #0x44]
        done
        """
    )
    assert [target.register(number) for number in (1, 3, 4)] == [0x2220, 0x2C, 0]
    (message,) = target.machine.touched
    assert message.startswith(f"touched LTDC at {LTDC + 0x18:#010x} from PC 0x0800020")


def test_debugger_access_is_not_reported(target: Target) -> None:
    assert target.peek(LTDC + 0x18) == 0x2220
    assert target.machine.touched == []


@pytest.mark.parametrize(
    ("board", "address", "value"),
    [
        # Reset values: RM0090, 8.4.1 and 30.6.1; RM0385, 6.4.1; RM0432, 8.4.1; nRF52840 PS 1.7, 6.9.2
        ("stm32f407", 0x40020000, 0xA8000000),
        ("stm32f407", 0x40011000, 0xC0),
        ("stm32f746", 0x40020400, 0x00000280),
        ("nucleo-l4r5zi", 0x48000400, 0xFFFFFEBF),
        ("nrf52840dk", 0x50000700, 2),
    ],
)
def test_reset_values_equal_the_manuals(board: str, address: int, value: int) -> None:
    machine = BoardModel(boards.load(board).machine_spec())
    assert int.from_bytes(machine.read(address, 4), "little") == value


@pytest.mark.parametrize(
    ("board", "line", "sent"),
    [("nucleo-l4r5zi", 0x40008000, b"!"), ("nucleo-l552ze-q", 0x40008000, b"!"), ("nucleo-h743zi", 0x58000C00, b"")],
)
def test_lpuart1_is_the_console_without_another_line(board: str, line: int, sent: bytes) -> None:
    machine, output = BoardModel(boards.load(board).machine_spec()), bytearray()
    machine.on_console_output = output.extend
    for offset, value in ((0x0C, 0x22B9), (0x00, 9), (0x28, ord("!"))):  # BRR, CR1, TDR (RM0432, 44.7)
        machine.write(line + offset, value.to_bytes(4, "little"))
    assert output == sent


@pytest.mark.parametrize("board", MODELLED)
def test_holes_are_bus_faults(board: str) -> None:
    machine = BoardModel(boards.load(board).machine_spec())
    for address in (boards.load(board).hole, 0x7FFFFFF0):
        with pytest.raises(BusError):
            machine.read(address, 4)


def test_timer_compares_and_interrupts(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r2, =0xE000E100
        ldr r1, =1 << 29        @ TIM3 (RM0385, table 46)
        str r1, [r2]
        ldr r0, ={TIM3:#x}
        ldr r1, =999
        str r1, [r0, #0x2C]
        movs r1, #100
        str r1, [r0, #0x38]     @ CCR2
        movs r1, #4             @ CC2IE
        str r1, [r0, #0x0C]
        movs r1, #1
        str r1, [r0]
        1: wfi
        cmp r7, #3
        bne 1b
        ldr r4, [r0, #0x24]
        done
        handler irq29
        ldr r5, [r0, #0x10]
        movs r1, #0
        str r1, [r0, #0x10]
        adds r7, #1
        bx lr
        """
    )
    assert target.register(5) & 4
    assert 100 <= target.register(4) <= 120


def test_update_has_its_own_line_in_tim1(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r2, =0xE000E100
        ldr r1, =1 << 25        @ TIM1_UP
        str r1, [r2]
        ldr r0, ={TIM1:#x}
        movs r1, #99
        str r1, [r0, #0x2C]
        movs r1, #1
        str r1, [r0, #0x0C]
        str r1, [r0]
        1: wfi
        b 1b
        handler irq25
        done
        """
    )
    assert target.peek(TIM1 + 0x10) & 1


def test_crc_with_both_reversals_equals_zlib(target: Target) -> None:
    target.poke(CRC + 8, 1 << 7 | 1 << 5 | 1)  # REV_OUT, REV_IN by bytes, RESET
    for byte in b"123456789":
        target.machine.write(CRC, bytes([byte]))
    assert target.peek(CRC) ^ 0xFFFFFFFF == zlib.crc32(b"123456789") == 0xCBF43926


def test_crc_of_a_word_equals_the_manual(target: Target) -> None:
    target.poke(CRC + 8, 1)
    target.poke(CRC, 0x12345678)
    assert target.peek(CRC) == 0xDF8A8A2B  # CRC-32/MPEG-2 of the bytes 12 34 56 78


def test_crc_starts_with_the_written_initial_value(target: Target) -> None:
    target.poke(CRC + 8, 1 << 3)  # 16 bits
    target.poke(CRC + 0x14, 0x1021)
    target.poke(CRC + 0x10, 0)
    for byte in b"123456789":
        target.machine.write(CRC, bytes([byte]))
    assert target.peek(CRC) == binascii.crc_hqx(b"123456789", 0) == 0x31C3


def test_random_numbers_are_ready_and_differ(target: Target) -> None:
    assert target.peek(RNG + 4) & 1 == 0
    target.poke(RNG, 4)
    assert target.peek(RNG + 4) & 1
    assert len({target.peek(RNG + 8) for _ in range(8)}) == 8


def test_debugger_sets_inputs_of_adc_and_pin(target: Target) -> None:
    target.poke(ADC1 + 0x4C, 0x123)
    target.poke(GPIOD + 0x10, 1 << 12)
    target.run(
        f"""
        handler reset
        ldr r0, ={ADC1:#x}
        ldr r1, =1 << 30 | 1    @ SWSTART, ADON
        str r1, [r0, #8]
        ldr r2, [r0]
        ldr r3, [r0, #0x4C]
        ldr r0, ={GPIOD:#x}
        str r1, [r0, #0x10]     @ IDR is read-only
        ldr r4, [r0, #0x10]
        done
        """
    )
    assert target.register(2) & 2
    assert target.register(3) == 0x7FF  # the value in the middle, after the reset that starts a program
    target.poke(GPIOD + 0x10, 1 << 12)
    assert target.peek(GPIOD + 0x10) == 1 << 12


def test_bit_band_alias_writes_one_bit() -> None:
    machine = BoardModel(boards.load("stm32f407").machine_spec())
    machine.write(0x42000000 + (GPIOD + 0x14 - 0x40000000) * 32 + 12 * 4, (1).to_bytes(4, "little"))
    assert int.from_bytes(machine.read(GPIOD + 0x14, 4), "little") == 1 << 12


def test_cpacr_01_enables_floats_for_privileged_code(target: Target) -> None:
    program = """
        handler reset
        ldr r0, =0xE000ED88
        ldr r1, =0x00500000
        str r1, [r0]
        movs r2, #{privilege}
        msr control, r2
        isb
        vmov s0, r1
        done
        handler hard_fault
        done
    """
    target.run(program.format(privilege=0))
    assert target.register(16) & 0x1FF == 0
    target.run(program.format(privilege=1))
    assert target.register(16) & 0x1FF == 3
    assert target.peek(0xE000ED28) & 1 << 19  # NOCP


def _count_to_the_end(target: Target) -> int:
    """Number of instructions of the loaded program."""
    before = target.machine.instructions
    target.resume()
    target.wait_for_halt()
    return target.machine.instructions - before


def test_polling_loop_takes_few_instructions(target: Target) -> None:
    target.load(
        """
        handler reset
        ldr r0, =0x40000000     @ TIM2
        movs r1, #1
        str r1, [r0]
        ldr r3, =1000000
        1: ldr r2, [r0, #0x24]
        cmp r2, r3
        blo 1b
        done
        """
    )
    assert _count_to_the_end(target) < 10_000
    assert 1_000_000 <= target.register(2) < 1_130_000


def test_waits_in_a_row_take_their_time(target: Target) -> None:
    target.load(
        """
        handler reset
        ldr r0, =0xE000E010     @ SysTick without an interrupt; reading CTRL clears COUNTFLAG
        ldr r1, =9999
        str r1, [r0, #4]
        movs r1, #5
        str r1, [r0]
        ldr r4, =0x40000000     @ TIM2 counts ticks
        movs r1, #1
        str r1, [r4]
        movs r3, #100
        1: ldr r2, [r0]
        lsls r2, #15
        bpl 1b
        subs r3, #1
        bne 1b
        ldr r5, [r4, #0x24]
        done
        """
    )
    assert _count_to_the_end(target) < 50_000
    assert 990_000 <= target.register(5) < 1_130_000


def test_endless_wait_passes_bounded_time(target: Target) -> None:
    target.load(
        """
        handler reset
        ldr r0, =0x40004800     @ USART3: no input comes
        movs r1, #5
        str r1, [r0]
        1: ldr r2, [r0, #0x1c]
        lsls r2, #26
        bpl 1b
        """
    )
    target.resume()
    target.wait_until(lambda: target.machine.instructions > 3000)
    target.halt()
    assert target.machine._cpu.now() < target.machine.instructions << 20


@pytest.mark.parametrize(("pause", "minimum", "maximum"), [(1, 0, 10_000), (200, 900_000, 1_100_000)])
def test_only_short_loops_count_as_polling(target: Target, pause: int, minimum: int, maximum: int) -> None:
    target.load(
        f"""
        handler reset
        ldr r0, =0x40000000     @ TIM2
        movs r1, #1
        str r1, [r0]
        ldr r3, =1000000
        1: ldr r4, [r0, #0x10]  @ SR, as drivers look for errors, too
        mov r5, #{pause}
        2: subs r5, #1
        bne 2b
        ldr r2, [r0, #0x24]
        cmp r2, r3
        blo 1b
        done
        """
    )
    assert minimum <= _count_to_the_end(target) <= maximum


def test_invalid_row_of_peripherals_is_named() -> None:
    with pytest.raises(ConfigError, match="row 2: 'TIM2 40000000' is not a peripheral"):
        blocks.parse("CHIP\nTIM2 40000000\n")


def test_uicr_is_written_through_the_flash_controller() -> None:
    machine = BoardModel(boards.load("nrf52840dk").machine_spec())
    with pytest.raises(BusError):
        machine.write(0x10001080, bytes(4))
    machine.write(0x4001E504, (1).to_bytes(4, "little"))
    machine.write(0x10001080, (0x12345678).to_bytes(4, "little"))
    assert machine.read(0x10001080, 4) == (0x12345678).to_bytes(4, "little")
    machine.write(0x4001E504, (2).to_bytes(4, "little"))
    machine.write(0x4001E514, (1).to_bytes(4, "little"))  # ERASEUICR
    assert machine.read(0x10001080, 4) == b"\xff" * 4


@pytest.mark.parametrize(
    ("board", "control", "enable", "ready"),
    [
        ("nucleo-l4r5zi", 0x40021000, 24, 25),
        ("nucleo-l552ze-q", 0x40021000, 16, 17),
        ("nucleo-h743zi", 0x58024400, 24, 25),
    ],
)
def test_enabled_clock_is_ready(board: str, control: int, enable: int, ready: int) -> None:
    machine = BoardModel(boards.load(board).machine_spec())
    states = []
    for value in (0, 1 << enable):
        machine.write(control, value.to_bytes(4, "little"))
        states.append(int.from_bytes(machine.read(control, 4), "little") >> ready & 1)
    assert states == [0, 1]
