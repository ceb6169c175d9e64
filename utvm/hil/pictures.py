# SPDX-License-Identifier: Apache-2.0
"""Where things go in the report's two pictures; the templates draw what is computed here."""

from dataclasses import dataclass

from utvm.firmware import Firmware, Section

_BAR_WIDTH = 720.0
# A section of a few bytes in a megabyte of flash is still to be seen.
_NARROWEST = 2.0


@dataclass(frozen=True)
class Mark:
    """A section in a region's bar: offset and width in picture units, and whose colour it has."""

    name: str
    address: int
    size: int
    x: float
    width: float
    colour: int


@dataclass(frozen=True)
class Bar:
    """A memory region of the board, drawn to its own scale, with the firmware's sections in it."""

    name: str
    kind: str
    address: int
    size: int
    used: int
    marks: tuple[Mark, ...]

    @property
    def share(self) -> float:
        """Used part, 0 to 1."""
        return self.used / self.size


def memory_map(firmware: Firmware) -> tuple[Bar, ...]:
    """Lay the sections of a firmware into the memory regions of its board, in address order.

    A section that runs elsewhere than it is stored is in both places. A region that only mirrors another one
    is left out: it would show the same bytes twice. A board that is a process has no regions.
    """
    places: list[tuple[str, int, int]] = []
    for section in firmware.sections:
        places.append((section.name, section.address, section.size))
        if section.load_address is not None and section.load_address != section.address:
            places.append((f"{section.name} (initial values)", section.load_address, section.size))
    colours = {name: number for number, name in enumerate(section_names(firmware.sections))}
    bars = []
    for region in sorted(firmware.board.memory, key=lambda region: region.address):
        if region.alias_of:
            continue
        scale = _BAR_WIDTH / region.size
        inside = [place for place in places if region.address <= place[1] < region.end]
        marks = tuple(
            Mark(
                name,
                address,
                size,
                x=min((address - region.address) * scale, _BAR_WIDTH - _NARROWEST),
                width=max(size * scale, _NARROWEST),
                colour=colours[name.split(" ")[0]],
            )
            for name, address, size in sorted(inside, key=lambda place: place[1])
        )
        used = sum(mark.size for mark in marks)
        bars.append(Bar(region.name, region.kind, region.address, region.size, used, marks))
    return tuple(bars)


def section_names(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """Return the names of the sections, each once, in order."""
    return tuple(dict.fromkeys(section.name for section in sections))


@dataclass(frozen=True)
class Cell:
    """One cell of a confusion matrix: how many samples with this label were predicted so."""

    label: int
    prediction: int
    samples: int

    @property
    def right(self) -> bool:
        """Whether the prediction is the label."""
        return self.label == self.prediction


def confusion_cells(confusion: tuple[tuple[int, ...], ...]) -> tuple[Cell, ...]:
    """Return the cells of a confusion matrix, row by row."""
    return tuple(
        Cell(label, prediction, samples)
        for label, row in enumerate(confusion)
        for prediction, samples in enumerate(row)
    )
