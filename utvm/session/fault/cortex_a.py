# SPDX-License-Identifier: Apache-2.0
"""Faults of Armv7-A with short descriptors (ARM DDI 0406C, B1.8.1 and B3.13.3)."""

from collections.abc import Sequence

from utvm.session.fault.meaning import TEXTS, Architecture, Meaning, ReadableCore

_UNDEFINED, _PREFETCH_ABORT, _DATA_ABORT = 1, 3, 4
_FIRST_INTERRUPT = 16

_ASYNCHRONOUS = 0b10110
_WRITE = 1 << 11
_FAULT_MODES = {0x17: "prefetch or data abort", 0x1B: "undefined instruction"}  # B1.3.1


def _cause(status: int) -> int:
    return status >> 6 & 0x10 | status & 0xF


def _meaning(exception: int, status: Sequence[int]) -> Meaning:
    """Decode DFSR, DFAR, IFSR and IFAR."""
    dfsr, dfar, ifsr, ifar, *_ = status
    flags: tuple[str, ...] = ()
    address = None
    if exception == _DATA_ABORT:
        access = "on a write" if dfsr & _WRITE else "on a read"
        flags = (TEXTS["cortex_a_causes"].get(_cause(dfsr), f"fault status {_cause(dfsr):#x}"), access)
        address = None if _cause(dfsr) == _ASYNCHRONOUS else dfar
    elif exception == _PREFETCH_ABORT:
        flags = (TEXTS["cortex_a_causes"].get(_cause(ifsr), f"fault status {_cause(ifsr):#x}"),)
        address = ifar
    number = exception - _FIRST_INTERRUPT
    return Meaning(
        TEXTS["cortex_a_exceptions"].get(exception, f"interrupt {number}" if number >= 0 else f"exception {exception}"),
        flags,
        address,
        f"DFSR={dfsr:#010x} DFAR={dfar:#010x} IFSR={ifsr:#010x} IFAR={ifar:#010x}",
    )


def _fault_of(core: ReadableCore) -> tuple[Meaning, int | None] | None:
    # Not every debugger can read the fault status registers.
    name = _FAULT_MODES.get(core.register("cpsr") & 0x1F)
    return (Meaning(name), None) if name else None


CORTEX_A = Architecture(
    (*(f"r{number}" for number in range(13)), "sp", "lr", "pc", "cpsr"), "sp", "pc", _meaning, "EM_ARM", _fault_of
)
