# SPDX-License-Identifier: Apache-2.0
"""What the linker made, read back from the ELF file."""

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section as ELFSection

from utvm.boards import Board
from utvm.compiler import Library
from utvm.errors import ConfigError
from utvm.firmware.sources import arena_address
from utvm.runtime import Pipe

GENERATED = "/utvm/generated"
"""The folder of an image's own files, as debug information and the linker's map call it."""

# A section of one source, or of an object of the C library: size, source. Long names have a line.
_CONTRIBUTION = re.compile(r"^ \.\S+\s+0x[0-9a-f]+\s+0x([0-9a-f]+) (/.+)$", re.MULTILINE)
_MAP = "Linker script and memory map"
_OUTPUT_SECTION = re.compile(r"^(\.\S+)", re.MULTILINE)
_ERASED = b"\xff"
_ENTRY = "utvm_entry_"


def is_thread_local(section: ELFSection) -> bool:
    """Whether a section says what each thread has: there is one, and its room is a part of ``.bss``."""
    return bool(section["sh_flags"] & SH_FLAGS.SHF_TLS)


@dataclass(frozen=True)
class Section:
    """A section of the image: where it runs and, where it is stored elsewhere, where that is.

    Addresses and sizes are in bytes. ``load_address`` is None for a section that is only reserved, ``writable``
    whether it is RAM.
    """

    name: str
    address: int
    size: int
    load_address: int | None
    writable: bool


@dataclass(frozen=True)
class Shares:
    """Whose the bytes in flash are.

    Attributes:
        model: code and constants of the libraries.
        stored: inputs that are stored in the image.
        board: the board's port and the table of its interrupts.
        runtime: everything else: start-up code, executor, C library, tables, padding.
    """

    model: int
    stored: int
    board: int
    runtime: int


@dataclass(frozen=True)
class Firmware:
    """An image for one board: the ELF file and the libraries that are in it, by program index.

    For a board that is a process it is the program, and no memory region is known. ``pipe`` is what it talks
    through where it answers RPC, or stands alone without a console; ``in_ram`` whether a debugger loads it, with
    nothing in flash; ``functions`` what is in it of a module of TVM's that a client has uploaded; ``accelerator``
    whose driver is in it, if any's.
    """

    board: Board
    elf: Path
    libraries: tuple[Library, ...]
    pipe: Pipe | None = None
    in_ram: bool = False
    functions: tuple[str, ...] = ()
    accelerator: str = ""

    @functools.cached_property
    def sections(self) -> tuple[Section, ...]:
        """Allocated, non-empty sections, in address order."""
        with self.elf.open("rb") as file:
            elf = ELFFile(file)
            segments = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
            found = []
            for section in elf.iter_sections():
                if not section["sh_flags"] & SH_FLAGS.SHF_ALLOC or not section["sh_size"]:
                    continue
                if is_thread_local(section):
                    continue
                address, load = section["sh_addr"], None
                if section["sh_type"] != "SHT_NOBITS":
                    for segment in segments:
                        if segment.section_in_segment(section):
                            load = address - segment["p_vaddr"] + segment["p_paddr"]
                writable = bool(section["sh_flags"] & SH_FLAGS.SHF_WRITE)
                found.append(Section(section.name, address, section["sh_size"], load, writable))
        return tuple(sorted(found, key=lambda section: section.address))

    @functools.cached_property
    def segments(self) -> tuple[tuple[int, bytes], ...]:
        """What is to be programmed or loaded: load address and contents."""
        with self.elf.open("rb") as file:
            if self.in_ram:
                # The linker may have put the file's own headers into a segment, where nothing was meant to be.
                loaded = [(s.name, s.address) for s in self.sections if s.load_address is not None]
                return tuple((address, ELFFile(file).get_section_by_name(name).data()) for name, address in loaded)
            return tuple(
                (segment["p_paddr"], segment.data())
                for segment in ELFFile(file).iter_segments()
                if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]
            )

    @property
    def binary(self) -> tuple[int, bytes]:
        """The image as one block: its load address and contents, with erased flash where nothing is."""
        segments = sorted(self.segments)
        first = segments[0][0]
        data = b""
        for address, part in segments:
            data = data.ljust(address - first, _ERASED) + part
        return first, data

    @functools.cached_property
    def symbols(self) -> dict[str, int]:
        """Addresses of functions (without the Thumb bit) and objects."""
        with self.elf.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            return {
                symbol.name: symbol["st_value"] & ~1
                if symbol["st_info"]["type"] == "STT_FUNC"
                else symbol["st_value"]
                for symbol in table.iter_symbols()
                if symbol.name
            }

    @property
    def entry_registers(self) -> dict[str, int]:
        """What a debugger sets to start the image: register name to value.

        Beside stack and start, an architecture's start-up code names what else it needs: ``utvm_entry_REGISTER``.
        An image that somebody else's build has linked sets its stack by itself.
        """
        if "utvm_reset" not in self.symbols:
            with self.elf.open("rb") as file:
                return {"pc": ELFFile(file).header["e_entry"] & ~1}
        more = {
            name.removeprefix(_ENTRY): value for name, value in self.symbols.items() if name.startswith(_ENTRY)
        }
        return more | {"sp": self.symbols["_utvm_stack_end"], "pc": self.symbols["utvm_reset"]}

    def region_use(self) -> dict[str, int]:
        """Return the bytes used in each memory region, initial values of data counted in both places."""
        use: dict[str, int] = {}
        for section in self.sections:
            load = section.address if section.load_address is None else section.load_address
            for address in {section.address, load}:
                for name, part in self.parts(address, section.size).items():
                    use[name] = use.get(name, 0) + part
        return use

    def parts(self, address: int, size: int) -> dict[str, int]:
        """Return which of the board's memory regions a range of addresses is in, and how many bytes in each."""
        ends = ((region, min(address + size, region.end)) for region in self.board.memory)
        found = {region.name: end - max(address, region.address) for region, end in ends}
        return {name: part for name, part in found.items() if part > 0}

    @property
    def flash_bytes(self) -> int:
        """Bytes that the image takes in flash: code, constants and the initial values of data."""
        return 0 if self.in_ram else self._stored_bytes

    @property
    def ram_bytes(self) -> int:
        """Bytes that the image takes in RAM: data, arena and stacks, or all of it."""
        return sum(section.size for section in self.sections if section.writable or self.in_ram)

    @property
    def _stored_bytes(self) -> int:
        return sum(section.size for section in self.sections if section.load_address is not None)

    @property
    def shares(self) -> Shares:
        """Whose the stored bytes are, as the linker's map has it."""
        # By name: what is left out of an image lies at address 0, and so does the memory of some boards.
        kept = {section.name for section in self.sections if section.load_address is not None}
        own = {f"{GENERATED}/{name}" for library in self.libraries for name in library.sources}
        port = self.board.port_source
        model = 0
        board = sum(section.size for section in self.sections if section.name == ".vectors")
        text = self.elf.with_name(f"{self.elf.name}.map").read_text("utf-8")
        _, *parts = _OUTPUT_SECTION.split(text.partition(_MAP)[2])
        inside = "".join(part for name, part in zip(parts[::2], parts[1::2], strict=True) if name in kept)
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
        """SHA-256 of the ELF file, in hexadecimal."""
        return hashlib.sha256(self.elf.read_bytes()).hexdigest()

    def region_of(self, address: int) -> str | None:
        """Return the name of the board's memory region that an address is in."""
        for region in self.board.memory:
            if region.address <= address < region.end:
                return region.name
        return None

    def is_code(self, address: int) -> bool:
        """Return whether an address is in the section of the image's code."""
        return any(
            section.name == ".text" and section.address <= address < section.address + section.size
            for section in self.sections
        )

    def input_address(self, library: Library, number: int) -> int:
        """Return where an input of one of the libraries is written before a run."""
        return self.symbols["utvm_arena"] + arena_address(library, library.input_places[number])

    def output_address(self, library: Library, number: int) -> int:
        """Return where an output of one of the libraries is read after a run."""
        return self.symbols["utvm_arena"] + arena_address(library, library.output_places[number])

    @property
    def programs(self) -> tuple[str, ...]:
        """The program table: the models, and behind them what makes one forget its earlier runs."""
        names = [library.name for library in self.libraries]
        return (*names, *(f"{library.name}_reset" for library in self.libraries if library.states))

    def program_index(self, name: str) -> int:
        """Return the place of a library in the program table, or of ``NAME_reset``."""
        for index, known in enumerate(self.programs):
            if known == name:
                return index
        present = ", ".join(library.name for library in self.libraries)
        raise ConfigError(f"the firmware has no model {name!r}", f"it has: {present}")

    def source_line(self, address: int) -> str:
        """Return ``function at file:line`` for a code address, or an empty string."""
        return self.board.compiler.source_line(self.elf, address)
