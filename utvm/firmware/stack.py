# SPDX-License-Identifier: Apache-2.0
"""How much stack a function of an image takes at most, with all that it calls: read from the linked code.

What a function takes itself is in the compiler's call frame information (DWARF 4, section 6.4), and, for what is
in assembly and not in that, in the instructions that push and pop. Whom it calls is in its branches; through a
pointer, any function of its source file whose address is somewhere in the image, or else of its library's files.
The longest way through the calls is the answer, be it ever taken or not. Interrupts come on top.
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

from utvm.base.process.run import run_tool
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
_TARGET = re.compile(r"\b([0-9a-f]+) <[^>+]+(?:\+0x([0-9a-f]+))?>")
# Not the way back. A switch loads or adds to the program counter, or has a table behind it.
_THROUGH_REGISTER = re.compile(r"(?:blx|bx|jalr|jr)\s+(?!lr\b|ra\b|0\(ra\))\w")
# To a function that is far, or in the other instruction set; where, is the word behind it.
_VENEER = re.compile(r"ldr\S*\s+pc, \[pc, #-?\d+\]")
_WORD = re.compile(r"\.word\s+0x([0-9a-f]+)")
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


def stack_need(image: Firmware, function: str, library: str = "") -> StackNeed:
    """Return what a function and all it calls take of the stack at most, without interrupts.

    Args:
        library: whose operators it may call by a table.
    """
    command: list[str | Path] = [image.board.compiler.tool("objdump"), "-d", "--no-show-raw-insn", image.elf]
    functions = _functions(run_tool(command, error=ToolchainError), image.elf)
    start = next((at for at, each in functions.items() if each.name == function), None)
    if start is None:
        raise ToolchainError(f"no function {function} is in the image", "nm lists those of an ELF file")
    return _Reader(functions, library).need(start)


def run_stack(board: Board, library: Library) -> RunStack | None:
    """Return what a package says of the stack; None where nobody knows: ``firmware.size`` says why."""
    if not board.memory:
        return None
    try:
        need = stack_need(build(board, [library]), f"{library.name}_run", library.name)
        return RunStack(need.bytes, board.cpu, board.compiler.version)
    except (ToolchainError, DoesNotFitError):
        return None


@dataclass(frozen=True)
class _Function:
    """A function of an image. Names are for people: files may have the same ones.

    Attributes:
        lines: its instructions, as objdump prints them.
        frame: what it takes itself; None where it takes what it computes.
        file: its source file, where only that knows it.
        pointed_at: whether its address is in the image.
    """

    name: str
    lines: tuple[str, ...]
    frame: int | None
    file: str
    pointed_at: bool


def _functions(listing: str, path: Path) -> dict[int, _Function]:
    """Return an image's functions, by their addresses."""
    names: dict[int, str] = {}
    lines: dict[int, list[str]] = {}
    places: dict[int, list[int]] = {}
    start = 0
    for line in listing.splitlines():
        if match := _FUNCTION.fullmatch(line):
            start = int(match[1], 16)
            names[start], lines[start], places[start] = match[2], [], []
        elif match := _INSTRUCTION.fullmatch(line):
            lines[start].append(f"{match[2]} {match[3]}")
            places[start].append(int(match[1], 16))
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        rules, files = _said(elf), _files(elf)
        pointed_at = _pointed_at(itertools.chain.from_iterable(lines.values()), _words(elf))
    return {
        start: _Function(
            name,
            tuple(lines[start]),
            _frame(lines[start], places[start], rules.get(start, [])),
            files.get(start, ""),
            pointed_at(start),
        )
        for start, name in names.items()
    }


def _pointed_at(lines: Iterable[str], words: set[int]) -> Callable[[int], bool]:
    """Return whether an address is somewhere in the image: in data, or made by instructions."""
    halves: dict[str, set[int]] = {"movw": set(), "movt": set()}
    for line in lines:
        if match := _HALF.match(line):
            halves[match[1]].add(int(match[2]))
        elif not _BRANCH.fullmatch(line.split()[0]):
            words.update(int(match[1], 16) for match in _TARGET.finditer(line))

    def found(address: int) -> bool:
        low, high = {address & 0xFFFF, address & 0xFFFF | 1}, address >> 16
        made = not low.isdisjoint(halves["movw"]) and high in halves["movt"]
        return made or not words.isdisjoint((address, address | 1))

    return found


@dataclass(frozen=True)
class _Reader:
    """Follows calls.

    Attributes:
        functions: by their addresses.
        library: with what the names of its source files begin.
    """

    functions: Mapping[int, _Function]
    library: str

    def need(self, start: int, above: tuple[int, ...] = ()) -> StackNeed:
        """Return what the function at an address takes that those above have called."""
        function = self.functions[start]
        if start in above:
            raise UnknownNeedError(f"{function.name} calls itself: how often, its code does not say")
        if function.frame is None:
            raise UnknownNeedError(f"{function.name} takes as much stack as it computes")
        below = [self.need(each, (*above, start)) for each in sorted(self._called(start, function))]
        deepest = max(below, key=lambda need: need.bytes, default=StackNeed(0, ()))
        return StackNeed(function.frame + deepest.bytes, (function.name, *deepest.way))

    def _called(self, start: int, function: _Function) -> set[int]:
        called = set()
        for line in function.lines:
            mnemonic, target = line.split()[0], _TARGET.search(line)
            if target and _BRANCH.fullmatch(mnemonic):
                other = int(target[1], 16) - int(target[2] or "0", 16)
                # Within itself a branch is a loop, and to its beginning as well, if it is no call.
                if other != start or (_CALL.fullmatch(mnemonic) and not target[2]):
                    called.add(other)
            elif _VENEER.match(line):
                words = (_WORD.match(each) for each in function.lines)
                called.update(int(word[1], 16) & ~1 for word in words if word)
            elif not target and _THROUGH_REGISTER.match(line):
                called |= self._pointed_at_by(start, function)
        if not called <= self.functions.keys():
            raise UnknownNeedError(f"{function.name} calls what is no function of the image")
        return called

    def _pointed_at_by(self, start: int, function: _Function) -> set[int]:
        """Return what a function may call through a pointer: what its own file has, else what its library has."""
        for file in filter(None, (function.file, self.library)):
            some = {at for at, each in self.functions.items() if each.pointed_at and each.file.startswith(file)}
            if some - {start}:
                return some - {start}
        raise UnknownNeedError(f"{function.name} calls through a pointer from elsewhere")


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


def _files(elf: ELFFile) -> dict[int, str]:
    """Return the files of local functions: a symbol table has their names behind the file's (gABI, chapter 4)."""
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
    first, _, last = listed.strip().partition("-")
    count = int(last[1:]) - int(first[1:]) + 1 if last else 1
    return count * (8 if first.startswith("d") else 4)
