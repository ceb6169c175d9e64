# SPDX-License-Identifier: Apache-2.0
"""The faults of Armv7-M (ARM DDI 0403E, B1.5.2 and B3.2.15 to B3.2.18), with what Armv8-M has more (DDI 0553B)."""

from collections.abc import Sequence

from utvm.session.fault.meaning import Architecture, Meaning

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

_MMARVALID, _BFARVALID = 1 << 7, 1 << 15
_HFSR_FLAGS = {
    1: "VECTTBL: vector table could not be read",
    30: "FORCED: escalated from another fault",
    31: "DEBUGEVT: breakpoint instruction without a debugger",
}


def _meaning(exception: int, status: Sequence[int]) -> Meaning:
    """Read CFSR, HFSR, MMFAR, BFAR and the handler's EXC_RETURN."""
    cfsr, hfsr, mmfar, bfar, exc_return, _ = status
    flags = [text for bit, text in _CFSR_FLAGS.items() if cfsr >> bit & 1]
    flags += [text for bit, text in _HFSR_FLAGS.items() if hfsr >> bit & 1]
    return Meaning(
        _EXCEPTIONS.get(exception, f"interrupt {exception - 16}"),
        tuple(flags),
        bfar if cfsr & _BFARVALID else mmfar if cfsr & _MMARVALID else None,
        f"CFSR={cfsr:#010x} HFSR={hfsr:#010x} EXC_RETURN={exc_return:#010x}",
    )


CORTEX_M = Architecture((*(f"r{number}" for number in range(13)), "sp", "lr", "pc", "xpsr"), "sp", "pc", _meaning)
