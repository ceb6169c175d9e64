# SPDX-License-Identifier: Apache-2.0
"""A chip, whoever describes it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from utvm.errors import ConfigError

_MOST_SECTORS = 1 << 16
# An eighth of all addresses is what the architecture keeps for a kind of memory, and no memory.
_MOST_BYTES = 1 << 29
# In YAML these are no names.
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True)
class ChipMemory:
    """A piece of a chip's memory.

    Attributes:
        sectors: bytes of each erase unit in the order of addresses; none where that is not said.
        first: whether the core starts there.
    """

    name: str
    address: int
    size: int
    kind: Literal["ram", "flash"]
    sectors: tuple[int, ...] = ()
    first: bool = False

    @property
    def end(self) -> int:
        """The first address after it."""
        return self.address + self.size


@dataclass(frozen=True)
class Chip:
    """What a description says of a chip.

    Attributes:
        cpu: the row of ``toolchains/arm-none-eabi.yaml`` for its core, or the smallest that runs there.
        sure: whether it is that core; if not, the description only says which instructions it has.
        interrupts: lines of its interrupt controller; None where that is not said.
        source: who says so, in words.
        target: its name in pyOCD, where that knows it, or does with the pack that describes it.
        pack: what makes a pack of what pyOCD needs of that pack, if it is at hand.
    """

    name: str
    cpu: str
    sure: bool
    memory: tuple[ChipMemory, ...]
    interrupts: int | None
    source: str
    target: str = ""
    pack: Callable[[], bytes] | None = None


def number(text: str | None) -> int | None:
    """Return what a description has as a number; None where it is none."""
    try:
        return int((text or "").strip(), 0)
    except ValueError:
        return None


def part_name(said: str, otherwise: str) -> str:
    """Return what a piece of memory is called in a board's file, after what a description calls it."""
    name = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")
    return name if name[:1].isalpha() and name not in _WORDS else f"{otherwise}-{name}".rstrip("-")


def units(size: int, sector: int) -> tuple[int, ...]:
    """Return the erase units of so much flash; none where they cannot be these."""
    whole = sector > 0 and size % sector == 0 and size // sector <= _MOST_SECTORS
    return (sector,) * (size // sector) if whole else ()


def without_overlaps(memory: list[ChipMemory]) -> tuple[ChipMemory, ...]:
    """Return pieces in the order of their addresses: of two that overlap or have one name, the one said first."""
    kept: list[ChipMemory] = []
    for piece in memory:
        if 0 < piece.size < _MOST_BYTES and not any(
            (piece.address < other.end and other.address < piece.end) or piece.name == other.name for other in kept
        ):
            kept.append(piece)
    return tuple(sorted(kept, key=lambda piece: piece.address))


def check_words(*said: str) -> None:
    """Refuse what would be more than a word in the files of a board. Raises ConfigError."""
    for words in said:
        if not (words.isprintable() and words.isascii() and len(words) < 200):
            raise ConfigError(
                f"{words[:60]!r} is no name for a chip or its description",
                "printable characters of ASCII make one",
            )
