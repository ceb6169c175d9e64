# SPDX-License-Identifier: Apache-2.0
"""Links an image for RAM in several pieces: sections are placed once all sizes are known.

The first link finds large constants, which become separate sections, so that a model's weights need not be
contiguous. The second link gives the sizes of all sections; then they get their addresses. A :class:`Chunk` must
be contiguous; a :class:`Stretch` is a contiguous piece of memory.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from utvm.boards import Board
from utvm.errors import DoesNotFitError, ToolchainError
from utvm.firmware.image import is_thread_local
from utvm.firmware.sources import linker_script
from utvm.toolchain.compiler import Objects

# No C object may be at address 0.
_FIRST_ADDRESS = 16


@dataclass(frozen=True)
class SectionSize:
    name: str
    size: int
    alignment: int


@dataclass(frozen=True)
class Chunk:
    """Consecutive sections; ``executable`` if they contain code.

    ``stretch`` names the only stretch that they may be in, if any."""

    sections: tuple[SectionSize, ...]
    executable: bool = False
    stretch: str = ""

    @property
    def size(self) -> int:
        return self.end(0)

    @property
    def name(self) -> str:
        return max(self.sections, key=lambda section: section.size).name

    def start(self, address: int) -> int:
        return _align(address, self.sections[0].alignment)

    def end(self, address: int) -> int:
        """End address (exclusive) of the chunk when it starts at :meth:`start`."""
        for section in self.sections:
            address = _align(address, section.alignment) + section.size
        return address


@dataclass(frozen=True)
class Stretch:
    """A contiguous piece of memory; ``executable`` if code can run there."""

    name: str
    address: int
    size: int
    executable: bool = True

    @property
    def start(self) -> int:
        return max(self.address, _FIRST_ADDRESS)

    @property
    def end(self) -> int:
        """End address (exclusive)."""
        return self.address + self.size


class NoRoom(Exception):
    """A chunk does not fit: ``room`` bytes are left in ``stretch``, the widest that it may be in.

    ``stretch`` is None if no memory is executable."""

    def __init__(self, chunk: Chunk, stretch: Stretch | None, need: int, room: int) -> None:
        super().__init__(f"{chunk.name} needs {need} bytes, {room} are left")
        self.chunk = chunk
        self.stretch = stretch
        self.need = need
        self.room = room


def plan(stretches: Sequence[Stretch], first: tuple[str, Chunk], chunks: Collection[Chunk]) -> dict[str, int]:
    """Return the address of every section, independent of the order of chunks.

    ``first`` (the name of a stretch, and a chunk) is placed first, then chunks bound to a stretch, then code, then
    the others by size, each where the least space remains: small chunks fill the gaps.
    """
    ends = {stretch.name: stretch.start for stretch in stretches}
    addresses: dict[str, int] = {}

    def put(chunk: Chunk, allowed: Sequence[Stretch]) -> None:
        fitting = [stretch for stretch in allowed if chunk.end(ends[stretch.name]) <= stretch.end]
        if not fitting:
            raise _no_room(chunk, allowed, ends)
        target = min(fitting, key=lambda stretch: (stretch.end - chunk.end(ends[stretch.name]), stretch.address))
        for section in chunk.sections:
            addresses[section.name] = _align(ends[target.name], section.alignment)
            ends[target.name] = addresses[section.name] + section.size

    put(first[1], [stretch for stretch in stretches if stretch.name == first[0]])
    for chunk in sorted(chunks, key=lambda chunk: (not chunk.stretch, not chunk.executable, -chunk.size, chunk.name)):
        candidates = [stretch for stretch in stretches if chunk.stretch in ("", stretch.name)]
        put(chunk, [stretch for stretch in candidates if stretch.executable or not chunk.executable])
    return addresses


def _no_room(chunk: Chunk, allowed: Sequence[Stretch], ends: Mapping[str, int]) -> NoRoom:
    if not allowed:
        return NoRoom(chunk, None, chunk.size, 0)
    starts = {stretch: chunk.start(ends[stretch.name]) for stretch in allowed}
    widest = max(allowed, key=lambda stretch: stretch.end - starts[stretch])
    return NoRoom(chunk, widest, chunk.end(starts[widest]) - starts[widest], max(0, widest.end - starts[widest]))


def _align(address: int, alignment: int) -> int:
    return -(-address // alignment) * alignment


# Constants of this size are placed separately.
_LARGE = 1024
# Together, since branches and entries of the unwind table have a limited range.
_TOGETHER = (".vectors", ".text", ".ARM.exidx")
_STACK = ".stack"
# Kept in one region: the DMA of a console does not reach every memory of a chip.
_DATA = (".data", ".bss", ".arena", ".fault_stack")
# Sections far apart may be larger, because addresses need longer instructions. Linking is repeated until no
# section grows, usually once.
_MOST_LINKS = 5


def stretches_of(board: Board) -> tuple[Stretch, ...]:
    """Return the board's RAM; a region that continues the one before is joined to it."""
    stretches: list[Stretch] = []
    for region in sorted(board.memory, key=lambda region: region.address):
        if region.kind != "ram":
            continue
        if region.continues:
            before = stretches.pop()
            name = f"{before.name}+{region.name}"
            stretches.append(Stretch(name, before.address, before.size + region.size, before.executable))
        else:
            stretches.append(Stretch(region.name, region.address, region.size, region.executable))
    return tuple(stretches)


def link(objects: Objects, board: Board, image: Path, script: Path, map_file: Path, served: bool = False) -> None:
    """Link objects into an image for a board's RAM; writes the linker script and map, too.

    With ``served``, clients allocate memory in the image, and variables are in the layout's data region.
    """

    def link_at(addresses: dict[str, int], constants: tuple[str, ...]) -> dict[str, SectionSize]:
        heap = (0, 0)
        if served:  # The free space after all sections in the stretch of data is clients' memory.
            stretch = _data_stretch(board)
            ends = [address + needed[name].size for name, address in addresses.items() if name in needed]
            heap = (max((end for end in ends if stretch.start < end <= stretch.end), default=stretch.end), stretch.end)
        script.write_text(linker_script(board, addresses, constants, heap), encoding="utf-8")
        # Sections that have grown may overlap until they are moved.
        objects.link(image, linker_script=script, map_file=map_file, options=["-Wl,--no-check-sections"])
        return _sections(image)

    needed: dict[str, SectionSize] = {}
    link_at({}, ())
    constants = _large_constants(image)
    needed = link_at({}, constants)
    for _ in range(_MOST_LINKS):
        sizes = link_at(_place(board, needed, served), constants)
        grown = {name: new for name, new in sizes.items() if name not in needed or new.size > needed[name].size}
        if not grown:
            return
        needed |= grown
    raise ToolchainError(
        f"the layout of {board.name}'s RAM does not settle: {', '.join(grown)} grows with every link",
        "link the model into flash",
    )


def _data_stretch(board: Board) -> Stretch:
    return next(stretch for stretch in stretches_of(board) if board.layout.data in stretch.name.split("+"))


def _place(board: Board, sections: dict[str, SectionSize], served: bool) -> dict[str, int]:
    stack = Chunk((sections[_STACK],))
    code = Chunk(tuple(sections[name] for name in _TOGETHER if name in sections), executable=True)
    data = _data_stretch(board).name if served else ""
    others = [
        Chunk((section,), stretch=data if name in _DATA else "")
        for name, section in sections.items()
        if name not in (*_TOGETHER, _STACK)
    ]
    stretches = stretches_of(board)
    (bottom,) = (stretch for stretch in stretches if board.layout.stack in stretch.name.split("+"))
    try:
        return plan(stretches, (bottom.name, stack), [code, *others])
    except NoRoom as error:
        raise _does_not_fit(board, stretches, error, sum(section.size for section in sections.values())) from None


def _does_not_fit(board: Board, stretches: tuple[Stretch, ...], error: NoRoom, total: int) -> DoesNotFitError:
    room = "no code can run in any of it"
    if error.stretch is not None:
        room = f"the most that is left in one piece is {error.room} ({error.stretch.name})"
    advice = "use a smaller model, or a board with more memory (./inv board.list)"
    code = board.region(board.layout.code)
    if code.kind == "flash":
        advice = f"leave out --set in-ram: for code and constants, region {code.name} has {code.size} bytes"
    return DoesNotFitError(
        f"section {error.chunk.name} does not fit into RAM: it needs {error.need} bytes and {room}; "
        f"{board.name} has {sum(piece.size for piece in stretches)} bytes of RAM, the whole image needs {total}",
        advice,
    )


def _sections(image: Path) -> dict[str, SectionSize]:
    """Return allocated sections by name, without thread-local ones, whose memory is in ``.bss``."""
    with image.open("rb") as file:
        return {
            section.name: SectionSize(section.name, section["sh_size"], max(1, section["sh_addralign"]))
            for section in ELFFile(file).iter_sections()
            if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_size"] and not is_thread_local(section)
        }


def _large_constants(image: Path) -> tuple[str, ...]:
    with image.open("rb") as file:
        elf = ELFFile(file)
        constants = elf.get_section_index(".rodata")
        names = {
            f".rodata.{symbol.name}"
            for symbol in elf.get_section_by_name(".symtab").iter_symbols()
            if symbol["st_shndx"] == constants
            and symbol["st_size"] >= _LARGE
            # Other names come from clients: they stay in .rodata and out of the script.
            and re.fullmatch(r"[\w.$]+", symbol.name, re.ASCII)
        }
    return tuple(sorted(names))
