# SPDX-License-Identifier: Apache-2.0
"""The Flash Patch and Breakpoint unit, version 2: eight breakpoints anywhere (ARM DDI 0489, section 11)."""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.counter import BREAKPOINTS
from utvm.virtual.cortex_m.identity import FPB, component_id

_CONTROL = 0x000
_REMAP = 0x004
_COMPARATORS = 0x008

_VERSION_2 = 1 << 28
_ENABLE = 1 << 0
_KEY = 1 << 1
_BREAKPOINT_ENABLE = 1 << 0


class FlashPatchBreakpoint(Device):
    """FP_CTRL, FP_REMAP and FP_COMP0 to 7.

    Args:
        changed: told the addresses of all breakpoints that are on.
    """

    size = 0x1000

    def __init__(self, changed: Callable[[list[int]], None]) -> None:
        self._changed = changed
        self._enabled = 0
        self._comparators = [0] * BREAKPOINTS

    def power_on(self) -> None:
        """Take the state after power-on: no breakpoints. A system reset leaves them alone."""
        self._enabled = 0
        self._comparators = [0] * BREAKPOINTS
        self._announce()

    def load(self, offset: int) -> int:
        if offset == _CONTROL:
            return _VERSION_2 | BREAKPOINTS << 4 | self._enabled
        index = (offset - _COMPARATORS) // 4
        return self._comparators[index] if 0 <= index < BREAKPOINTS else component_id(offset, FPB)

    def store(self, offset: int, value: int, lanes: int) -> None:
        index = (offset - _COMPARATORS) // 4
        if offset == _CONTROL and value & _KEY:
            self._enabled = value & _ENABLE
        elif 0 <= index < BREAKPOINTS:
            self._comparators[index] = self._comparators[index] & ~lanes | value
        self._announce()

    def _announce(self) -> None:
        on = [value & ~1 for value in self._comparators if self._enabled and value & _BREAKPOINT_ENABLE]
        self._changed(on)
