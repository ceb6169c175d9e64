# SPDX-License-Identifier: Apache-2.0
"""Images: sections, symbols and sizes, and the callers of a stopped function, read from the ELF file.

Callers come from DWARF call frame information (DWARF 4, section 6.4). Register numbers are those of Arm IHI 0040
(AADWARF32) and the RISC-V ELF psABI.
"""

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.dwarf.callframe import FDE
from elftools.elf.constants import P_FLAGS, SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section as ELFSection

from utvm import boards, compiler, errors
from utvm.firmware.sources import arena_address
from utvm.runtime import Pipe

GENERATED = "/utvm/generated"
"""Folder of generated files in debug information and linker maps."""

# Size and source of an input section. A long name is on a line of its own.
_CONTRIBUTION = re.compile(r"^ \.\S+\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (/.+)$", re.MULTILINE)
_MAP = "Linker script and memory map"
_OUTPUT_SECTION = re.compile(r"^(\.\S+)", re.MULTILINE)
_ERASED = b"\xff"
_ENTRY = "utvm_entry_"

# System V ABI (gABI), chapter 4, "Symbol Table": Elf32_Sym and Elf64_Sym.
_SYMBOLS = {32: np.dtype("<u4,<u4,<u4,u1,u1,<u2"), 64: np.dtype("<u4,u1,u1,<u2,<u8,<u8")}
_SYMBOLS[32].names = "name", "value", "size", "info", "other", "section"
_SYMBOLS[64].names = "name", "info", "other", "section", "value", "size"
_FUNCTION = 2  # STT_FUNC


def is_thread_local(section: ELFSection) -> bool:
    """True if a section is thread-local. Its memory for the only thread is part of ``.bss``."""
    return bool(section["sh_flags"] & SH_FLAGS.SHF_TLS)


@dataclass(frozen=True)
class Section:
    """A section of the image; ``load_address`` is where its initial contents are stored, or None."""

    name: str
    address: int
    size: int
    load_address: int | None
    writable: bool


@dataclass(frozen=True)
class Shares:
    """Bytes in flash by origin."""

    model: int
    stored: int
    board: int
    runtime: int


@dataclass(frozen=True)
class Firmware:
    """An image for a board, or a program for one that is a process.

    Attributes:
        libraries: in the order of their program indices.
        pipe: byte stream of RPC, or of a standalone image without a console.
        in_ram: True if a debugger loads it into RAM, with nothing in flash.
        accelerator: identity of the accelerator driver in it, or ``""``.
    """

    board: boards.Board
    elf: Path
    libraries: tuple[compiler.Library, ...]
    pipe: Pipe | None = None
    in_ram: bool = False
    functions: tuple[str, ...] = ()
    accelerator: str = ""

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        with self.elf.open("rb") as file:
            elf = ELFFile(file)
            segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
            result = []
            for section in elf.iter_sections():
                flags, address, load = section["sh_flags"], section["sh_addr"], None
                if not flags & SH_FLAGS.SHF_ALLOC or not section["sh_size"] or is_thread_local(section):
                    continue
                if section["sh_type"] != "SHT_NOBITS":
                    for segment in segments:
                        if segment.section_in_segment(section):
                            load = address - segment["p_vaddr"] + segment["p_paddr"]
                writable = bool(flags & SH_FLAGS.SHF_WRITE)
                result.append(Section(section.name, address, section["sh_size"], load, writable))
            if not result:  # A file may have been stripped of its sections.
                for segment in segments:
                    load = segment["p_paddr"] if segment["p_filesz"] else None
                    writable = bool(segment["p_flags"] & P_FLAGS.PF_W)
                    result.append(Section("", segment["p_vaddr"], segment["p_memsz"], load, writable))
        return tuple(sorted(result, key=lambda section: section.address))

    @property
    def section_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(section.name for section in self.sections))

    @functools.cached_property
    def segments(self) -> tuple[tuple[int, bytes], ...]:
        with self.elf.open("rb") as file:
            if self.in_ram and any(self.section_names):
                # A segment may include the file's headers.
                loaded = [(s.name, s.address) for s in self.sections if s.load_address is not None]
                return tuple((address, ELFFile(file).get_section_by_name(name).data()) for name, address in loaded)
            return tuple(
                (segment["p_paddr"], segment.data())
                for segment in ELFFile(file).iter_segments()
                if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]
            )

    @property
    def binary(self) -> tuple[int, bytes]:
        """The image as one block: load address and contents; gaps are erased flash."""
        segments = sorted(self.segments)
        first = segments[0][0]
        data = b""
        for address, part in segments:
            data = data.ljust(address - first, _ERASED) + part
        return first, data

    @functools.cached_property
    def symbols(self) -> dict[str, int]:
        """Addresses of functions (without the Thumb bit) and objects; empty for a stripped file."""
        with self.elf.open("rb") as file:
            elf = ELFFile(file)
            table = elf.get_section_by_name(".symtab")
            if table is None:
                return {}
            entries, strings = table.data(), elf.get_section(table["sh_link"]).data()
        # pyelftools takes a tenth of a second for a thousand symbols.
        result = {}
        for start, value, info in np.frombuffer(entries, _SYMBOLS[elf.elfclass])[["name", "value", "info"]].tolist():
            if name := strings[start : strings.index(b"\0", start)].decode(errors="replace"):
                result[name] = value & ~1 if info & 0xF == _FUNCTION else value
        return result

    @property
    def entry_registers(self) -> dict[str, int]:
        """Registers that a debugger sets to start the image.

        Start-up code adds others with symbols ``utvm_entry_REGISTER``. A foreign image sets its own stack pointer.
        """
        if "utvm_reset" not in self.symbols:
            with self.elf.open("rb") as file:
                return {"pc": ELFFile(file).header["e_entry"] & ~1}
        more = {name.removeprefix(_ENTRY): value for name, value in self.symbols.items() if name.startswith(_ENTRY)}
        return more | {"sp": self.symbols["_utvm_stack_end"], "pc": self.symbols["utvm_reset"]}

    def region_use(self) -> dict[str, int]:
        """Bytes used in each memory region; initialised data counts in both of its regions."""
        use: dict[str, int] = {}
        for section in self.sections:
            load = section.address if section.load_address is None else section.load_address
            for address in {section.address, load}:
                for name, part in self.parts(address, section.size).items():
                    use[name] = use.get(name, 0) + part
        return use

    def parts(self, address: int, size: int) -> dict[str, int]:
        """Bytes of an address range in each of the board's memory regions."""
        ends = ((region, min(address + size, region.end)) for region in self.board.memory)
        sizes = {region.name: end - max(address, region.address) for region, end in ends}
        return {name: part for name, part in sizes.items() if part > 0}

    @property
    def flash_bytes(self) -> int:
        return 0 if self.in_ram else self._stored_bytes

    @property
    def ram_bytes(self) -> int:
        return sum(section.size for section in self.sections if section.writable or self.in_ram)

    @property
    def _stored_bytes(self) -> int:
        return sum(section.size for section in self.sections if section.load_address is not None)

    @property
    def shares(self) -> Shares:
        """Bytes in flash by origin, from the linker's map."""
        # By name: discarded sections are at address 0, where some boards have memory.
        stored_names = {section.name for section in self.sections if section.load_address is not None}
        own = {f"{GENERATED}/{name}" for library in self.libraries for name in library.sources}
        port = self.board.port_source
        model = 0
        board = sum(section.size for section in self.sections if section.name == ".vectors")
        text = self.elf.with_name(f"{self.elf.name}.map").read_text("utf-8")
        _, *parts = _OUTPUT_SECTION.split(text.partition(_MAP)[2])
        inside = "".join(part for name, part in zip(parts[::2], parts[1::2], strict=True) if name in stored_names)
        for size, source in _CONTRIBUTION.findall(inside):
            if source in own:
                model += int(size, 16)
            elif source.endswith(f"/{port.parent.name}/{port.name}"):
                board += int(size, 16)
        stored = sum(tensor.size_bytes for library in self.libraries for tensor in library.inputs)
        stored = stored if "utvm_stored_inputs" in self.symbols else 0
        return Shares(model, stored, board, self._stored_bytes - model - stored - board)

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.elf.read_bytes()).hexdigest()

    def region_of(self, address: int) -> str | None:
        for region in self.board.memory:
            if region.address <= address < region.end:
                return region.name
        return None

    def is_code(self, address: int) -> bool:
        return any(
            section.name == ".text" and section.address <= address < section.address + section.size
            for section in self.sections
        )

    def input_address(self, library: compiler.Library, number: int) -> int:
        return self.symbols["utvm_arena"] + arena_address(library, library.input_places[number])

    def output_address(self, library: compiler.Library, number: int) -> int:
        return self.symbols["utvm_arena"] + arena_address(library, library.output_places[number])

    @property
    def programs(self) -> tuple[str, ...]:
        """The program table: the models, then ``NAME_reset`` for each model with state."""
        names = [library.name for library in self.libraries]
        return (*names, *(f"{library.name}_reset" for library in self.libraries if library.states))

    def program_index(self, name: str) -> int:
        if name in self.programs:
            return self.programs.index(name)
        known = ", ".join(library.name for library in self.libraries)
        raise errors.ConfigError(f"the firmware has no model {name!r}", f"it has: {known}")

    def source_line(self, address: int) -> str:
        """``function at file:line`` of a code address, or ``""``."""
        return self.board.compiler.source_line(self.elf, address)


_DEEPEST = 32


@dataclass(frozen=True)
class Convention:
    """Calling convention of a processor.

    Attributes:
        sp, link: DWARF numbers of stack pointer and return address register.
        pc: number used here for the program counter.
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
        """Split stack contents into complete little-endian words."""
        size = self.word_bytes
        whole = len(data) // size * size
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, whole, size)]

    def is_return_address(self, word: int) -> bool:
        return word & self.code_mark == self.code_value


def convention_of(elf: Path) -> Convention:
    with elf.open("rb") as file:
        return Convention.of(ELFFile(file))


def callers(elf: Path, registers: Sequence[int], stack_address: int, stack: bytes) -> list[int]:
    """Return the active functions' addresses, innermost first, as far as frame information and stack allow."""
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
    entries: Sequence[FDE], at: int, now: Mapping[int, int], word: Callable[[int], int | None], convention: Convention
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
