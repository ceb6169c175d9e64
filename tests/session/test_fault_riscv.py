"""Fault records of RISC-V: every cause by its name in the Privileged Architecture (20211203, table 3.6)."""

import struct

import pytest

from utvm.session.fault import FaultRecord

_MAGIC = 0x544C5546
_INTERRUPT = 1 << 31


def _parse(exception: int, mtval: int = 0, mstatus: int = 0x3880) -> FaultRecord:
    kept = (_MAGIC, exception, mtval & 0xFFFF_FFFF, mtval >> 32, mstatus, 0, 0, 0, 1, 0xFFFF_FFFF, 0xFFFF_FFFF, 64)
    registers = (0, *range(0x100, 0x11F), 0x8000_0300)
    data = struct.pack("<12I34Q96s", *kept, 0x87F0_1F00, *registers, 0, b"")[: -8 - 96] + bytes(96)
    record = FaultRecord.parse(struct.pack("<12I34Q96s", *kept, 0x87F0_1F00, *registers, b""), "riscv")
    assert data is not None
    assert record is not None
    return record
