"""Who had called whom when a program stopped: the stack read backwards by what the compiler wrote about it.

The rules are the DWARF call frame information in the ELF file (DWARF 4, section 6.4); the stacked registers are
those of an exception of Armv7-M (ARM DDI 0403E, B1.5.6).
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

_SP, _LR, _PC = 13, 14, 15
_DEEPEST = 32
_BASIC_FRAME, _FLOAT_FRAME = 0x20, 0x68
_NO_FLOAT_CONTEXT = 1 << 4  # of EXC_RETURN
_ALIGNED_BY_A_WORD = 1 << 9  # of xPSR as stacked


def registers_at_fault(
    frame: Sequence[int], saved: Sequence[int], frame_address: int, exc_return: int
) -> dict[int, int]:
    """Return the core's registers before an exception, by DWARF number.

    Args:
        frame: r0, r1, r2, r3, r12, lr, pc, xpsr as stacked.
        saved: r4 to r11.
        frame_address: where the frame lies.
    """
    size = _BASIC_FRAME if exc_return & _NO_FLOAT_CONTEXT else _FLOAT_FRAME
    if frame[7] & _ALIGNED_BY_A_WORD:
        size += 4
    low = {number: frame[number] for number in range(4)}
    high = {4 + number: value for number, value in enumerate(saved)}
    return low | high | {12: frame[4], _SP: frame_address + size, _LR: frame[5], _PC: frame[6]}


def callers(elf: Path, registers: Mapping[int, int], stack_address: int, stack: bytes) -> list[int]:
    """Return the return addresses of the functions that were under way, the innermost caller first.

    It ends where the file does not describe a function, or the part of the stack at hand is over.

    Args:
        registers: of the core, by DWARF number.
        stack_address: where the bytes of ``stack`` lie.
    """

    def word(address: int) -> int | None:
        offset = address - stack_address
        return struct.unpack_from("<I", stack, offset)[0] if 0 <= offset <= len(stack) - 4 else None

    with elf.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        entries = [entry for entry in dwarf.CFI_entries() if isinstance(entry, FDE)] if dwarf.has_CFI() else []
        now = dict(registers)
        found: list[int] = []
        while len(found) < _DEEPEST:
            # A return address is behind its call, which may be the last instruction of its function.
            at = now[_PC] - (1 if found else 0)
            before = _registers_of_caller(entries, at, now, word) if entries else None
            if before is None and not found:
                # The compiler says nothing: a function of the C library, perhaps, that calls nothing itself.
                before = {**now, _PC: now[_LR] & ~1}
            if before is None or not before[_PC] or (before[_PC], before[_SP]) == (now[_PC], now[_SP]):
                return found
            now = before
            found.append(now[_PC])
    return found


def _registers_of_caller(
    entries: Sequence[FDE], at: int, now: Mapping[int, int], word: Callable[[int], int | None]
) -> dict[int, int] | None:
    """Undo one function's frame; None where that cannot be done."""
    for entry in entries:
        start = entry["initial_location"]
        if start <= at < start + entry["address_range"]:
            break
    else:
        return None
    rows = [row for row in entry.get_decoded().table if row["pc"] <= at]
    if not rows or rows[-1]["cfa"].reg not in now:
        return None
    rule = rows[-1]
    base = now[rule["cfa"].reg] + rule["cfa"].offset
    before = {**now, _SP: base}
    for register, how in rule.items():
        if isinstance(register, int) and how.type == "OFFSET":
            value = word(base + how.arg)
            if value is None:
                return None
            before[register] = value
    before[_PC] = before[_LR] & ~1
    return before
