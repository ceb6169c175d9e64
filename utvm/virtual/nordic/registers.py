# SPDX-License-Identifier: Apache-2.0
"""Registers that do little more than remember."""

from utvm.virtual.stm32.registers import PlainRegisters

_HFCLKSTART = 0x000
_HFCLKSTARTED = 0x100


class Registers(PlainRegisters):
    """The 4 KiB of a peripheral that reads back what was written: pins that lead nowhere, an idle watchdog."""

    size = 0x1000


class HighClock(Registers):
    """CLOCK (5.4): the crystal runs as soon as it is started. One instruction stays one tick."""

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _HFCLKSTART and value & 1:
            self.values[_HFCLKSTARTED] = 1
        elif offset >= _HFCLKSTARTED:  # what is below are tasks, which read as zero
            super().store(offset, value, lanes)
