# SPDX-License-Identifier: Apache-2.0
"""Faults of Armv7-M (ARM DDI 0403E, B1.5.2 and B3.2.15 to B3.2.18) and the additions of Armv8-M (DDI 0553B)."""

from collections.abc import Sequence
from dataclasses import replace

from utvm.session.fault.meaning import TEXTS, Architecture, Meaning, ReadableCore

_FAULTS = range(3, 7)  # HardFault, MemManage, BusFault, UsageFault
_LOCKED_UP = 0xFFFFFFFE  # PC of a core in lockup (B1.5.15).
_CFSR = 0xE000ED28  # Followed by HFSR, DFSR, MMFAR and BFAR.
_EXC_RETURN = 0xFFFFFF00
_ON_PROCESS_STACK = 1 << 2
_STACKED_PC = 24  # Offset in an exception frame (B1.5.6).
_MMARVALID, _BFARVALID = 1 << 7, 1 << 15


def _meaning(exception: int, status: Sequence[int]) -> Meaning:
    """Decode CFSR, HFSR, MMFAR, BFAR and the handler's EXC_RETURN."""
    cfsr, hfsr, mmfar, bfar, exc_return, _ = status
    flags = [text for bit, text in TEXTS["cortex_m_cfsr"].items() if cfsr >> bit & 1]
    flags += [text for bit, text in TEXTS["cortex_m_hfsr"].items() if hfsr >> bit & 1]
    return Meaning(
        TEXTS["cortex_m_exceptions"].get(exception, f"interrupt {exception - 16}"),
        tuple(flags),
        bfar if cfsr & _BFARVALID else mmfar if cfsr & _MMARVALID else None,
        f"CFSR={cfsr:#010x} HFSR={hfsr:#010x} EXC_RETURN={exc_return:#010x}",
    )


def _fault_of(core: ReadableCore) -> tuple[Meaning, int | None] | None:
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
    (*(f"r{number}" for number in range(13)), "sp", "lr", "pc", "xpsr"), "sp", "pc", _meaning, "EM_ARM", _fault_of
)
