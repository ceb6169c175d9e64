# SPDX-License-Identifier: Apache-2.0
"""How much stack a function of an image takes at most, with all that it calls: read from the linked code.

What a function takes itself is in the compiler's call frame information (DWARF 4, section 6.4), and, for what is
in assembly and not in that, in the instructions that push and pop. Whom it calls is in its branches; through a
pointer, any function of its source file whose address is somewhere in the image. The longest way through the calls
is the answer, be it ever taken or not. Interrupts come on top.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.dwarf.callframe import FDE
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from utvm import process
from utvm.boards import Board
from utvm.compiler import Library
from utvm.compiler.package import RunStack
from utvm.errors import DoesNotFitError, ToolchainError
from utvm.firmware.build import build
from utvm.firmware.image import Firmware
from utvm.firmware.unwind import Convention

_FUNCTION = re.compile(r"([0-9a-f]+) <([^>]+)>:")
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t(\S+)\s*(.*)")
_BRANCH = re.compile(r"(?:b|bl|blx|j|jal|jr|jalr|cbn?z|b[a-z]{2,3})(?:\.[nw])?")
_CALL = re.compile(r"bl|blx|jal|jalr")
_TARGET = re.compile(r"[0-9a-f]+ <([^>+]+)(\+0x[0-9a-f]+)?>")
# Not the way back. A switch loads or adds to the program counter, or has a table behind it.
_THROUGH_REGISTER = re.compile(r"(?:blx|bx|jalr|jr)\s+(?!lr\b|ra\b|0\(ra\))\w")
_THROUGH_MEMORY = re.compile(r"ldr\S*\s+pc, \[pc, #-?\d+\]")
_HALF = re.compile(r"(mov[wt])\s+\w+, #(\d+)")
_PUSHED = re.compile(r"(?:push|vpush|stmdb|stmfd|vstmdb)\S*\s+(?:sp!, )?\{(.+)\}")
_STORED = re.compile(r"str\S*\s.*\[sp, #-(\d+)\]!")
_TAKEN = re.compile(r"(?:subw?\S*\s+sp, (?:sp, )?#(\d+)|addi\s+sp,sp,-(\d+))")
_POPPED = re.compile(r"(?:pop|vpop|ldmia|ldmfd|vldmia)\S*\s+(?:sp!, )?\{(.+)\}")
_LOADED = re.compile(r"ldr\S*\s.*\[sp\], #(\d+)")
_GIVEN = re.compile(r"(?:addw?\S*\s+sp, (?:sp, )?#(\d+)|addi\s+sp,sp,(\d+))")


@dataclass(frozen=True)
class StackNeed:
    """Bytes of stack, and the functions on the way that takes them, the first of them the one asked about."""

    bytes: int
    way: tuple[str, ...]


class UnknownNeedError(ToolchainError):
    """Code calls, or takes, what no reader of it can know."""


def stack_need(image: Firmware, function: str) -> StackNeed:
    """Return what a function and all it calls take of the stack at most, without interrupts.

    Raises:
        UnknownNeedError: a function on the way calls through a pointer from elsewhere, calls itself, or takes
            what it computes.
        ToolchainError: the board's toolchain is not there, or no such function is in the image.
    """
    command: list[str | Path] = [image.board.compiler.tool("objdump"), "-d", "--no-show-raw-insn", image.elf]
    code = _Code.read(process.run(command, error=ToolchainError), image.elf)
    if function not in code.instructions:
        raise ToolchainError(f"no function {function} is in the image", "nm lists those of an ELF file")
    return code.need(function, ())


def run_stack(board: Board, library: Library) -> RunStack | None:
    """Return what a package says of the stack; None where nobody knows: ``firmware.size`` says why."""
    if not board.memory:
        return None
    try:
        need = stack_need(build(board, [library]), f"{library.name}_run")
        return RunStack(need.bytes, board.cpu, board.compiler.version)
    except (ToolchainError, DoesNotFitError):
        return None


@dataclass(frozen=True)
class _Code:
    """An image's functions.

    Attributes:
        instructions: of each, as objdump prints them.
        frames: what each takes itself; None where it takes what it computes.
        files: the source file of each that only that file knows.
        pointed_at: those whose address is in the image.
    """

    instructions: Mapping[str, list[str]]
    frames: Mapping[str, int | None]
    files: Mapping[str, str]
    pointed_at: frozenset[str]

    @classmethod
    def read(cls, listing: str, path: Path) -> "_Code":
        instructions: dict[str, list[str]] = {}
        current: list[str] = []
        addresses: dict[str, int] = {}
        places: dict[str, list[int]] = {}
        for line in listing.splitlines():
            if match := _FUNCTION.fullmatch(line):
                current = instructions.setdefault(match[2], [])
                addresses[match[2]] = int(match[1], 16)
                at = places.setdefault(match[2], [])
            elif match := _INSTRUCTION.fullmatch(line):
                current.append(f"{match[2]} {match[3]}")
                at.append(int(match[1], 16))
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            said, files = _said(elf), _files(elf)
            words = _words(elf)
        frames = {
            name: _frame(lines, places[name], said.get(addresses[name], []))
            for name, lines in instructions.items()
        }
        halves: dict[str, set[int]] = {"movw": set(), "movt": set()}
        named = set()
        for line in itertools.chain.from_iterable(instructions.values()):
            if match := _HALF.match(line):
                halves[match[1]].add(int(match[2]))
            elif (match := _TARGET.search(line)) and not match[2] and not _BRANCH.fullmatch(line.split()[0]):
                named.add(match[1])
        pointed_at = {
            name
            for name, address in addresses.items()
            if name in named
            or not words.isdisjoint((address, address | 1))
            or ({address & 0xFFFF, address & 0xFFFF | 1} & halves["movw"] and address >> 16 in halves["movt"])
        }
        return cls(instructions, frames, files, frozenset(pointed_at))

    def need(self, function: str, above: tuple[str, ...]) -> StackNeed:
        """Return what a function takes that these have called."""
        if function in above:
            raise UnknownNeedError(f"{function} calls itself: how often, its code does not say")
        own = self.frames[function]
        if own is None:
            raise UnknownNeedError(f"{function} takes as much stack as it computes")
        below = (self.need(name, (*above, function)) for name in sorted(self._called(function)))
        deepest = max(below, key=lambda need: need.bytes, default=StackNeed(0, ()))
        return StackNeed(own + deepest.bytes, (function, *deepest.way))

    def _called(self, function: str) -> set[str]:
        called = set()
        for line in self.instructions[function]:
            target = _TARGET.search(line)
            mnemonic = line.split()[0]
            # To its own beginning, a branch is a loop.
            again = _CALL.fullmatch(mnemonic) and target and not target[2]
            if target and _BRANCH.fullmatch(mnemonic) and (target[1] != function or again):
                called.add(target[1])
            elif (not target and _THROUGH_REGISTER.match(line)) or _THROUGH_MEMORY.match(line):
                file = self.files.get(function)
                some = {name for name in self.pointed_at if file and self.files.get(name) == file} - {function}
                if not some:
                    raise UnknownNeedError(f"{function} calls through a pointer from elsewhere: {line}")
                called |= some
        return called & self.instructions.keys()


# From which address on the stack pointer is how far below where it was: None where that is computed.
_Rules = list[tuple[int, int | None]]


def _said(elf: ELFFile) -> dict[int, _Rules]:
    """Return the compiler's rules for each function, by its address."""
    sp = Convention.of(elf).sp
    said: dict[int, _Rules] = {}
    for entry in elf.get_dwarf_info().CFI_entries():
        if isinstance(entry, FDE):
            said[entry["initial_location"]] = [
                (row["pc"], row["cfa"].offset if row["cfa"].expr is None and row["cfa"].reg == sp else None)
                for row in entry.get_decoded().table
            ]
    return said


def _frame(lines: Sequence[str], places: Sequence[int], rules: _Rules) -> int | None:
    """Return how far below its beginning a function's stack pointer comes."""
    deepest = unsaid = rule = 0
    for line, after in itertools.zip_longest(lines, places[1:]):
        before = rule
        known = [offset for address, offset in rules if after is None or address <= after]
        if known and known[-1] is None:
            return None
        rule = (known[-1] or 0) if known else 0
        if rule == before:  # the compiler says nothing of this instruction
            unsaid = max(0, unsaid + _lowered(line))
        deepest = max(deepest, rule + unsaid)
    return deepest


def _files(elf: ELFFile) -> dict[str, str]:
    """Return the file of each name: a symbol table has local names behind their file's (gABI, chapter 4)."""
    files, file = {}, ""
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_info"]["type"] == "STT_FILE":
            file = symbol.name
        elif symbol["st_info"]["type"] == "STT_FUNC":
            files[symbol.name] = file if symbol["st_info"]["bind"] == "STB_LOCAL" else ""
    return files


def _words(elf: ELFFile) -> set[int]:
    kind = np.dtype(f"<u{elf.elfclass // 8}")
    found: set[int] = set()
    for section in elf.iter_sections():
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_type"] == "SHT_PROGBITS":
            data = section.data()
            found.update(np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], kind).tolist())
    return found


def _lowered(line: str) -> int:
    """Return by how much an instruction lowers the stack pointer."""
    for sign, forms in ((1, (_PUSHED, _STORED, _TAKEN)), (-1, (_POPPED, _LOADED, _GIVEN))):
        for form in forms:
            if match := form.match(line):
                listed = next(each for each in match.groups() if each)
                return sign * (int(listed) if listed.isdecimal() else sum(map(_size, listed.split(","))))
    return 0


def _size(listed: str) -> int:
    """Return the bytes of ``r4``, ``r4-r7`` or ``d8-d15``."""
    first, _, last = listed.strip().partition("-")
    count = int(last[1:]) - int(first[1:]) + 1 if last else 1
    return count * (8 if first.startswith("d") else 4)
