# SPDX-License-Identifier: Apache-2.0
"""The maximum stack use of a function, by analysis of the linked code.

The frame of a function is in the compiler's call frame information (DWARF 4, section 6.4); for assembly without
it, it follows from push and pop instructions. A call through a pointer may reach any function of the same source
file, or else of the library, if its address is in the image. The result is the deepest path of calls, even if it
is never taken. Interrupts are not included.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.dwarf.callframe import FDE
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from utvm.base.process import run_tool
from utvm.boards import Board
from utvm.compiler import Library
from utvm.compiler.package import RunStack
from utvm.errors import DoesNotFitError, ToolchainError
from utvm.firmware.build import build
from utvm.firmware.image import Convention, Firmware

_FUNCTION = re.compile(r"([0-9a-f]+) <([^>]+)>:")
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t(\S+)\s*(.*)")
_BRANCH = re.compile(r"(?:b|bl|blx|j|jal|jr|jalr|cbn?z|b[a-z]{2,3})(?:\.[nw])?")
_CALL = re.compile(r"bl|blx|jal|jalr")
_TARGET = re.compile(r"\b([0-9a-f]+) <[^>+]+(?:\+0x([0-9a-f]+))?>")
# Not a return. A switch loads or adds to the program counter, or has a table.
_THROUGH_REGISTER = re.compile(r"(?:blx|bx|jalr|jr)\s+(?!lr\b|ra\b|0\(ra\))\w")
# To a distant function or the other instruction set; its address is the next word.
_VENEER = re.compile(r"ldr\S*\s+pc, \[pc, #-?\d+\]")
_WORD = re.compile(r"\.word\s+0x([0-9a-f]+)")
_HALF = re.compile(r"(mov[wt])\s+\w+, #(\d+)")
_PUSHED = re.compile(r"(?:push|vpush|stmdb|stmfd|vstmdb)\S*\s+(?:sp!, )?\{(.+)\}")
_STORED = re.compile(r"str\S*\s.*\[sp, #-(\d+)\]!")
_RESERVED = re.compile(r"(?:subw?\S*\s+sp, (?:sp, )?#(\d+)|addi\s+sp,sp,-(\d+))")
_POPPED = re.compile(r"(?:pop|vpop|ldmia|ldmfd|vldmia)\S*\s+(?:sp!, )?\{(.+)\}")
_LOADED = re.compile(r"ldr\S*\s.*\[sp\], #(\d+)")
_RELEASED = re.compile(r"(?:addw?\S*\s+sp, (?:sp, )?#(\d+)|addi\s+sp,sp,(\d+))")


@dataclass(frozen=True)
class StackNeed:
    """Bytes of stack, and the deepest path of calls, outermost first."""

    bytes: int
    way: tuple[str, ...]


class UnknownNeedError(ToolchainError):
    """The stack use cannot be determined from the code."""


def measure_stack(image: Firmware, function: str, library: str = "") -> StackNeed:
    """Return the maximum stack use of a function, without interrupts.

    A library's function may call its operators by a table; ``library`` is its name."""
    command: list[str | Path] = [image.board.compiler.tool("objdump"), "-d", "--no-show-raw-insn", image.elf]
    functions = _functions(run_tool(command, error=ToolchainError), image.elf)
    start = next((at for at, other in functions.items() if other.name == function), None)
    if start is None:
        raise ToolchainError(f"no function {function} is in the image", "nm lists the functions of an ELF file")
    return _Reader(functions, library).measure(start)


def run_stack(board: Board, library: Library) -> RunStack | None:
    """Return the stack use for a package; None if unknown, as explained by ``firmware.size``."""
    if not board.memory:
        return None
    try:
        need = measure_stack(build(board, [library]), f"{library.name}_run", library.name)
        return RunStack(need.bytes, board.cpu, board.compiler.version)
    except (ToolchainError, DoesNotFitError):
        return None


@dataclass(frozen=True)
class _Function:
    """A function of an image; names may repeat.

    ``frame`` is its own stack use, None if computed at run time; ``pointed_at`` if its address is in the image.
    """

    name: str
    lines: tuple[str, ...]
    frame: int | None
    file: str
    pointed_at: bool


def _functions(listing: str, path: Path) -> dict[int, _Function]:
    names: dict[int, str] = {}
    lines: dict[int, list[str]] = {}
    addresses: dict[int, list[int]] = {}
    start = 0
    for line in listing.splitlines():
        if match := _FUNCTION.fullmatch(line):
            start = int(match[1], 16)
            names[start], lines[start], addresses[start] = match[2], [], []
        elif match := _INSTRUCTION.fullmatch(line):
            lines[start].append(f"{match[2]} {match[3]}")
            addresses[start].append(int(match[1], 16))
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        rules, files = _cfi_rules(elf), _files(elf)
        is_pointed_at = _pointer_test(itertools.chain.from_iterable(lines.values()), _words(elf))
    return {
        start: _Function(
            name,
            tuple(lines[start]),
            _frame(lines[start], addresses[start], rules.get(start, [])),
            files.get(start, ""),
            is_pointed_at(start),
        )
        for start, name in names.items()
    }


def _pointer_test(lines: Iterable[str], words: set[int]) -> Callable[[int], bool]:
    """Return a test for addresses stored in the image: in data, or composed by instructions."""
    halves: dict[str, set[int]] = {"movw": set(), "movt": set()}
    for line in lines:
        if match := _HALF.match(line):
            halves[match[1]].add(int(match[2]))
        elif not _BRANCH.fullmatch(line.split()[0]):
            words.update(int(match[1], 16) for match in _TARGET.finditer(line))

    def is_pointed_at(address: int) -> bool:
        low, high = {address & 0xFFFF, address & 0xFFFF | 1}, address >> 16
        composed = not low.isdisjoint(halves["movw"]) and high in halves["movt"]
        return composed or not words.isdisjoint((address, address | 1))

    return is_pointed_at


@dataclass(frozen=True)
class _Reader:
    """Follows calls; ``library`` is the prefix of the library's source files."""

    functions: Mapping[int, _Function]
    library: str

    def measure(self, start: int, above: tuple[int, ...] = ()) -> StackNeed:
        """Return the stack use of the function at an address; ``above`` are its callers."""
        function = self.functions[start]
        if start in above:
            raise UnknownNeedError(f"{function.name} calls itself an unknown number of times")
        if function.frame is None:
            raise UnknownNeedError(f"{function.name} computes its stack use")
        below = [self.measure(callee, (*above, start)) for callee in sorted(self._callees(start, function))]
        deepest = max(below, key=lambda need: need.bytes, default=StackNeed(0, ()))
        return StackNeed(function.frame + deepest.bytes, (function.name, *deepest.way))

    def _callees(self, start: int, function: _Function) -> set[int]:
        callees = set()
        for line in function.lines:
            mnemonic, target = line.split()[0], _TARGET.search(line)
            if target and _BRANCH.fullmatch(mnemonic):
                other = int(target[1], 16) - int(target[2] or "0", 16)
                # A branch within the function is a loop, as is one to its start that is not a call.
                if other != start or (_CALL.fullmatch(mnemonic) and not target[2]):
                    callees.add(other)
            elif _VENEER.match(line):
                words = (_WORD.match(line) for line in function.lines)
                callees.update(int(word[1], 16) & ~1 for word in words if word)
            elif not target and _THROUGH_REGISTER.match(line):
                callees |= self._pointer_callees(start, function)
        if not callees <= self.functions.keys():
            raise UnknownNeedError(f"{function.name} calls an address that is not a function")
        return callees

    def _pointer_callees(self, start: int, function: _Function) -> set[int]:
        """Return the functions that may be called through a pointer: of its own file, else of its library."""
        for file in filter(None, (function.file, self.library)):
            # programs.c has the function that hands over rows of an input.
            candidates = {
                at
                for at, f in self.functions.items()
                if f.pointed_at and (f.file.startswith(file) or f.name == f"{self.library}_read")
            }
            if candidates - {start}:
                return candidates - {start}
        raise UnknownNeedError(f"{function.name} calls through a pointer from elsewhere")


# Address from which the stack pointer is this far below its start; None if computed at run time.
_Rules = list[tuple[int, int | None]]


def _cfi_rules(elf: ELFFile) -> dict[int, _Rules]:
    sp = Convention.of(elf).sp
    rules: dict[int, _Rules] = {}
    for entry in elf.get_dwarf_info().CFI_entries():
        if isinstance(entry, FDE):
            rules[entry["initial_location"]] = [
                (row["pc"], row["cfa"].offset if row["cfa"].expr is None and row["cfa"].reg == sp else None)
                for row in entry.get_decoded().table
            ]
    return rules


def _frame(lines: Sequence[str], addresses: Sequence[int], rules: _Rules) -> int | None:
    deepest = unruled = rule = 0
    for line, after in itertools.zip_longest(lines, addresses[1:]):
        before = rule
        known = [offset for address, offset in rules if after is None or address <= after]
        if known and known[-1] is None:
            return None
        rule = (known[-1] or 0) if known else 0
        if rule == before:  # no rule for this instruction
            unruled = max(0, unruled + _decrease(line))
        deepest = max(deepest, rule + unruled)
    return deepest


def _files(elf: ELFFile) -> dict[int, str]:
    """Source files of local functions: they follow their file in the symbol table (gABI, chapter 4)."""
    files, file = {}, ""
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        kind, reach = symbol["st_info"]["type"], symbol["st_info"]["bind"]
        if kind == "STT_FILE":
            file = symbol.name
        elif kind == "STT_FUNC" and reach == "STB_LOCAL":
            files[symbol["st_value"] & ~1] = file
    return files


def _words(elf: ELFFile) -> set[int]:
    kind = np.dtype(f"<u{elf.elfclass // 8}")
    words: set[int] = set()
    for section in elf.iter_sections():
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_type"] == "SHT_PROGBITS":
            data = section.data()
            words.update(np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], kind).tolist())
    return words


def _decrease(line: str) -> int:
    for sign, forms in ((1, (_PUSHED, _STORED, _RESERVED)), (-1, (_POPPED, _LOADED, _RELEASED))):
        for form in forms:
            if match := form.match(line):
                operand = next(filter(None, match.groups()))
                return sign * (int(operand) if operand.isdecimal() else sum(map(_size, operand.split(","))))
    return 0


def _size(registers: str) -> int:
    first, _, last = registers.strip().partition("-")
    count = int(last[1:]) - int(first[1:]) + 1 if last else 1
    return count * (8 if first.startswith("d") else 4)
