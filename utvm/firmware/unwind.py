# SPDX-License-Identifier: Apache-2.0
"""Who had called whom when a program stopped: the stack read backwards by what the compiler wrote about it.

The rules are the DWARF call frame information in the ELF file (DWARF 4, section 6.4). The numbers of the registers
are those of the processors' supplements to the ABI: Arm IHI 0040 (AADWARF32) and the RISC-V ELF psABI.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

_DEEPEST = 32


@dataclass(frozen=True)
class Convention:
    """How programs of one processor call each other.

    Attributes:
        sp: DWARF's number of the stack pointer.
        link: that of the register with the return address.
        pc: that of the program counter, or the number that stands for it.
        word_bytes: bytes of an address.
        code_mark: these bits of a return address ...
        code_value: ... are always so; the lowest of them is not part of the address.
    """

    sp: int
    link: int
    pc: int
    word_bytes: int
    code_mark: int
    code_value: int

    @classmethod
    def of(cls, elf: ELFFile) -> "Convention":
        """Return the convention of an ELF file."""
        word_bytes = elf.elfclass // 8
        # An entry point with its lowest bit set is Thumb code.
        thumb = elf["e_entry"] & 1
        return {
            "EM_ARM": cls(13, 14, 15, word_bytes, *((1, 1) if thumb else (3, 0))),
            "EM_RISCV": cls(2, 1, 32, word_bytes, 1, 0),
        }[elf["e_machine"]]

    def words(self, data: bytes) -> list[int]:
        """Return the little-endian words of a part of the stack; what is left at the end is no word."""
        size = self.word_bytes
        whole = len(data) // size * size
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, whole, size)]

    def is_return_address(self, word: int) -> bool:
        """Whether a word can be one, by its lowest bits."""
        return word & self.code_mark == self.code_value


def convention_of(elf: Path) -> Convention:
    """Return the convention of an ELF file; raises as :meth:`Convention.of`."""
    with elf.open("rb") as file:
        return Convention.of(ELFFile(file))


def callers(elf: Path, registers: Sequence[int], stack_address: int, stack: bytes) -> list[int]:
    """Return the return addresses of the functions that were under way, the innermost caller first.

    It ends where the file does not describe a function, or the part of the stack at hand is over.

    Args:
        registers: of the core, by DWARF number.
        stack_address: where the bytes of ``stack`` lie.
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
        found: list[int] = []
        while len(found) < _DEEPEST:
            # A return address is behind its call, which may be the last instruction of its function.
            at = now[pc] - (1 if found else 0)
            before = _registers_of_caller(entries, at, now, word, convention) if entries else None
            if before is None and not found:
                # The compiler says nothing: a function of the C library, perhaps, that calls nothing itself.
                before = {**now, pc: now[link] & ~1}
            if before is None or not before[pc] or (before[pc], before[sp]) == (now[pc], now[sp]):
                return found
            now = before
            found.append(now[pc])
    return found


def _registers_of_caller(
    entries: Sequence[FDE],
    at: int,
    now: Mapping[int, int],
    word: Callable[[int], int | None],
    convention: Convention,
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
    before = {**now, convention.sp: base}
    for register, how in rule.items():
        if isinstance(register, int) and how.type == "OFFSET":
            value = word(base + how.arg)
            if value is None:
                return None
            before[register] = value
    before[convention.pc] = before[convention.link] & ~1
    return before
