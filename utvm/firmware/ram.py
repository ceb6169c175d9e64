# SPDX-License-Identifier: Apache-2.0
"""Linking an image for RAM: the layout is chosen when the size of everything is known.

The first link says which constants are large: each becomes a section of its own, so that the weights of a model
need not lie in one piece. The second says how large every section is. Then they get their addresses.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from utvm.boards import Board
from utvm.errors import DoesNotFitError, ToolchainError
from utvm.firmware.image import is_thread_local
from utvm.firmware.sources import by_address
from utvm.toolchain.compiler import Objects

# C has no object at address 0.
_FIRST_ADDRESS = 16


@dataclass(frozen=True)
class SectionSize:
    """A section to be placed: its size and its alignment, in bytes."""

    name: str
    size: int
    alignment: int


@dataclass(frozen=True)
class Chunk:
    """Sections that lie one behind the other.

    ``executable`` is whether there is code among them, ``stretch`` the name of the only one that they may lie in.
    """

    sections: tuple[SectionSize, ...]
    executable: bool = False
    stretch: str = ""

    @property
    def size(self) -> int:
        """Bytes that it takes at an address that suits it."""
        return self.end(0)

    @property
    def name(self) -> str:
        """The name of its largest section."""
        return max(self.sections, key=lambda section: section.size).name

    def start(self, address: int) -> int:
        """Return the first address from here on that suits it."""
        return _aligned(address, self.sections[0].alignment)

    def end(self, address: int) -> int:
        """Return where it ends when it begins at :meth:`start`."""
        for section in self.sections:
            address = _aligned(address, section.alignment) + section.size
        return address


@dataclass(frozen=True)
class Stretch:
    """A piece of memory; ``executable`` is whether code runs in it."""

    name: str
    address: int
    size: int
    executable: bool = True

    @property
    def start(self) -> int:
        """The first address that is used."""
        return max(self.address, _FIRST_ADDRESS)

    @property
    def end(self) -> int:
        """The first address after it."""
        return self.address + self.size


class NoRoom(Exception):
    """A chunk that does not fit.

    Attributes:
        chunk: which one.
        stretch: the stretch with the most room for it, or None where no code runs anywhere.
        need: bytes that it would take there.
        room: bytes that are left there, from the first address that suits it.
    """

    def __init__(self, chunk: Chunk, stretch: Stretch | None, need: int, room: int) -> None:
        super().__init__(f"{chunk.name} needs {need} bytes, {room} are left")
        self.chunk = chunk
        self.stretch = stretch
        self.need = need
        self.room = room


def plan(stretches: Sequence[Stretch], first: tuple[str, Chunk], chunks: Collection[Chunk]) -> dict[str, int]:
    """Return the address of every section. The same chunks get the same addresses, in whatever order they come.

    What may lie in one stretch only is placed first, then code, then what is largest, each where it leaves the
    least room: what is small fills best what is left over.

    Args:
        first: the name of a stretch, and what lies at its very beginning.
    """
    ends = {stretch.name: stretch.start for stretch in stretches}
    addresses: dict[str, int] = {}

    def put(chunk: Chunk, able: Sequence[Stretch]) -> None:
        fitting = [stretch for stretch in able if chunk.end(ends[stretch.name]) <= stretch.end]
        if not fitting:
            raise _no_room(chunk, able, ends)
        chosen = min(fitting, key=lambda stretch: (stretch.end - chunk.end(ends[stretch.name]), stretch.address))
        for section in chunk.sections:
            addresses[section.name] = _aligned(ends[chosen.name], section.alignment)
            ends[chosen.name] = addresses[section.name] + section.size

    put(first[1], [stretch for stretch in stretches if stretch.name == first[0]])
    for chunk in sorted(chunks, key=lambda each: (not each.stretch, not each.executable, -each.size, each.name)):
        named = [stretch for stretch in stretches if chunk.stretch in ("", stretch.name)]
        put(chunk, [stretch for stretch in named if stretch.executable or not chunk.executable])
    return addresses


def _no_room(chunk: Chunk, able: Sequence[Stretch], ends: Mapping[str, int]) -> NoRoom:
    if not able:
        return NoRoom(chunk, None, chunk.size, 0)
    starts = {stretch: chunk.start(ends[stretch.name]) for stretch in able}
    widest = max(able, key=lambda stretch: stretch.end - starts[stretch])
    return NoRoom(chunk, widest, chunk.end(starts[widest]) - starts[widest], max(0, widest.end - starts[widest]))


def _aligned(address: int, alignment: int) -> int:
    return -(-address // alignment) * alignment


# A constant of so many bytes is placed by itself.
_LARGE = 1024
# A branch, and an entry of the table for unwinding, reach only so far.
_TOGETHER = (".vectors", ".text", ".ARM.exidx")
_STACK = ".stack"
# Where a controller may have to fetch a console's bytes, which does not reach every memory of a chip.
_DATA = (".data", ".bss", ".arena", ".fault_stack")
# Sections that lie far apart may be longer than the same side by side, where short ways to say an address reach.
# It ends when no section has grown, as a rule at once.
_MOST_LINKS = 5


def stretches_of(board: Board) -> tuple[Stretch, ...]:
    """Return the board's RAM: each region, or several where one continues the other."""
    stretches: list[Stretch] = []
    for region in sorted(board.memory, key=lambda region: region.address):
        if region.kind != "ram":
            continue
        if region.continues:
            before = stretches.pop()
            stretches.append(
                Stretch(
                    f"{before.name}+{region.name}", before.address, before.size + region.size, before.executable
                )
            )
        else:
            stretches.append(Stretch(region.name, region.address, region.size, region.executable))
    return tuple(stretches)


def link(objects: Objects, board: Board, image: Path, script: Path, map_file: Path, served: bool = False) -> None:
    """Link objects into an image for a board's RAM.

    Args:
        served: clients are to have memory in it, and what is written while it runs lies where the layout has data.
        script: where the linker script is left.
        map_file: where the linker's map is left.
    """

    def link_at(addresses: dict[str, int], constants: tuple[str, ...]) -> dict[str, SectionSize]:
        heap = _heap(board, addresses, needed) if served else (0, 0)
        script.write_text(by_address(board, addresses, constants, heap), encoding="utf-8")
        # Whether sections overlap is decided below: one that has grown gets another address.
        objects.link(image, linker_script=script, map_file=map_file, options=["-Wl,--no-check-sections"])
        return _sections(image)

    needed: dict[str, SectionSize] = {}
    link_at({}, ())
    constants = _large_constants(image)
    needed = link_at({}, constants)
    for _ in range(_MOST_LINKS):
        made = link_at(_place(board, needed, served), constants)
        grown = {name: new for name, new in made.items() if name not in needed or new.size > needed[name].size}
        if not grown:
            return
        needed |= grown
    raise ToolchainError(
        f"the layout of {board.name}'s RAM does not settle: {', '.join(grown)} grows with every link",
        "link the model into flash",
    )


def _data_stretch(board: Board) -> Stretch:
    return next(each for each in stretches_of(board) if board.layout.data in each.name.split("+"))


def _heap(board: Board, addresses: dict[str, int], sections: dict[str, SectionSize]) -> tuple[int, int]:
    """Return where memory for clients begins and ends: what is left behind everything else, where data is."""
    room = _data_stretch(board)
    ends = [address + sections[name].size for name, address in addresses.items() if name in sections]
    inside = [end for end in ends if room.start < end <= room.end]
    return max(inside, default=room.end), room.end


def _place(board: Board, sections: dict[str, SectionSize], served: bool) -> dict[str, int]:
    """Choose addresses for all sections."""
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
        advice = f"leave out --in-ram: for code and constants, region {code.name} has {code.size} bytes"
    return DoesNotFitError(
        f"section {error.chunk.name} does not fit into RAM: it needs {error.need} bytes and {room}; "
        f"{board.name} has {sum(each.size for each in stretches)} bytes of RAM, the whole image needs {total}",
        advice,
    )


def _sections(image: Path) -> dict[str, SectionSize]:
    """Return what takes memory, by name. Variables of a thread do not: their room is a part of ``.bss``."""
    with image.open("rb") as file:
        return {
            section.name: SectionSize(section.name, section["sh_size"], max(1, section["sh_addralign"]))
            for section in ELFFile(file).iter_sections()
            if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_size"] and not is_thread_local(section)
        }


def _large_constants(image: Path) -> tuple[str, ...]:
    """Return the names that the compiler has given to the sections of large constants (``-fdata-sections``)."""
    with image.open("rb") as file:
        elf = ELFFile(file)
        constants = elf.get_section_index(".rodata")
        return tuple(
            sorted(
                {
                    f".rodata.{symbol.name}"
                    for symbol in elf.get_section_by_name(".symtab").iter_symbols()
                    if symbol["st_shndx"] == constants and symbol["st_size"] >= _LARGE
                }
            )
        )
