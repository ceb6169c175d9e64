# SPDX-License-Identifier: Apache-2.0
"""The Data Watchpoint and Trace unit (ARM DDI 0403E, C1.8; DDI 0553B, D1.2): a cycle counter and four watchpoints.

CYCCNT counts instructions, exactly, and nothing else: no memory wait, no time asleep. Two runs of the same
program read the same values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.core import WATCH_READ, WATCH_WRITE
from utvm.virtual.cortex_m.counter import WATCHPOINTS

_CONTROL = 0x000
_CYCCNT = 0x004
_COMPARATORS = 0x020
_LOCK_ACCESS = 0xFB0
_LOCK_STATUS = 0xFB4

_CYCCNTENA = 1 << 0
_CONTROL_MASK = 0x00000001
_KEY = 0xC5ACCE55
_LOCK_IMPLEMENTED = 1 << 0
_LOCKED = 1 << 1
_MATCHED = 1 << 24


@dataclass(frozen=True)
class Watches:
    """How comparators say what they watch.

    Attributes:
        accesses: by FUNCTION's bits of :attr:`kind`; any other watches nothing.
        kind: those bits.
        size: of FUNCTION, the binary logarithm of how many bytes are watched; else a register of its own has that.
        fixed: what FUNCTION reads as beside.
    """

    accesses: Mapping[int, int]
    kind: int
    size: int = 0
    fixed: int = 0


WATCHES_V7 = Watches({5: WATCH_READ, 6: WATCH_WRITE, 7: WATCH_READ | WATCH_WRITE}, 0xF)
# With ACTION a debug event; a comparator is for data addresses.
WATCHES_V8 = Watches(
    {0x14: WATCH_READ | WATCH_WRITE, 0x15: WATCH_WRITE, 0x16: WATCH_READ}, 0x3F, 0xC00, 0x40000000
)


class DataWatchpointTrace(Device):
    """DWT_CTRL, CYCCNT, the comparators and the software lock. DEMCR.TRCENA turns it on.

    Args:
        count: returns the instructions executed so far.
        changed: told (first, last, access) of each comparator; access 0 watches nothing.
        watches: how they are told what to watch.
        identity: the words by which it says what it is.
    """

    size = 0x1000

    def __init__(
        self,
        count: Callable[[], int],
        changed: Callable[[list[tuple[int, int, int]]], None],
        watches: Watches,
        identity: Mapping[int, int],
    ) -> None:
        self._watches = watches
        self._identity = identity
        self._count = count
        self._changed = changed
        self._enabled = False
        self._clear()

    def power_on(self) -> None:
        """Take the state after power-on. A system reset leaves the unit alone, as debuggers rely on."""
        self._clear()
        self._announce()

    def set_enabled(self, on: bool) -> None:
        """Follow DEMCR.TRCENA."""
        self._freeze()
        self._enabled = on
        self._announce()

    def matched(self, hits: int) -> None:
        """Set MATCHED of the comparators in a bit mask."""
        for index in range(WATCHPOINTS):
            self._function[index] |= (hits >> index & 1) * _MATCHED

    def load(self, offset: int) -> int:
        if offset == _CONTROL:
            return WATCHPOINTS << 28 | self._control
        if offset == _CYCCNT:
            return self._cycles() & 0xFFFFFFFF
        index, register = divmod(offset - _COMPARATORS, 16)
        if not 0 <= index < WATCHPOINTS:
            lock = _LOCK_IMPLEMENTED | self._locked * _LOCKED
            return lock if offset == _LOCK_STATUS else self._identity.get(offset, 0)
        if register == 8:
            value = self._function[index] | self._watches.fixed
            self._function[index] &= ~_MATCHED
            return value
        return {0: self._compare[index], 4: self._mask[index]}.get(register, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        index, register = divmod(offset - _COMPARATORS, 16)
        if offset == _CONTROL:
            self._freeze()
            self._control = value & _CONTROL_MASK
        elif offset == _CYCCNT:
            self._base = value
            self._since = self._count()
        elif 0 <= index < WATCHPOINTS:
            if register == 0:
                self._compare[index] = value
            elif register == 4 and not self._watches.size:
                self._mask[index] = value & 0x1F
            elif register == 8:
                known = value & self._watches.kind in self._watches.accesses
                self._function[index] = value & (self._watches.kind | self._watches.size) if known else 0
            self._announce()

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        if offset == _LOCK_ACCESS:
            self._locked = value != _KEY
        elif not self._locked:
            self.write(offset, size, value)

    def _clear(self) -> None:
        self._control = 0
        self._base = 0
        self._since = self._count()
        self._locked = True
        self._compare = [0] * WATCHPOINTS
        self._mask = [0] * WATCHPOINTS
        self._function = [0] * WATCHPOINTS

    def _cycles(self) -> int:
        running = self._enabled and self._control & _CYCCNTENA
        return self._base + (self._count() - self._since if running else 0)

    def _freeze(self) -> None:
        self._base = self._cycles() & 0xFFFFFFFF
        self._since = self._count()

    def _announce(self) -> None:
        watched = []
        for compare, mask, function in zip(self._compare, self._mask, self._function, strict=True):
            size = (function & self._watches.size) // (self._watches.size & -self._watches.size or 1)
            span = (1 << mask + size) - 1
            access = self._watches.accesses.get(function & self._watches.kind, 0) if self._enabled else 0
            watched.append((compare & ~span, compare | span, access))
        self._changed(watched)
