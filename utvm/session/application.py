# SPDX-License-Identifier: Apache-2.0
"""Flashes an application from a foreign build, controls it, and accesses its symbols by name."""

from collections.abc import Sequence
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from utvm import boards, drivers, firmware
from utvm.base.storage.files import check_readable
from utvm.errors import BoardError, ConfigError
from utvm.session.fault import ARCHITECTURES

SILENT = "is its serial line plugged in? Of a board without one, model.run and project.run read over RTT"
"""Hint for a board without a console."""

_MAX_BYTES = 256 << 20
_ALIGNMENT = 4096  # Largest gap between two sections of one region, in bytes.
_LOCKED_UP = 0xFFFFFFFE  # PC of an M-profile core in lockup (Armv7-M ARM, B1.5.15).


def read_elf(board: boards.Board, path: str | Path) -> firmware.Firmware:
    """Read and check an ELF file built elsewhere. Raises ConfigError if it does not fit the board."""
    elf = Path(path).resolve()
    if not board.memory:
        raise ConfigError(
            f"{board.name} has no memory map, so that no image can be put into it",
            "take a board that has one, virtual ones too: stm32f746",
        )
    image = firmware.Firmware(board, elf, ())
    try:
        _check_extents(elf, board)
        parts = [
            (section.name, address, section.size)
            for section in image.sections
            for address in {section.address, section.load_address or section.address}
        ]
        # A core fetches its first instruction after reset from one of these.
        lasting = {board.layout.code, *(region.name for region in board.memory if region.kind == "flash")}
        in_ram = not any(image.region_of(start) in lasting for start, _ in image.segments)
        if not in_ram:
            parts += [("segment", start, len(data)) for start, data in image.segments]
        _ = image.symbols
    except (OSError, ELFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # pyelftools raises many exception types for corrupt files.
        raise ConfigError(f"{elf}: not an ELF file: {error}", "did the build finish?") from error
    if overflow := _overflow(image, parts):
        raise ConfigError(f"{elf}: {overflow}", "make it smaller, or take a board with more memory")
    for name, address, size in parts:
        if sum(image.parts(address, size).values()) != size:
            regions = ", ".join(f"{part.name} {part.address:#010x} to {part.end:#010x}" for part in board.memory)
            raise ConfigError(
                f"{elf}: its {name}, {size} bytes at {address:#010x}, is not in the memory of {board.full_name}: "
                "it was linked for another board",
                f"memory of {board.full_name}: {regions}",
            )
    return firmware.Firmware(board, elf, (), in_ram=in_ram)


def _overflow(image: firmware.Firmware, parts: Sequence[tuple[str, int, int]]) -> str:
    """Describe the overflow of the memory region that is too small for an image; empty if none is."""
    for region in image.board.memory:
        limit, end = region.end, 0
        for behind in sorted(image.board.memory, key=lambda other: other.address):
            limit = behind.end if behind.address == limit else limit
        for _, start, size in sorted(parts, key=lambda part: part[1]):
            # A section that begins past the region may follow one that overflows it.
            if region.address <= start < max(region.end, end + _ALIGNMENT if end else 0):
                end = max(end, start + size)
        if end > limit:
            return f"is {end - limit:,} bytes too large for {region.name} of {image.board.full_name}"
    return ""


def _misfit(elf: ELFFile, board: boards.Board) -> str:
    cpu = board.cpu_row
    wide = any(flag.startswith("-march=rv64") for flag in cpu.flags)
    expected = (ARCHITECTURES[board.architecture].machine, 64 if wide else 32, True)
    header = (str(elf["e_machine"]), int(elf.elfclass), bool(elf.little_endian))
    return (
        ""
        if header == expected
        else f"is for {_format_header(*header)}, and {board.full_name} has {_format_header(*expected)}"
    )


def _format_header(machine: str, bits: int, little: bool) -> str:
    return f"{machine.removeprefix('EM_')} with {bits} bits, {'little' if little else 'big'}-endian"


def _check_extents(path: Path, board: boards.Board) -> None:
    """Reject an unsuitable or truncated file before reading all of it."""
    check_readable(path, "did the build finish?")
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ConfigError(
            f"{path}: has {size} bytes, and {_MAX_BYTES} is the limit", "is it an image for a board?"
        )
    with path.open("rb") as file:
        elf = ELFFile(file)
        ends = [segment["p_offset"] + segment["p_filesz"] for segment in elf.iter_segments()]
        ends += [
            section["sh_offset"] + section["sh_size"]
            for section in elf.iter_sections()
            if section["sh_type"] != "SHT_NOBITS"
        ]
        if misfit := _misfit(elf, board):
            raise ConfigError(f"{path}: {misfit}", "build it for this board, or name the board that it is for")
        if max(ends, default=0) > size:
            raise ConfigError(f"{path}: ends after {size} bytes of {max(ends)}", "copy or build it again")
        if not isinstance(elf.get_section_by_name(".symtab"), SymbolTableSection):
            raise ConfigError(f"{path}: has no symbols", "give the file as the linker made it, not stripped")
        if not any(segment["p_type"] == "PT_LOAD" and segment["p_filesz"] for segment in elf.iter_segments()):
            raise ConfigError(f"{path}: has nothing that can be loaded", "give the file as the linker made it")


class Application:
    """An application on a board, halted before its first instruction."""

    def __init__(self, connection: drivers.Connection, image: firmware.Firmware) -> None:
        self.connection = connection
        self.image = image
        connection.clear_breakpoints()
        connection.program(image)
        if connection.console is not None:
            connection.console.clear()

    def address(self, name: str) -> int:
        """Return the address of a function or an object."""
        try:
            return self.image.symbols[name]
        except KeyError:
            raise ConfigError(
                f"{self.image.elf.name} has no symbol {name!r}",
                "is it spelled as in the source, and did the linker keep it?",
            ) from None

    def read(self, name: str, size: int = 0) -> bytes:
        """Read an object, or its first ``size`` bytes; the core may be running."""
        return self.connection.read_memory(self.address(name), size or self._size(name))

    def word(self, name: str) -> int:
        """Read an object as an unsigned integer; raises as :meth:`read`."""
        return int.from_bytes(self.read(name), "little")

    def write(self, name: str, data: bytes) -> None:
        """Write an object in RAM."""
        if len(data) > self._size(name):
            raise ConfigError(f"{name} takes {self._size(name)} bytes, not {len(data)}")
        self.connection.write_memory(self.address(name), data)

    def run(self) -> None:
        """Resume the core."""
        self.connection.gdb.resume()

    def run_to(self, function: str, timeout: float = 10.0) -> None:
        """Run until the program calls a function, and halt there."""
        target = self.address(function)
        self.connection.clear_breakpoints()
        if not self.connection.gdb.running and self.connection.gdb.read_register("pc") == target:
            self.connection.gdb.step()  # Step off the breakpoint of the previous call.
        self.connection.insert_breakpoint(target)
        try:
            stopped = self.connection.run_until_stop(timeout)
        finally:
            self.connection.clear_breakpoints()
        if stopped != target:
            if stopped == _LOCKED_UP and self.image.board.architecture == "cortex_m":
                raise BoardError(
                    f"the program did not come to {function}: the core locked up, a fault in a fault's handler "
                    "(Armv7-M ARM, B1.5.15)",
                    "has its vector table a HardFault handler, and a stack in RAM as first word? see board.gdb",
                )
            at = self.image.source_line(stopped) or f"{stopped:#010x}"
            raise BoardError(f"the program did not come to {function} within {timeout:g} s; it stands in {at}")

    def expect(self, text: str, timeout: float = 10.0) -> str:
        """Read console output up to and including a text."""
        if self.connection.console is None:
            raise BoardError(f"{self.image.board.full_name} has no console here", SILENT)
        return self.connection.console.read_until(text.encode(), timeout).decode(errors="replace")

    def _size(self, name: str) -> int:
        with self.image.elf.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            sizes = [symbol["st_size"] for symbol in table.get_symbol_by_name(name) or ()]
        self.address(name)
        if not sizes or not sizes[0]:
            raise ConfigError(f"{self.image.elf.name} does not say how large {name} is", "give the size")
        return int(sizes[0])
