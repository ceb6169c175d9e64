# SPDX-License-Identifier: Apache-2.0
"""The flash controller follows RM0385, section 3, for a debugger and for the core."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.virtual.target import FLASH, Target
from utvm.paths import ROOT
from utvm.virtual.bus import BusError

ACR, KEYR, OPTKEYR, SR, CR, OPTCR, OPTCR1 = (0x40023C00 + offset for offset in (0, 4, 8, 0xC, 0x10, 0x14, 0x18))
PG, SER, MER, STRT, EOPIE, ERRIE, LOCK = 1, 2, 4, 1 << 16, 1 << 24, 1 << 25, 1 << 31
MER1 = 1 << 15
EOP, OPERR, WRPERR, PGAERR, PGPERR, ERSERR, BSY = 1, 2, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 16
BYTES, HALFWORDS, WORDS = 0, 1 << 8, 2 << 8
SECTORS = [32, 32, 32, 32, 128, 256, 256, 256]


@pytest.fixture
def flash(target: Target) -> Target:
    """A board with a halted core and an erased flash."""
    target.load("handler reset\ndone")
    target.machine.hold_reset()
    _unlock(target)
    _erase(target, MER)
    return target


def _unlock(target: Target) -> None:
    target.poke(KEYR, 0x45670123)
    target.poke(KEYR, 0xCDEF89AB)


def _erase(target: Target, selection: int) -> None:
    target.poke(CR, selection | STRT)
    target.poke(CR, 0)
    target.peek(SR)


def _errors(target: Target) -> int:
    """Read the error flags and clear them."""
    target.peek(SR)  # BSY is set
    flags = target.peek(SR)
    assert not flags & BSY
    target.poke(SR, flags)
    return flags


def test_locked_flash_refuses_writes(flash: Target) -> None:
    flash.poke(CR, LOCK)
    flash.poke(CR, PG | WORDS)
    assert flash.peek(CR) == LOCK
    flash.poke(FLASH, 0)
    assert _errors(flash) == ERSERR
    assert flash.peek(FLASH) == 0xFFFFFFFF


@pytest.mark.parametrize("keys", [(0xCDEF89AB,), (0x45670123, 0x45670123), (0x45670123, 0, 0xCDEF89AB)])
def test_wrong_key_locks_until_the_next_reset(flash: Target, keys: tuple[int, ...]) -> None:
    flash.poke(CR, LOCK)
    for key in keys:
        flash.poke(KEYR, key)
    _unlock(flash)
    assert flash.peek(CR) & LOCK
    flash.machine.hold_reset()
    _unlock(flash)
    assert not flash.peek(CR) & LOCK


def test_programming_needs_pg(flash: Target) -> None:
    flash.poke(FLASH, 0)
    assert _errors(flash) == ERSERR
    assert flash.peek(FLASH) == 0xFFFFFFFF


def test_programming_only_clears_bits(flash: Target) -> None:
    flash.poke(CR, PG | WORDS)
    flash.poke(FLASH, 0xF0F0FFFF)
    flash.poke(FLASH, 0xFF00F00F)
    assert flash.peek(FLASH) == 0xF000F00F
    assert _errors(flash) == 0


@pytest.mark.parametrize("parallelism", [BYTES, HALFWORDS, WORDS])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_parallelism_must_equal_the_access_width(flash: Target, parallelism: int, size: int) -> None:
    flash.poke(CR, PG | parallelism)
    flash.machine.write(FLASH + 16, b"\x12\x34\x56\x78"[:size])
    fits = 1 << (parallelism >> 8) == size
    assert _errors(flash) == (0 if fits else PGPERR)
    assert flash.machine.read(FLASH + 16, size) == (b"\x12\x34\x56\x78"[:size] if fits else b"\xff" * size)


def test_busy_and_end_of_operation_flags(flash: Target) -> None:
    flash.poke(CR, PG | WORDS)
    flash.poke(FLASH, 1)
    assert flash.peek(SR) == BSY
    assert flash.peek(SR) == 0
    flash.poke(CR, PG | WORDS | EOPIE | ERRIE)
    flash.poke(FLASH, 0)
    assert _errors(flash) == EOP
    flash.machine.write(FLASH, b"\0")
    assert _errors(flash) == PGPERR | OPERR


@pytest.mark.parametrize("number", range(8))
def test_sector_is_erased_without_its_neighbours(flash: Target, number: int) -> None:
    start = FLASH + 1024 * sum(SECTORS[:number])
    end = start + 1024 * SECTORS[number]
    addresses = [address for address in (start - 4, start, end - 4, end) if FLASH <= address < FLASH + 0x100000]
    flash.poke(CR, PG | WORDS)
    for address in addresses:
        flash.poke(address, 0)
    flash.poke(CR, 0)
    _erase(flash, SER | number << 3)
    for address in addresses:
        assert flash.peek(address) == (0xFFFFFFFF if start <= address < end else 0)
    assert _errors(flash) == 0


def test_erase_sequence_errors(flash: Target) -> None:
    flash.poke(CR, STRT)
    assert _errors(flash) == ERSERR
    flash.poke(CR, SER | PG | STRT)
    assert _errors(flash) == ERSERR
    flash.poke(CR, SER | 8 << 3 | STRT)  # there is no sector 8
    assert _errors(flash) == ERSERR
    flash.poke(CR, SER | PG | WORDS)
    flash.poke(FLASH, 0)  # programming in erase mode
    assert _errors(flash) == ERSERR


def test_write_protection(flash: Target) -> None:
    assert flash.peek(OPTCR) == 0xC0FFAAFD
    flash.poke(OPTCR, 0)  # locked: ignored
    assert flash.peek(OPTCR) == 0xC0FFAAFD
    flash.poke(OPTKEYR, 0x08192A3B)
    flash.poke(OPTKEYR, 0x4C5D6E7F)
    assert flash.peek(OPTCR) == 0xC0FFAAFC
    flash.poke(OPTCR, 0xC0FDAAFC | 2)  # nWRP1 = 0
    flash.machine.hold_reset()
    assert flash.peek(OPTCR) == 0xC0FDAAFD  # the option bytes survive
    _unlock(flash)
    flash.poke(CR, PG | WORDS)
    flash.poke(FLASH + 0x8000, 0)
    assert _errors(flash) == WRPERR
    flash.poke(FLASH, 0)
    assert _errors(flash) == 0
    for selection in (MER, SER | 1 << 3):
        flash.poke(CR, selection | STRT)
        assert _errors(flash) == WRPERR
    assert flash.peek(FLASH) == 0


def test_flash_is_readable_at_the_itcm_bus(flash: Target) -> None:
    flash.poke(CR, PG | WORDS)
    flash.poke(FLASH + 0x40, 0x12345678)
    assert flash.peek(0x00200040) == 0x12345678


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 2**32 - 1)), max_size=20))
def test_written_values_are_combined_by_and(flash: Target, writes: list[tuple[int, int]]) -> None:
    flash.poke(CR, 0)
    _erase(flash, SER)
    flash.poke(CR, PG | WORDS)
    expected = [0xFFFFFFFF] * 16
    for word, value in writes:
        flash.poke(FLASH + 4 * word, value)
        expected[word] &= value
    assert [flash.peek(FLASH + 4 * word) for word in range(16)] == expected


def test_core_programs_flash_and_runs_the_code(target: Target) -> None:
    """Code in its own sector is run, replaced and run again, through both buses."""
    target.run(
        f"""
        .macro program value
        ldr r0, =\\value
        str r0, [r5]
        1: ldr r0, [r4, #0xC]
        tst r0, #0x10000
        bne 1b
        .endm
        .macro erase
        ldr r0, =0x1000A
        str r0, [r4, #0x10]
        2: ldr r0, [r4, #0xC]
        tst r0, #0x10000
        bne 2b
        ldr r0, =0x201
        str r0, [r4, #0x10]
        .endm
        handler reset
        ldr r4, =0x40023C00
        ldr r0, =0x45670123
        str r0, [r4, #4]
        ldr r0, =0xCDEF89AB
        str r0, [r4, #4]
        ldr r5, ={FLASH + 0x8000:#x}
        ldr r10, =0x00208001
        orr r11, r5, #1
        erase
        program 0x47702001      @ movs r0, #1; bx lr
        blx r11
        mov r6, r0
        blx r10
        mov r7, r0
        erase
        program 0x47702002
        blx r11
        mov r8, r0
        blx r10
        mov r9, r0
        done
        """
    )
    assert [target.register(number) for number in (6, 7, 8, 9)] == [1, 1, 2, 2]


def test_core_stores_follow_the_rules(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r4, =0x40023C00
        ldr r0, ={FLASH + 0x8000:#x}
        ldr r2, [r0]
        movs r1, #0
        str r1, [r0]
        ldr r5, [r4, #0xC]
        ldr r6, [r0]
        stmia r0!, {{r1, r2}}
        strh r1, [r0]
        ldr r7, [r0]
        done
        """
    )
    assert target.register(5) == ERSERR
    assert target.register(6) == target.register(7) == 0xFFFFFFFF
    assert target.machine.read(FLASH + 0x8000, 16) == b"\xff" * 16


def test_flash_interrupt(target: Target) -> None:
    target.run(
        f"""
        handler reset
        ldr r4, =0x40023C00
        ldr r0, =0x45670123
        str r0, [r4, #4]
        ldr r0, =0xCDEF89AB
        str r0, [r4, #4]
        ldr r0, ={PG | WORDS | EOPIE:#x}
        str r0, [r4, #0x10]
        ldr r0, =0xE000E100
        movs r1, #16
        str r1, [r0]
        ldr r0, ={FLASH + 0x8000:#x}
        str r1, [r0]
        b .
        handler irq4
        movs r1, #1
        str r1, [r4, #0xC]
        mrs r6, ipsr
        done
        """
    )
    assert target.register(6) == 20
    assert target.peek(0xE000E200) == 0


@pytest.fixture
def two_banks(tmp_path: Path) -> Iterator[Target]:
    """A chip like the STM32F429, with 2 MiB (RM0090, table 6)."""
    source = ROOT / "utvm" / "boards" / "stm32f407"
    description = (source / "board.yaml").read_text().replace("name: stm32f407", "name: f429")
    sectors = ", ".join(2 * (["16K"] * 4 + ["64K"] + ["128K"] * 7))
    description = re.sub(r"sectors: \[.*\]", f"sectors: [{sectors}]", description).replace("size: 1M", "size: 2M")
    shutil.copytree(source, tmp_path / "f429")
    (tmp_path / "f429" / "board.yaml").write_text(description)
    with Target(tmp_path, str(tmp_path / "f429")) as target:
        target.machine.hold_reset()
        _unlock(target)
        _erase(target, MER | MER1)
        yield target


def test_second_bank_has_own_numbers_and_protection(two_banks: Target) -> None:
    """RM0090, 3.9.8: sector 12 is 0b10000, sector 23 is 0b11011; the numbers 12 to 15 are reserved."""
    addresses = [FLASH + 0xFFFFC, FLASH + 0x100000, FLASH + 0x104000, FLASH + 0x1FFFFC]

    def programmed_after_erase(selection: int) -> list[bool]:
        two_banks.poke(CR, PG | WORDS)
        for address in addresses:
            two_banks.poke(address, 0)
        assert _errors(two_banks) == 0
        _erase(two_banks, selection)
        return [two_banks.peek(address) == 0 for address in addresses]

    assert programmed_after_erase(MER) == [False, True, True, True]
    assert programmed_after_erase(MER1) == [True, False, False, False]
    assert programmed_after_erase(SER | 11 << 3) == [False, True, True, True]
    assert programmed_after_erase(SER | 16 << 3) == [True, False, True, True]
    assert programmed_after_erase(SER | 17 << 3) == [True, True, False, True]
    assert programmed_after_erase(SER | 27 << 3) == [True, True, True, False]
    for number in (12, 15, 28, 31):
        two_banks.poke(CR, SER | number << 3 | STRT)
        assert _errors(two_banks) == ERSERR
    assert two_banks.peek(OPTCR1) == 0x0FFF0000
    for key in (0x08192A3B, 0x4C5D6E7F):
        two_banks.poke(OPTKEYR, key)
    two_banks.poke(OPTCR1, 0x0FFE0000)
    two_banks.poke(CR, SER | 16 << 3 | STRT)
    assert _errors(two_banks) == WRPERR


def test_read_protection_blocks_a_debugger(flash: Target) -> None:
    """RM0385, 3.6: level 1 blocks, return to level 0 erases; level 2 is refused."""
    flash.poke(CR, PG | WORDS)
    flash.poke(FLASH, 0x12345678)
    for key in (0x08192A3B, 0x4C5D6E7F):
        flash.poke(OPTKEYR, key)
    flash.poke(OPTCR, 0xC0FFCCFC | 2)
    assert (flash.peek(OPTCR) >> 8 & 0xFF, flash.peek(FLASH)) == (0xAA, 0x12345678)
    flash.poke(OPTCR, 0xC0FF55FC | 2)
    for address in (FLASH, 0x00200000):
        with pytest.raises(BusError):
            flash.peek(address)
    flash.poke(OPTCR, 0xC0FFAAFC | 2)
    assert (flash.peek(OPTCR) >> 8 & 0xFF, flash.peek(FLASH)) == (0xAA, 0xFFFFFFFF)
