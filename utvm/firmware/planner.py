"""Where things go in memory that is in several pieces.

What must lie in one piece is a :class:`Block`, a piece of memory a :class:`Place`. The planner knows neither
boards nor files.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

# C has no object at address 0.
_FIRST_ADDRESS = 16


@dataclass(frozen=True)
class Section:
    """A section to be placed: its size and its alignment, in bytes."""

    name: str
    size: int
    alignment: int


@dataclass(frozen=True)
class Block:
    """Sections that lie one behind the other; ``executable`` is whether there is code among them."""

    sections: tuple[Section, ...]
    executable: bool = False

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
class Place:
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
    """A block that does not fit.

    Attributes:
        block: which one.
        place: the place with the most room for it, or None where no code runs anywhere.
        need: bytes that it would take there.
        room: bytes that are left there, from the first address that suits it.
    """

    def __init__(self, block: Block, place: Place | None, need: int, room: int) -> None:
        super().__init__(f"{block.name} needs {need} bytes, {room} are left")
        self.block = block
        self.place = place
        self.need = need
        self.room = room


def plan(places: Sequence[Place], first: tuple[str, Block], blocks: Collection[Block]) -> dict[str, int]:
    """Return the address of every section. The same blocks get the same addresses, in whatever order they come.

    Code is placed first, then what is largest, each where it leaves the least room: what is small fills best what
    is left over.

    Args:
        first: the name of a place, and what lies at its very beginning.

    Raises:
        NoRoom: something does not fit beside what was placed before it.
    """
    ends = {place.name: place.start for place in places}
    addresses: dict[str, int] = {}

    def put(block: Block, able: Sequence[Place]) -> None:
        fitting = [place for place in able if block.end(ends[place.name]) <= place.end]
        if not fitting:
            raise _no_room(block, able, ends)
        chosen = min(fitting, key=lambda place: (place.end - block.end(ends[place.name]), place.address))
        for section in block.sections:
            addresses[section.name] = _aligned(ends[chosen.name], section.alignment)
            ends[chosen.name] = addresses[section.name] + section.size

    put(first[1], [place for place in places if place.name == first[0]])
    for block in sorted(blocks, key=lambda block: (not block.executable, -block.size, block.name)):
        put(block, [place for place in places if place.executable or not block.executable])
    return addresses


def _no_room(block: Block, able: Sequence[Place], ends: Mapping[str, int]) -> NoRoom:
    if not able:
        return NoRoom(block, None, block.size, 0)
    starts = {place: block.start(ends[place.name]) for place in able}
    widest = max(able, key=lambda place: place.end - starts[place])
    return NoRoom(block, widest, block.end(starts[widest]) - starts[widest], max(0, widest.end - starts[widest]))


def _aligned(address: int, alignment: int) -> int:
    return -(-address // alignment) * alignment
