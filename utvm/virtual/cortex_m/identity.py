# SPDX-License-Identifier: Apache-2.0
"""What a debugger reads to find out what is on the chip: ROM tables and component identification.

Sources: ARM DDI 0489, section 2.3; RM0385, section 40 (debug support); ARM IHI 0029 for the layout.
"""

from utvm.virtual.bus import Device

_PRESENT = 0x3
_ROM_TABLE = 0x10
_GENERIC = 0xE0

# Part numbers of Arm's components on a Cortex-M7; PIDR1 holds the upper digit.
SCS = 0x0C
DWT = 0x02
FPB = 0x0E
ITM = 0x01


def component_id(offset: int, part: int, component_class: int = _GENERIC, upper: int = 0xB0) -> int:
    """Return the peripheral and component identification words of an Arm component, zero elsewhere.

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

    def __init__(self, words: dict[int, int]) -> None:
        self._words = words

    def load(self, offset: int) -> int:
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        pass


def rom_tables() -> dict[int, ConstantPage]:
    """Return the ROM tables of an STM32F74x and its trace port, which takes nothing, by address."""
    ppb = [0xFFF0F000, 0xFFF02000, 0xFFF03000, 0xFFF01000]  # from there to SCS, DWT, FPB and ITM
    identity = range(0xFD0, 0x1000, 4)
    st = {0xFE0: 0x49, 0xFE4: 0x04, 0xFE8: 0x0A, 0xFF0: 0x0D, 0xFF4: _ROM_TABLE, 0xFF8: 0x05, 0xFFC: 0xB1}
    return {
        0xE0000000: ConstantPage({offset: component_id(offset, ITM) for offset in identity}),
        0xE00FD000: ConstantPage(_entries([0x1000]) | st),
        0xE00FE000: ConstantPage(
            _entries([0x1000]) | {offset: component_id(offset, 0xC8, _ROM_TABLE, 0xB4) for offset in identity}
        ),
        0xE00FF000: ConstantPage(
            _entries(ppb) | {offset: component_id(offset, 0xC7, _ROM_TABLE, 0xB4) for offset in identity}
        ),
    }


def _entries(offsets: list[int]) -> dict[int, int]:
    return {4 * index: offset | _PRESENT for index, offset in enumerate(offsets)}
