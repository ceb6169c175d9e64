# SPDX-License-Identifier: Apache-2.0
"""What a debugger reads to find out what is on a chip: ROM tables and component identification (ARM IHI 0029)."""

from collections.abc import Mapping
from typing import Literal

from utvm.virtual.bus import Device

_PRESENT = 0x3
_ROM_TABLE = 0x10
_GENERIC = 0xE0
_CORESIGHT = 0x90
_DEVARCH, _DEVTYPE = 0xFBC, 0xFCC
_IDENTITY = range(0xFD0, 0x1000, 4)

Pages = Mapping[int, Mapping[int, int]]
"""Words of constant pages, by the address of the page and the offset in it."""

Component = Literal["scs", "dwt", "fpb", "itm"]
Components = Mapping[Component, Mapping[int, int]]
"""The words by which a core's own components say what they are, by their offset in 4 KiB."""


def _component_id(offset: int, part: int, component_class: int = _GENERIC, upper: int = 0xB0) -> int:
    """Return a peripheral or component identification word of an Arm component, zero elsewhere.

    Args:
        offset: from the component's 4 KiB page.
        part: PIDR0, the low byte of the part number.
        component_class: CIDR1.
        upper: PIDR1.
    """
    words = {0xFD0: 0x04, 0xFE0: part, 0xFE4: upper, 0xFE8: 0x0B}
    words |= {0xFF0: 0x0D, 0xFF4: component_class, 0xFF8: 0x05, 0xFFC: 0xB1}
    return words.get(offset, 0)


class ConstantPage(Device):
    """A page of constant words; writes are ignored."""

    size = 0x1000

    def __init__(self, words: Mapping[int, int]) -> None:
        self._words = words

    def load(self, offset: int) -> int:
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        pass


def rom_table(offsets: list[int], maker: Mapping[int, int] | None = None, *, part: int = 0) -> Mapping[int, int]:
    """Return the words of a ROM table.

    Args:
        offsets: from the table to what is on the chip.
        maker: the identification registers of a chip's own table; else it is Arm's.
        part: PIDR0 of a table of Arm's.
    """
    entries = {4 * index: offset | _PRESENT for index, offset in enumerate(offsets)}
    identity = _words(part, _ROM_TABLE, 0xB4)
    if maker is not None:
        identity = {0xFF0: 0x0D, 0xFF4: _ROM_TABLE, 0xFF8: 0x05, 0xFFC: 0xB1, **maker}
    return entries | identity


def _words(part: int, component_class: int = _GENERIC, upper: int = 0xB0) -> dict[int, int]:
    return {offset: _component_id(offset, part, component_class, upper) for offset in _IDENTITY}


# Part numbers; PIDR1 holds their upper digit.
COMPONENTS_V7: Components = {"scs": _words(0x0C), "dwt": _words(0x02), "fpb": _words(0x0E), "itm": _words(0x01)}
COMPONENTS_M4: Components = {**COMPONENTS_V7, "fpb": _words(0x03)}
# One part number is that of all; DEVARCH, and DEVTYPE of the trace port, tell them apart.
_M33 = _words(0x21, _CORESIGHT, 0xBD)
COMPONENTS_M33: Components = {
    "scs": {**_M33, _DEVARCH: 0x47702A04},
    "dwt": {**_M33, _DEVARCH: 0x47701A02},
    "fpb": {**_M33, _DEVARCH: 0x47701A03},
    "itm": {**_M33, _DEVARCH: 0x47701A01, _DEVTYPE: 0x43},
}
