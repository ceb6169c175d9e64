# SPDX-License-Identifier: Apache-2.0
"""Flashes an application from a foreign build, controls it, and accesses its symbols by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from utvm import boards, drivers, firmware
from utvm.base.storage.files import check_readable
from utvm.errors import BoardError, ConfigError
from utvm.firmware import Firmware
from utvm.firmware.blocks import BlockImage, read_blocks
from utvm.session.fault import ARCHITECTURES
from utvm.toolchain.object_file import core_of

SILENT = "is its serial line plugged in? On a board without one, model.run and project.run use RTT"
"""Hint for a board without a console."""

_DEVICES = 2  # Eighth of the addresses with peripherals; a chip may have RAM among them, which firmware fills.
_MAX_BYTES = 256 << 20
_ALIGNMENT = 4096  # Largest gap between two sections of one region, in bytes.
# Files that builds and downloads leave beside an image, by their first bytes.
_OTHERS = {
    b"!<arch>\n": "an archive of object files",
    b"!<thin>\n": "an archive of object files",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip file",
    b"DfuSe": "a DfuSe file",
    b"S0": "a file of Motorola S-records",
}
# Architectures of Arm's M profile, their tags in an image (Arm IHI 0045, 3.3.5.2) and their cores. A core runs
# images for those above it.
_M_PROFILE = (
    ("Armv6-M", (11, 12), ("cortex-m0", "cortex-m0plus", "cortex-m1")),
    ("Armv8-M Baseline", (16,), ("cortex-m23",)),
    ("Armv7-M", (10,), ("cortex-m3",)),
    ("Armv7E-M", (13,), ("cortex-m4", "cortex-m7")),
    ("Armv8-M", (17,), ("cortex-m33", "cortex-m35p")),
    ("Armv8.1-M", (21,), ("cortex-m52", "cortex-m55", "cortex-m85")),
)
_LOCKED_UP = 0xFFFFFFFE  # PC of an M-profile core in lockup (Armv7-M ARM, B1.5.15).


def read_image(board: boards.Board, path: str | Path, address: int | None = None) -> Firmware:
    """Read and check an image built elsewhere: ELF, Intel HEX, UF2 or, with its address, a plain binary.

    Raises ConfigError if it is not an image, or does not fit the board.
    """
    file = Path(path).resolve()
    _check_file(board, file)
    blocks = read_blocks(file, board, address)
    if blocks is None:
        return read_elf(board, file)
    image = BlockImage(board, file, (), blocks=blocks)
    _check_place(image, [("block", start, len(data)) for start, data in blocks])
    return replace(image, in_ram=_is_in_ram(image))


def read_elf(board: boards.Board, path: str | Path) -> Firmware:
    """Read and check an ELF file built elsewhere. Raises ConfigError if it does not fit the board."""
    elf = Path(path).resolve()
    _check_file(board, elf)
    image = Firmware(board, elf, ())
    # pyelftools raises many exception types for corrupt files.
    corrupt = (OSError, ELFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    with ConfigError.on(corrupt, f"{elf}: not an ELF file:", "did the build finish?"):
        _check_extents(elf, board)
        parts = [
            (section.name, address, section.size)
            for section in image.sections
            for address in {section.address, section.load_address or section.address}
            if address >> 29 != _DEVICES
        ]
        in_ram = _is_in_ram(image)
        if not in_ram:
            parts += [("segment", start, len(data)) for start, data in image.segments]
        _ = image.symbols
    _check_place(image, parts)
    return Firmware(board, elf, (), in_ram=in_ram)


def _check_file(board: boards.Board, path: Path) -> None:
    """Refuse a board without memory, and a file of another known type."""
    if not board.memory:
        raise ConfigError(
            f"{board.name} has no memory map, so it cannot take an image",
            "choose a board with one, for instance stm32f746",
        )
    check_readable(path, "did the build finish?")
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise ConfigError(f"{path}: has {size} bytes, and {_MAX_BYTES} is the limit", "is it an image for a board?")
    with path.open("rb") as file:
        head = file.read(16)
    if what := next((what for magic, what in _OTHERS.items() if head.startswith(magic)), ""):
        raise ConfigError(f"{path}: is {what}, not an image", "give the file that the linker wrote")


def _is_in_ram(image: Firmware) -> bool:
    # A core fetches its first instruction after reset from one of these.
    flash = (region.name for region in image.board.memory if region.kind == "flash")
    nonvolatile = {image.board.layout.code, *flash}
    return not any(image.region_of(start) in nonvolatile for start, _ in image.segments)


def _check_place(image: Firmware, parts: Sequence[tuple[str, int, int]]) -> None:
    if overflow := _overflow(image, parts):
        raise ConfigError(f"{image.elf}: {overflow}", "make it smaller, or take a board with more memory")
    board = image.board
    for name, address, size in parts:
        if sum(image.parts(address, size).values()) != size:
            regions = ", ".join(f"{part.name} {part.address:#010x} to {part.end:#010x}" for part in board.memory)
            raise ConfigError(
                f"{image.elf}: its {name or 'segment'}, {size} bytes at {address:#010x}, is not in the memory of "
                f"{board.full_name}: it was linked for another board",
                f"memory of {board.full_name}: {regions}",
            )


def _overflow(image: firmware.Firmware, parts: Sequence[tuple[str, int, int]]) -> str:
    """Describe the overflow of the memory region that is too small for an image; empty if none is."""
    for region in image.board.memory:
        limit, end = region.end, 0
        for following in sorted(image.board.memory, key=lambda other: other.address):
            limit = following.end if following.address == limit else limit
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
    if header != expected:
        return f"is for {_format_header(*header)}, and {board.full_name} has {_format_header(*expected)}"
    core = core_of(elf)
    profile = core.profile or "M"
    needed = next((rank for rank, row in enumerate(_M_PROFILE) if core.level in row[1]), 0)
    has = next((rank for rank, row in enumerate(_M_PROFILE) if cpu.core in row[2]), len(_M_PROFILE))
    if not core.level or ((profile == "M") == (board.architecture == "cortex_m") and needed <= has):
        return ""
    image = _M_PROFILE[needed][0] if profile == "M" else f"Arm's {profile} profile"
    return f"is for {image}, and {board.full_name} has a {cpu.core}"


def _format_header(machine: str, bits: int, little: bool) -> str:
    return f"{machine.removeprefix('EM_')} with {bits} bits, {'little' if little else 'big'}-endian"


def _check_extents(path: Path, board: boards.Board) -> None:
    """Reject an unsuitable or truncated file before reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        elf = ELFFile(file)
        ends = [segment["p_offset"] + segment["p_filesz"] for segment in elf.iter_segments()]
        ends += [part["sh_offset"] + part["sh_size"] for part in elf.iter_sections() if part["sh_type"] != "SHT_NOBITS"]
        if misfit := _misfit(elf, board):
            raise ConfigError(f"{path}: {misfit}", "build it for this board, or name the board that it is for")
        if elf["e_type"] == "ET_REL":
            raise ConfigError(f"{path}: is an object file, not linked", "give the file that the linker wrote")
        if max(ends, default=0) > size:
            raise ConfigError(f"{path}: ends after {size} bytes of {max(ends)}", "copy or build it again")
        if not any(segment["p_type"] == "PT_LOAD" and segment["p_filesz"] for segment in elf.iter_segments()):
            raise ConfigError(f"{path}: has nothing that can be loaded", "give the file that the linker wrote")


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
        with ConfigError.on(
            KeyError,
            f"{self.image.elf.name} has no symbol {name!r}",
            "is it spelled as in the source, and did the linker keep it?",
        ):
            return self.image.symbols[name]

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
            pc = self.connection.run_until_stop(timeout)
        finally:
            self.connection.clear_breakpoints()
        if pc != target:
            if pc == _LOCKED_UP and self.image.board.architecture == "cortex_m":
                raise BoardError(
                    f"the program did not reach {function}: the core locked up, a fault in a fault's handler "
                    "(Armv7-M ARM, B1.5.15)",
                    "does its vector table begin with a stack in RAM, and have a HardFault handler? see board.gdb",
                )
            at = self.image.source_line(pc) or f"{pc:#010x}"
            raise BoardError(f"the program did not reach {function} within {timeout:g} s; it is in {at}")

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
            raise ConfigError(f"{self.image.elf.name} does not contain the size of {name}", "give the size")
        return int(sizes[0])
