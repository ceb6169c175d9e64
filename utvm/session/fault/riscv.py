# SPDX-License-Identifier: Apache-2.0
"""Traps of RISC-V (Instruction Set Manual, Volume II, Privileged Architecture, 3.1.15 and 3.1.16)."""

from collections.abc import Sequence

from utvm.session.fault.meaning import TEXTS, Architecture, Meaning, ReadableCore

_INTERRUPT = 1 << 31
# Exceptions that are faults; those with the data address in mtval are in _WITH_ADDRESS.
_FAULTS = frozenset({0, 1, 2, 4, 5, 6, 7, 12, 13, 15})
_MIE, _MPP = 1 << 3, 3 << 11  # mstatus (3.1.6)
_WITH_ADDRESS = frozenset({4, 5, 6, 7, 13, 15})


def _meaning(exception: int, status: Sequence[int]) -> Meaning:
    """Decode mtval, low and high half, and mstatus."""
    value = status[0] | status[1] << 32
    cause = exception & ~_INTERRUPT
    names = TEXTS["riscv_interrupts" if exception & _INTERRUPT else "riscv_exceptions"]
    return Meaning(
        names.get(cause, f"{'interrupt' if exception & _INTERRUPT else 'exception'} {cause}"),
        address=value if exception in _WITH_ADDRESS else None,
        status=f"mcause={cause}{' (interrupt)' if exception & _INTERRUPT else ''} mtval={value:#x} "
        f"mstatus={status[2]:#x}",
    )


def _fault_of(core: ReadableCore) -> tuple[Meaning, int | None] | None:
    cause, status, pc = (core.register(name) for name in ("mcause", "mstatus", "mepc"))
    # In a trap from machine mode, MIE is clear and MPP holds machine mode until mret.
    trapped = not status & _MIE and status & _MPP == _MPP
    if cause not in _FAULTS or not trapped or not (cause or pc):
        return None
    value = core.register("mtval")
    return _meaning(cause, (value & 0xFFFFFFFF, value >> 32, status & 0xFFFFFFFF)), pc


_NAMES = "zero ra sp gp tp t0 t1 t2 fp s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6 pc"
RISCV = Architecture(tuple(_NAMES.split()), "sp", "pc", _meaning, "EM_RISCV", _fault_of)
