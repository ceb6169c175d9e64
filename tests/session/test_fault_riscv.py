# SPDX-License-Identifier: Apache-2.0
"""Fault records of RISC-V: causes have their names from the Privileged Architecture (20211203, table 3.6)."""

import struct

import pytest

from utvm.session.fault import FaultRecord

_INTERRUPT = 1 << 31


def _parse(exception: int, mtval: int = 0) -> FaultRecord:
    fields = (0x544C5546, exception, mtval & 0xFFFF_FFFF, mtval >> 32, 0x3880, 0, 0, 0, 1, 0xFFFF_FFFF, 3, 64)
    registers = (0, *range(0x101, 0x120), 0x8000_0300)
    record = FaultRecord.parse(struct.pack("<12I34Q96s", *fields, 0x87F0_1F00, *registers, b""), "riscv")
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("exception", "name", "has_address"),
    [
        (0, "instruction address misaligned", False),
        (1, "instruction access fault", False),
        (2, "illegal instruction", False),
        (3, "breakpoint", False),
        (4, "load address misaligned", True),
        (5, "load access fault", True),
        (6, "store address misaligned", True),
        (7, "store access fault", True),
        (11, "call from machine mode", False),
        (13, "load page fault", True),
        (15, "store page fault", True),
        (_INTERRUPT | 3, "machine software interrupt", False),
        (_INTERRUPT | 7, "machine timer interrupt, the watchdog", False),
        (_INTERRUPT | 11, "machine external interrupt", False),
        (_INTERRUPT | 12, "interrupt 12", False),
        (10, "exception 10", False),
    ],
)
def test_each_fault_cause_has_a_name_and_address(exception: int, name: str, has_address: bool) -> None:
    meaning = _parse(exception, 0x9000_0000).meaning
    assert meaning.name.startswith(name)
    assert meaning.address == (0x9000_0000 if has_address else None)


def test_addresses_have_64_bits() -> None:
    assert _parse(5, 0x0000_0012_3456_789A).meaning.address == 0x12_3456_789A


def test_description_has_names_addresses_and_registers() -> None:
    text = _parse(7, 0x9000_0000).describe("store at model.c:12")
    # RISC-V ELF psABI, "Register Convention" and "DWARF Register Numbers"
    registers = ("ra=0x101", "sp=0x102", "t0=0x105", "fp=0x108", "a0=0x10a", "s2=0x112", "t6=0x11f")
    for part in ("store access fault", "0x90000000", "pc 0x80000300", "model.c:12", "mcause=7", *registers):
        assert part in text
