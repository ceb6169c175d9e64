# SPDX-License-Identifier: Apache-2.0
"""Programmable logic as its TAP sees it: whether a bitstream has come (Xilinx UG470, tables 5-20 and 6-3)."""

from collections.abc import Mapping

from utvm.virtual.jtag.chain import STREAM, TOLD

_CFG_IN, _JPROGRAM = 0x05, 0x0B
_SYNCHRONISATION = f"{0xAA995566:032b}"


class ProgrammableLogic:
    """What the logic holds, of which a model that stands for it asks.

    What follows the synchronisation word of a bitstream is not looked at.

    Args:
        holds: what it was programmed with before; nothing where it is empty.

    Attributes:
        holds: what it holds now.
        registers: of its TAP.
    """

    registers: Mapping[int, int] = {_CFG_IN: STREAM, _JPROGRAM: TOLD}

    def __init__(self, holds: str) -> None:
        self.holds = holds
        self._tail = ""

    def update(self, instruction: int, value: int) -> None:
        """Be cleared, or take 64 bits, of which the first to come is the lowest."""
        if instruction == _JPROGRAM:
            self.holds = self._tail = ""
        elif not self.holds:
            bits = self._tail + f"{value:064b}"[::-1]
            self._tail = bits[1 - len(_SYNCHRONISATION) :]
            if _SYNCHRONISATION in bits:
                self.holds = "a bitstream"
