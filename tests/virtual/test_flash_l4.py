# SPDX-License-Identifier: Apache-2.0
"""The flash controller of the STM32L4: keys, double words, pages of two banks, errors (RM0432, 3.3 and 3.7)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import FLASH, Target

KEYR, SR, CR, OPTR = 0x40022008, 0x40022010, 0x40022014, 0x40022020
PROGERR, PGAERR, SIZERR, PGSERR, BSY = 1 << 3, 1 << 5, 1 << 6, 1 << 7, 1 << 16
PG, PER, MER1, BKER, MER2, STRT, LOCK = 1 << 0, 1 << 1, 1 << 2, 1 << 11, 1 << 15, 1 << 16, 1 << 31
BANK2, PAGE = FLASH + 0x100000, 4096


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with Target(tmp_path, "nucleo-l4r5zi") as target:
        yield target


@pytest.fixture
def unlocked(target: Target) -> Target:
    for key in (0x45670123, 0xCDEF89AB):
        target.poke(KEYR, key)
    assert not target.peek(CR) & LOCK
    return target


def _program(target: Target, address: int, low: int, high: int) -> int:
    """Program a double word and return SR while it is busy."""
    target.poke(CR, PG)
    target.poke(address, low)
    target.poke(address + 4, high)
    busy = target.peek(SR)
    target.poke(CR, 0)
    assert not target.peek(SR) & BSY
    return busy


def test_flash_is_locked_after_a_reset(target: Target) -> None:
    assert target.peek(CR) == 0xC0000000
    assert target.peek(OPTR) == 0xFFEFF8AA  # level 0, two banks
    target.poke(CR, PG)
    assert target.peek(CR) == 0xC0000000
    target.poke(KEYR, 1)
    for key in (0x45670123, 0xCDEF89AB):
        target.poke(KEYR, key)
    assert target.peek(CR) & LOCK  # until the next reset


def test_double_word_is_programmed_with_its_second_half(unlocked: Target) -> None:
    unlocked.poke(CR, PG)
    unlocked.poke(FLASH + 8, 0x12345678)
    assert unlocked.peek(FLASH + 8) == 0xFFFFFFFF
    assert unlocked.peek(SR) == 0
    unlocked.poke(FLASH + 12, 0x9ABCDEF0)
    assert unlocked.peek(SR) == BSY
    assert (unlocked.peek(FLASH + 8), unlocked.peek(FLASH + 12)) == (0x12345678, 0x9ABCDEF0)


def test_only_zeros_are_programmed_over_other_values(unlocked: Target) -> None:
    assert _program(unlocked, FLASH, 1, 2) == BSY
    assert _program(unlocked, FLASH, 0, 2) == PROGERR
    unlocked.poke(SR, PROGERR)
    assert unlocked.peek(FLASH) == 1
    assert _program(unlocked, FLASH, 0, 0) == BSY
    assert unlocked.peek(FLASH) == 0


@pytest.mark.parametrize(
    ("control", "writes", "error"),
    [
        (0, [(FLASH, 4)], PGSERR),
        (PG, [(FLASH, 1)], SIZERR),
        (PG, [(FLASH, 2)], SIZERR),
        (PG, [(FLASH + 4, 4)], PGAERR),
        (PG, [(FLASH, 4), (FLASH + 12, 4)], PGAERR),
    ],
)
def test_wrong_writes_change_nothing(unlocked: Target, control: int, writes: list[tuple[int, int]], error: int) -> None:
    unlocked.poke(CR, control)
    for address, size in writes:
        unlocked.machine.write(address, bytes(size))
    assert unlocked.peek(SR) == error
    assert unlocked.machine.read(FLASH, 16) == b"\xff" * 16
    # A pending error blocks the next write until a one clears it.
    unlocked.poke(CR, PG)
    unlocked.poke(FLASH, 0)
    assert unlocked.peek(SR) == error | PGSERR
    unlocked.poke(SR, error | PGSERR)
    assert unlocked.peek(SR) == 0


@pytest.mark.parametrize(
    ("control", "erased"),
    [
        (PER | 1 << 3, [FLASH + PAGE]),
        (PER | BKER, [BANK2]),
        (MER1, [FLASH, FLASH + PAGE]),
        (MER2, [BANK2]),
        (MER1 | MER2, [FLASH, FLASH + PAGE, BANK2]),
    ],
)
def test_pages_and_banks_are_erased(unlocked: Target, control: int, erased: list[int]) -> None:
    addresses = [FLASH, FLASH + PAGE, BANK2]
    for address in addresses:
        _program(unlocked, address, 1, 2)
    unlocked.poke(CR, control | STRT)
    assert unlocked.peek(SR) == BSY
    assert [address for address in addresses if unlocked.peek(address) == 0xFFFFFFFF] == erased


def test_erase_without_a_selection_is_an_error(unlocked: Target) -> None:
    unlocked.poke(CR, STRT)
    assert unlocked.peek(SR) == PGSERR
