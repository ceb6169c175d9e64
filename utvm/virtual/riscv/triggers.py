# SPDX-License-Identifier: Apache-2.0
"""A hart's triggers, for a debugger and for its program (RISC-V External Debug Support 0.13.2, chapter 5)."""

from utvm.virtual.jtag.core import EXECUTE, LOAD, STORE, TRIGGERS

TSELECT, TDATA1, TDATA2, TDATA3, TINFO = range(0x7A0, 0x7A5)
_MCONTROL = 2
_ACTION, _ENTER_DEBUG_MODE = 0xF << 12, 1 << 12
# Bits 0 to 2 of mcontrol: load, store, execute. A debugger sets all modes and expects to read them back.
_ACCESSES = LOAD | STORE | EXECUTE
_MODES = 0x58
_IN_MODE = (1 << 3, 1 << 4, 1 << 5, 1 << 6)  # By privilege mode.


class Triggers:
    """Triggers of type mcontrol that compare an address; ``conditions`` are those of :class:`CountedCore`."""

    def __init__(self, width: int) -> None:
        self._dmode = 1 << (width - 5)
        self._type = _MCONTROL << (width - 4)
        self.reset()

    def reset(self) -> None:
        self._selected = 0
        self._controls = [0] * TRIGGERS
        self._addresses = [0] * TRIGGERS

    @property
    def conditions(self) -> list[tuple[int, int]]:
        pairs = zip(self._addresses, self._controls, strict=True)
        return [(address, control & _ACCESSES if control & _MODES else 0) for address, control in pairs]

    def halts(self, number: int, mode: int) -> bool | None:
        """True if a trigger enters Debug Mode, False if it raises a breakpoint; None if it is not for a mode."""
        control = self._controls[number]
        return bool(control & _ENTER_DEBUG_MODE) if control & _IN_MODE[mode] else None

    def read(self, number: int) -> int:
        """Read a register."""
        values = {
            TSELECT: self._selected,
            TDATA1: self._type | self._controls[self._selected],
            TDATA2: self._addresses[self._selected],
            TINFO: 1 << _MCONTROL,
        }
        return values.get(number, 0)

    def write(self, number: int, value: int, *, debugger: bool) -> None:
        """Write a register. A program cannot change a debugger's trigger, or take one for a debugger."""
        if number == TSELECT:
            self._selected = value if value < TRIGGERS else self._selected
        elif not debugger and self._controls[self._selected] & self._dmode:
            return
        elif number == TDATA1:
            owner = value & self._dmode if debugger else 0
            action = value & _ACTION if owner else 0
            self._controls[self._selected] = owner | (action & _ENTER_DEBUG_MODE) | value & (_MODES | _ACCESSES)
        elif number == TDATA2:
            self._addresses[self._selected] = value
