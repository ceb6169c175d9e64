# SPDX-License-Identifier: Apache-2.0
"""The Flash Patch and Breakpoint unit: version 2 has breakpoints anywhere (ARM DDI 0489, section 11), version 1 in
the halves of words below 0x20000000 (ARM DDI 0403E, C1.11). Patching is not modelled.
"""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.kinds import CoreKind

_CONTROL = 0x000
_REMAP = 0x004
_COMPARATORS = 0x008

_ENABLE = 1 << 0
_KEY = 1 << 1
_BREAKPOINT_ENABLE = 1 << 0
_LITERALS = 2 << 8  # comparators of version 1 for data, which read as zero
_WORD = 0x1FFFFFFC
_HALVES = {0: (), 1: (0,), 2: (2,), 3: (0, 2)}  # REPLACE: none is a patch


class FlashPatchBreakpoint(Device):
    """FP_CTRL, FP_REMAP and FP_COMP0 and on.

    Args:
        kind: the core.
        changed: told the addresses of all breakpoints that are on.
    """

    size = 0x1000

    def __init__(self, kind: CoreKind, changed: Callable[[list[int]], None]) -> None:
        self._changed = changed
        self._identity = kind.components["fpb"]
        self._old = kind.breakpoint_version == 1
        self._control = kind.breakpoints << 4 | (_LITERALS if self._old else 1 << 28)
        self._enabled = 0
        self._comparators = [0] * kind.breakpoints

    def power_on(self) -> None:
        """Take the state after power-on: no breakpoints. A system reset leaves them alone."""
        self._enabled = 0
        self._comparators = [0] * len(self._comparators)
        self._announce()

    def load(self, offset: int) -> int:
        if offset == _CONTROL:
            return self._control | self._enabled
        index = (offset - _COMPARATORS) // 4
        if 0 <= index < len(self._comparators):
            return self._comparators[index]
        return self._identity.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        index = (offset - _COMPARATORS) // 4
        if offset == _CONTROL and value & _KEY:
            self._enabled = value & _ENABLE
        elif 0 <= index < len(self._comparators):
            self._comparators[index] = self._comparators[index] & ~lanes | value
        self._announce()

    def _announce(self) -> None:
        on = [value for value in self._comparators if self._enabled and value & _BREAKPOINT_ENABLE]
        if self._old:
            self._changed([value & _WORD | half for value in on for half in _HALVES[value >> 30]])
        else:
            self._changed([value & ~1 for value in on])
