# SPDX-License-Identifier: Apache-2.0
"""Faults of Armv7-M (ARM DDI 0403E, B1.5.2 and B3.2.15 to B3.2.18) and the additions of Armv8-M (DDI 0553B)."""

from collections.abc import Sequence
from dataclasses import replace

from utvm.session.fault.meaning import Architecture, Meaning, ReadableCore

_EXCEPTIONS = {
    2: "NMI",
    3: "HardFault",
    4: "MemManage",
    5: "BusFault",
    6: "UsageFault",
    11: "SVCall",
    12: "DebugMonitor",
    14: "PendSV, the watchdog: it ran for longer than it was allowed to",
    15: "SysTick",
}

_CFSR_FLAGS = {
    0: "IACCVIOL: instruction fetch from a forbidden address",
    1: "DACCVIOL: data access to a forbidden address",
    3: "MUNSTKERR: memory management fault on leaving an exception",
    4: "MSTKERR: memory management fault on entering an exception",
    5: "MLSPERR: memory management fault while saving floating-point state",
    8: "IBUSERR: bus error on an instruction fetch",
    9: "PRECISERR: bus error on a data access, at this instruction",
    10: "IMPRECISERR: bus error on a data access, some instructions ago",
    11: "UNSTKERR: bus error on leaving an exception (stack corrupt?)",
    12: "STKERR: bus error on entering an exception (stack overflow?)",
    13: "LSPERR: bus error while saving floating-point state",
    16: "UNDEFINSTR: undefined instruction (is cpu in board.yaml this core?)",
    17: "INVSTATE: jump to an address that is not Thumb code",
    18: "INVPC: illegal exception return",
    19: "NOCP: coprocessor or floating-point unit is off, or not there (is cpu in board.yaml this core?)",
    20: "STKOF: the stack pointer was to go below its limit (stack overflow)",
    24: "UNALIGNED: unaligned access",
    25: "DIVBYZERO: division by zero",
}

_FAULTS = range(3, 7)  # HardFault, MemManage, BusFault, UsageFault
_LOCKED_UP = 0xFFFFFFFE  # PC of a core in lockup (B1.5.15).
_CFSR = 0xE000ED28  # Followed by HFSR, DFSR, MMFAR and BFAR.
_EXC_RETURN = 0xFFFFFF00
_ON_PROCESS_STACK = 1 << 2
_STACKED_PC = 24  # Offset in an exception frame (B1.5.6).
_MMARVALID, _BFARVALID = 1 << 7, 1 << 15
_HFSR_FLAGS = {
    1: "VECTTBL: vector table could not be read",
    30: "FORCED: escalated from another fault",
    31: "DEBUGEVT: breakpoint instruction without a debugger",
}


def _meaning(exception: int, status: Sequence[int]) -> Meaning:
    """Decode CFSR, HFSR, MMFAR, BFAR and the handler's EXC_RETURN."""
    cfsr, hfsr, mmfar, bfar, exc_return, _ = status
    flags = [text for bit, text in _CFSR_FLAGS.items() if cfsr >> bit & 1]
    flags += [text for bit, text in _HFSR_FLAGS.items() if hfsr >> bit & 1]
    return Meaning(
        _EXCEPTIONS.get(exception, f"interrupt {exception - 16}"),
        tuple(flags),
        bfar if cfsr & _BFARVALID else mmfar if cfsr & _MMARVALID else None,
        f"CFSR={cfsr:#010x} HFSR={hfsr:#010x} EXC_RETURN={exc_return:#010x}",
    )


def _standing(core: ReadableCore) -> tuple[Meaning, int | None] | None:
    exception = core.register("xpsr") & 0x1FF
    locked_up = core.register("pc") & ~1 == _LOCKED_UP
    if exception not in _FAULTS and not locked_up:
        return None
    cfsr, hfsr, _, mmfar, bfar = (core.word(_CFSR + 4 * number) for number in range(5))
    lr, sp = core.register("lr"), core.register("sp")
    in_handler = lr >= _EXC_RETURN  # It has called no function and usually has nothing on the stack.
    if in_handler and lr & _ON_PROCESS_STACK:
        sp = core.register("psp")
    fault = _meaning(exception, (cfsr, hfsr, mmfar, bfar, lr, 0))
    if locked_up:
        fault = replace(fault, name=f"{fault.name}, and another fault in its handler: it has locked up")
    return fault, core.word(sp + _STACKED_PC) if in_handler else None


CORTEX_M = Architecture(
    (*(f"r{number}" for number in range(13)), "sp", "lr", "pc", "xpsr"), "sp", "pc", _meaning, "EM_ARM", _standing
)
