# SPDX-License-Identifier: Apache-2.0
"""Where things go in memory that is in several pieces.

What must lie in one piece is a :class:`Chunk`, a piece of memory a :class:`Stretch`. The planner knows neither
boards nor files.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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
