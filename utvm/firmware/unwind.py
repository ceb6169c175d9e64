# SPDX-License-Identifier: Apache-2.0
"""Stack unwinding: the callers of a stopped function, from DWARF call frame information (DWARF 4, section 6.4).

Register numbers are those of Arm IHI 0040 (AADWARF32) and the RISC-V ELF psABI.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

_DEEPEST = 32


@dataclass(frozen=True)
class Convention:
    """Calling convention of a processor.

    Attributes:
        sp, link: DWARF numbers of stack pointer and return address register.
        pc: number that stands for the program counter.
        code_mark, code_value: mask and value of the lowest bits of a return address.
    """

    sp: int
    link: int
    pc: int
    word_bytes: int
    code_mark: int
    code_value: int

    @classmethod
    def of(cls, elf: ELFFile) -> "Convention":
        word_bytes = elf.elfclass // 8
        # An entry point with its lowest bit set is Thumb code.
        thumb = elf["e_entry"] & 1
        return {
            "EM_ARM": cls(13, 14, 15, word_bytes, *((1, 1) if thumb else (3, 0))),
            "EM_RISCV": cls(2, 1, 32, word_bytes, 1, 0),
        }[elf["e_machine"]]

    def words(self, data: bytes) -> list[int]:
        """Complete little-endian words of a part of the stack."""
        size = self.word_bytes
        whole = len(data) // size * size
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, whole, size)]

    def is_return_address(self, word: int) -> bool:
        return word & self.code_mark == self.code_value


def convention_of(elf: Path) -> Convention:
    with elf.open("rb") as file:
        return Convention.of(ELFFile(file))


def callers(elf: Path, registers: Sequence[int], stack_address: int, stack: bytes) -> list[int]:
    """Addresses of the active functions, innermost first.

    Ends at a function without call frame information, or at the end of the stack at hand.

    Args:
        registers: of the core, by DWARF number.
        stack_address: address of the bytes in ``stack``.
    """
    with elf.open("rb") as file:
        image = ELFFile(file)
        convention = Convention.of(image)
        size, pc, sp, link = convention.word_bytes, convention.pc, convention.sp, convention.link

        def word(address: int) -> int | None:
            part = stack[address - stack_address :][:size] if address >= stack_address else b""
            return int.from_bytes(part, "little") if len(part) == size else None

        dwarf = image.get_dwarf_info()
        entries = [entry for entry in dwarf.CFI_entries() if isinstance(entry, FDE)] if dwarf.has_CFI() else []
        now = dict(enumerate(registers))
        addresses: list[int] = []
        while len(addresses) < _DEEPEST:
            # A return address is after its call, which may be the last instruction of its function.
            at = now[pc] - (1 if addresses else 0)
            before = _registers_of_caller(entries, at, now, word, convention) if entries else None
            if before is None and not addresses:
                # No information: maybe a leaf function of the C library.
                before = {**now, pc: now[link] & ~1}
            if before is None or not before[pc] or (before[pc], before[sp]) == (now[pc], now[sp]):
                return addresses
            now = before
            addresses.append(now[pc])
    return addresses


def _registers_of_caller(
    entries: Sequence[FDE],
    at: int,
    now: Mapping[int, int],
    word: Callable[[int], int | None],
    convention: Convention,
) -> dict[int, int] | None:
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
    before = {**now, convention.sp: base}
    for register, how in rule.items():
        if isinstance(register, int) and how.type == "OFFSET":
            value = word(base + how.arg)
            if value is None:
                return None
            before[register] = value
    before[convention.pc] = before[convention.link] & ~1
    return before
