# SPDX-License-Identifier: Apache-2.0
"""A chip, whoever describes it."""

from dataclasses import dataclass
from typing import Literal


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
    """

    name: str
    cpu: str
    sure: bool
    memory: tuple[ChipMemory, ...]
    interrupts: int | None
    source: str
    target: str = ""


def number(text: str | None) -> int:
    """Return what a description has as a number; 0 where it is none."""
    try:
        return int((text or "0").strip(), 0)
    except ValueError:
        return 0


def without_overlaps(memory: list[ChipMemory]) -> tuple[ChipMemory, ...]:
    """Return pieces in the order of their addresses: of two that overlap, the one that was said first."""
    kept: list[ChipMemory] = []
    for piece in memory:
        if piece.size > 0 and not any(piece.address < other.end and other.address < piece.end for other in kept):
            kept.append(piece)
    return tuple(sorted(kept, key=lambda piece: piece.address))
