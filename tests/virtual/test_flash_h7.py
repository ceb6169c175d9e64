# SPDX-License-Identifier: Apache-2.0
"""Features of the virtual STM32H743: flash with 256-bit words, access ports, double precision."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual.target import FLASH, Target
from utvm.virtual.stlink import BAD_AP, OK, StLink

BANK2, SECTOR, WORD = FLASH + 0x100000, 0x20000, 32
REGISTERS = {FLASH: 0x52002000, BANK2: 0x52002100}
KEYR, CR, SR, CCR = 0x04, 0x0C, 0x10, 0x14
LOCK, PG, SER, BER, FW, START = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 6, 1 << 7
BSY, WBNE, QW, EOP = 1 << 0, 1 << 1, 1 << 2, 1 << 16
PGSERR, STRBERR, INCERR, DBECCERR = 1 << 18, 1 << 19, 1 << 21, 1 << 26
DONE = BSY | QW | EOP


class H7Target(Target):
    def unlock(self, bank: int) -> None:
        for key in (0x45670123, 0xCDEF89AB):
            self.poke(REGISTERS[bank] + KEYR, key)

    def program(self, image: bytes) -> None:
        for bank in REGISTERS:
            self.unlock(bank)
        self.control(FLASH, BER | START)
        self.control(FLASH, PG)
        self.machine.write(FLASH, image.ljust(-(-len(image) // WORD) * WORD, b"\xff"))

    def control(self, bank: int, value: int) -> None:
        self.poke(REGISTERS[bank] + CR, value)

    def status(self, bank: int) -> int:
        return self.peek(REGISTERS[bank] + SR)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[H7Target]:
    with H7Target(tmp_path, "nucleo-h743zi") as target:
        yield target


@pytest.fixture
def unlocked(target: H7Target) -> H7Target:
    for bank in REGISTERS:
        target.unlock(bank)
        target.control(bank, PG)
    return target


def test_banks_are_locked_separately(target: H7Target) -> None:
    target.unlock(BANK2)
    for bank in REGISTERS:
        target.control(bank, PG)
        target.machine.write(bank, bytes(WORD))
    assert target.peek(REGISTERS[FLASH] + CR) == 0x31
    assert target.status(FLASH) == PGSERR
    assert target.status(BANK2) == DONE
    assert target.machine.read(FLASH, WORD) == b"\xff" * WORD
    assert target.machine.read(BANK2, WORD) == bytes(WORD)


def test_wrong_key_locks_until_the_next_reset(target: H7Target) -> None:
    target.poke(REGISTERS[FLASH] + KEYR, 1)
    target.unlock(FLASH)
    assert target.peek(REGISTERS[FLASH] + CR) & LOCK
    target.machine.hold_reset()
    target.machine.release_reset()
    target.unlock(FLASH)
    assert not target.peek(REGISTERS[FLASH] + CR) & LOCK


def test_word_is_programmed_with_its_last_byte(unlocked: H7Target) -> None:
    data = bytes(range(WORD))
    unlocked.machine.write(FLASH + WORD, data[:-4])
    assert unlocked.status(FLASH) == WBNE
    assert unlocked.machine.read(FLASH + WORD, WORD) == b"\xff" * WORD
    unlocked.machine.write(FLASH + 2 * WORD - 4, data[-4:])
    assert (unlocked.status(FLASH), unlocked.status(FLASH)) == (DONE, EOP)
    assert unlocked.machine.read(FLASH + WORD, WORD) == data


def test_force_write_programs_an_incomplete_word(unlocked: H7Target) -> None:
    unlocked.machine.write(FLASH + 4, b"abcd")
    unlocked.control(FLASH, PG | FW)
    assert unlocked.status(FLASH) == DONE
    assert unlocked.machine.read(FLASH, 12) == b"\xff" * 4 + b"abcd" + b"\xff" * 4


@pytest.mark.parametrize(
    ("writes", "error"),
    [
        ([0, WORD], INCERR),  # another word before the first was complete
        ([WORD - 4, WORD], INCERR),  # across the end of a word
        ([8, 8], STRBERR),  # the same bytes twice
    ],
)
def test_wrongly_written_word_stays_erased(unlocked: H7Target, writes: list[int], error: int) -> None:
    for offset in writes:
        unlocked.poke(FLASH + offset, 0)
    assert unlocked.status(FLASH) & ~WBNE == error
    assert unlocked.machine.read(FLASH, 2 * WORD) == b"\xff" * 2 * WORD
    unlocked.poke(REGISTERS[FLASH] + CCR, error)
    assert not unlocked.status(FLASH) & error


def test_overwritten_word_has_an_ecc_error(unlocked: H7Target) -> None:
    unlocked.machine.write(FLASH, b"\x0f" * WORD)
    unlocked.machine.write(FLASH, b"\x3c" * WORD)
    assert unlocked.status(FLASH) == DONE | DBECCERR
    assert unlocked.machine.read(FLASH, WORD) == b"\x0c" * WORD


@pytest.mark.parametrize(
    ("bank", "control", "erased"),
    [
        (FLASH, SER | 1 << 8, [FLASH + SECTOR]),
        (BANK2, SER, [BANK2]),
        (BANK2, BER, [BANK2, BANK2 + SECTOR]),
        (FLASH, BER, [FLASH, FLASH + SECTOR]),
    ],
)
def test_sectors_and_banks_are_erased(unlocked: H7Target, bank: int, control: int, erased: list[int]) -> None:
    addresses = [FLASH, FLASH + SECTOR, BANK2, BANK2 + SECTOR]
    for address in addresses:
        unlocked.machine.write(address, bytes(WORD))
    unlocked.control(bank, control | START)
    assert unlocked.status(bank) == DONE
    assert [address for address in addresses if unlocked.peek(address)] == erased


@pytest.mark.parametrize("control", [0, PG | SER, PG | BER])
def test_invalid_erase_request_is_an_error(unlocked: H7Target, control: int) -> None:
    unlocked.machine.write(FLASH, bytes(WORD))
    unlocked.status(FLASH)
    unlocked.control(FLASH, control | START)
    assert unlocked.status(FLASH) == EOP | PGSERR
    assert unlocked.machine.read(FLASH, WORD) == bytes(WORD)


def _command(probe: StLink, *values: int, size: int = 12) -> bytes:
    return probe.execute(bytes(values).ljust(16, b"\0"), b"", size)


def test_debug_components_are_at_access_port_2(target: H7Target) -> None:
    probe = StLink(target.machine)
    _command(probe, 0xF2, 0x30, 0xA3)
    assert int.from_bytes(_command(probe, 0xF2, 0x31)[4:8], "little") == 0x6BA02477  # stm32h7x.cfg
    assert [_command(probe, 0xF2, 0x4B, port, size=2)[0] for port in range(4)] == [OK, OK, OK, BAD_AP]

    def identity(address: int, port: int) -> bytes:
        return _command(probe, 0xF2, 0x07, *address.to_bytes(4, "little"), 4, 0, port, size=4)

    assert identity(0xE00E1000, 2) == identity(0x5C001000, 0) == (0x20036450).to_bytes(4, "little")
    identity(0x5C001000, 2)  # only through the APB window
    assert _command(probe, 0xF2, 0x3E)[0] != OK


def test_double_precision_is_computed(target: H7Target) -> None:
    # 1.5 * 2.5 = 3.75, and 1/3 has more digits than a float
    target.run(
        """
        .fpu fpv5-d16
        handler reset
        ldr r0, =0xE000ED88
        ldr r1, =0x00F00000
        str r1, [r0]
        dsb
        isb
        vmov.f64 d0, #1.5
        vmov.f64 d1, #2.5
        vmul.f64 d2, d0, d1
        vmov r4, r5, d2
        vmov.f64 d0, #1.0
        vmov.f64 d1, #3.0
        vdiv.f64 d2, d0, d1
        vmov r6, r7, d2
        done
        """
    )
    assert (target.register(5), target.register(4)) == (0x400E0000, 0)
    assert (target.register(7), target.register(6)) == (0x3FD55555, 0x55555555)
    assert target.peek(0xE000EF40) == 0x10110221  # MVFR0: OpenOCD recognises it by this


def test_double_precision_is_undefined_on_the_f746(tmp_path: Path) -> None:
    with Target(tmp_path, "stm32f746") as single:
        single.run(
            """
            .fpu fpv5-d16
            handler reset
            ldr r0, =0xE000ED88
            ldr r1, =0x00F00000
            str r1, [r0]
            dsb
            isb
            vadd.f64 d0, d1, d2
            mov r4, #1
            done
            handler hard_fault
            done
            """
        )
        assert single.peek(0xE000ED28) == 1 << 16  # UNDEFINSTR
