# SPDX-License-Identifier: Apache-2.0
"""Fault records: each bit has its name from the architecture manual."""

import signal
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.session.fault import RECORD_SIZE, FaultRecord

MAGIC = 0x544C5546


def _record(
    *,
    exception: int = 3,
    cfsr: int = 0,
    hfsr: int = 0,
    mmfar: int = 0,
    bfar: int = 0,
    valid: int = 1,
    program: int = 0xFFFF_FFFF,
    words: bytes = b"",
) -> bytes:
    fields = (MAGIC, exception, cfsr, hfsr, mmfar, bfar, 0xFFFF_FFF9, 0, valid, program, 3, 64)
    registers = (*range(0x10, 0x1D), 0x2000_1F20, 0x0800_0201, 0x0800_0300, 0x6100_0000, *(0,) * 16)
    return struct.pack("<12I34Q96s", *fields, 0x2000_1F00, *registers, words)


def _parse(data: bytes, architecture: str = "cortex_m") -> FaultRecord:
    record = FaultRecord.parse(data, architecture)
    assert record is not None
    return record


# ARM DDI 0403E: B3.2.15 (MMFSR, BFSR, UFSR) and B3.2.16 (HFSR).
@pytest.mark.parametrize(
    ("cfsr", "hfsr", "flag"),
    [
        (1 << 0, 0, "IACCVIOL"),
        (1 << 1, 0, "DACCVIOL"),
        (1 << 3, 0, "MUNSTKERR"),
        (1 << 4, 0, "MSTKERR"),
        (1 << 8, 0, "IBUSERR"),
        (1 << 9, 0, "PRECISERR"),
        (1 << 10, 0, "IMPRECISERR"),
        (1 << 11, 0, "UNSTKERR"),
        (1 << 12, 0, "STKERR"),
        (1 << 16, 0, "UNDEFINSTR"),
        (1 << 17, 0, "INVSTATE"),
        (1 << 18, 0, "INVPC"),
        (1 << 19, 0, "NOCP"),
        (1 << 24, 0, "UNALIGNED"),
        (1 << 25, 0, "DIVBYZERO"),
        (0, 1 << 1, "VECTTBL"),
        (0, 1 << 30, "FORCED"),
    ],
)
def test_each_status_bit_is_named(cfsr: int, hfsr: int, flag: str) -> None:
    record = _parse(_record(cfsr=cfsr, hfsr=hfsr))
    assert [text.split(":")[0] for text in record.meaning.flags] == [flag]


def test_address_counts_only_if_the_core_marks_it_valid() -> None:
    for cfsr, address in ((0x82, 0x1000), (0x8200, 0x2000), (0x0202, None)):
        record = _parse(_record(cfsr=cfsr, mmfar=0x1000, bfar=0x2000))
        assert record.meaning.address == address


def test_description_has_names_addresses_and_registers() -> None:
    record = _parse(_record(exception=5, cfsr=0x8200, bfar=0x6000_0000))
    text = record.describe("load at model.c:12")
    for part in ("BusFault", "PRECISERR", "0x60000000", "pc 0x08000300", "model.c:12", "lr=0x8000201"):
        assert part in text


def test_failed_stack_has_no_program_counter() -> None:
    record = _parse(_record(valid=0))
    assert record.pc is None
    assert "the stack had failed" in record.describe("")


def test_unexpected_interrupt_is_named_by_its_line() -> None:
    record = _parse(_record(exception=16 + 28))
    assert record.meaning.name == "interrupt 28"


@given(st.binary(min_size=RECORD_SIZE, max_size=RECORD_SIZE))
def test_any_bytes_can_be_parsed(data: bytes) -> None:
    record = FaultRecord.parse(data, "cortex_m")
    assert (record is None) == (struct.unpack_from("<I", data)[0] != MAGIC)


def test_record_has_the_step_and_the_assertion() -> None:
    record = _parse(_record(program=2, words=b"conv.c:12: rows > 0"))
    assert (record.program, record.step) == (2, 3)
    assert [record.registers[name] for name in ("r0", "r4", "r12", "lr", "xpsr")] == [
        0x10,
        0x14,
        0x1C,
        0x0800_0201,
        0x6100_0000,
    ]
    assert (record.stack, record.stack_bytes) == (0x2000_1F00, 64)
    assert record.describe("").startswith("assertion failed: conv.c:12: rows > 0\n")
    empty = _parse(_record())
    assert (empty.program, empty.words) == (None, "")


def test_signal_is_named() -> None:
    record = _parse(_record(exception=0x10000 + signal.SIGSEGV), "host")
    assert record.meaning.name == "SIGSEGV"
    assert record.describe("f at a.c:1") == "the board took a SIGSEGV\n  at f at a.c:1"
    unknown = _parse(_record(exception=0x10000 + 200), "host")
    assert unknown.meaning.name == "signal 200"


@given(st.binary(max_size=RECORD_SIZE - 1))
def test_incomplete_record_is_none(data: bytes) -> None:
    assert FaultRecord.parse(data, "cortex_m") is None


# ARM DDI 0406C: table B3-23 (FS, bit 10 and bits 3 to 0), B4.1.52 (WnR, bit 11), B1.8.1 (vectors).
@pytest.mark.parametrize(
    ("exception", "dfsr", "ifsr", "name", "flags", "address"),
    [
        (1, 0x807, 0x5, "undefined instruction", [], None),
        (2, 0, 0, "supervisor call", [], None),
        (3, 0, 0x005, "prefetch abort", ["translation fault"], 0x4000),
        (3, 0, 0x00D, "prefetch abort", ["permission fault"], 0x4000),
        (4, 0x001, 0, "data abort", ["alignment fault", "on a read"], 0x2000),
        (4, 0x805, 0, "data abort", ["translation fault", "on a write"], 0x2000),
        (4, 0x807, 0, "data abort", ["translation fault", "on a write"], 0x2000),
        (4, 0x008, 0, "data abort", ["external abort", "on a read"], 0x2000),
        (4, 0xC06, 0, "data abort", ["asynchronous external abort", "on a write"], None),
        (4, 0x409, 0, "data abort", ["parity error", "on a read"], 0x2000),
        (4, 0x00A, 0, "data abort", ["fault status 0xa", "on a read"], 0x2000),
        (43, 0, 0, "watchdog", [], None),
        (16 + 59, 0, 0, "interrupt 59", [], None),
    ],
)
def test_cortex_a_status_has_the_manuals_meaning(
    exception: int, dfsr: int, ifsr: int, name: str, flags: list[str], address: int | None
) -> None:
    data = _record(exception=exception, cfsr=dfsr, hfsr=0x2000, mmfar=ifsr, bfar=0x4000)
    record = _parse(data, "cortex_a")
    assert record.meaning.name.split(":")[0] == name
    assert [flag.split(":")[0] for flag in record.meaning.flags] == flags
    assert record.meaning.address == address
    assert (record.pc, record.sp) == (0x0800_0300, 0x2000_1F20)
    assert f"DFSR={dfsr:#010x}" in record.describe("load at model.c:12")
