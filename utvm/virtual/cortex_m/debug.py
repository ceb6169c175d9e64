# SPDX-License-Identifier: Apache-2.0
"""Halting debug: DHCSR, DCRSR, DCRDR, DEMCR and DFSR (ARM DDI 0403E, C1.6; DDI 0553B, D1.2).

:class:`DebugControl` holds the registers. What a debugger asks for by writing them it asks of a
:class:`DebugTarget`, the core.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m.counter import WATCHPOINTS
from utvm.virtual.cortex_m.kinds import CoreKind, Watches

DFSR = 0xD30
DHCSR = 0xDF0
DCRSR = 0xDF4
DCRDR = 0xDF8
DEMCR = 0xDFC

_KEY = 0xA05F
C_DEBUGEN = 1 << 0
C_HALT = 1 << 1
C_STEP = 1 << 2
C_MASKINTS = 1 << 3
_S_REGRDY = 1 << 16
_S_HALT = 1 << 17
_S_SLEEP = 1 << 18
_S_LOCKUP = 1 << 19
_S_SDE = 1 << 20  # of the Security Extension: what is secure may be debugged
_S_RETIRE_ST = 1 << 24
_S_RESET_ST = 1 << 25

# DFSR
DFSR_HALTED = 1 << 0
DFSR_BKPT = 1 << 1
DFSR_DWTTRAP = 1 << 2
DFSR_VCATCH = 1 << 3

# DEMCR
VC_CORERESET = 1 << 0
VC_MMERR = 1 << 4
VC_NOCPERR = 1 << 5
VC_CHKERR = 1 << 6
VC_STATERR = 1 << 7
VC_BUSERR = 1 << 8
VC_INTERR = 1 << 9
VC_HARDERR = 1 << 10
MON_EN = 1 << 16
TRCENA = 1 << 24
_DEMCR_MASK = 0x010F07F1

_REGNR = 0x7F
_REGWNR = 1 << 16


class DebugTarget(Protocol):
    """What a debugger drives."""

    @property
    def count(self) -> int:
        """Instructions executed so far."""

    @property
    def halted(self) -> bool:
        """Whether the core is in Debug state."""

    @property
    def sleeping(self) -> bool:
        """Whether the core waits for an interrupt or event."""

    @property
    def locked_up(self) -> bool:
        """Whether the core has locked up."""

    def halt(self, reason: int) -> None:
        """Enter Debug state for a reason, one bit of DFSR."""

    def resume(self) -> None:
        """Leave Debug state."""

    def debug_step(self) -> None:
        """Leave Debug state for one instruction."""

    def debug_changed(self) -> None:
        """Note a change of DHCSR or DEMCR."""

    def read_debug_register(self, selector: int) -> int:
        """Return the core register of a DCRSR selector."""

    def write_debug_register(self, selector: int, value: int) -> None:
        """Set the core register of a DCRSR selector."""


class DebugControl(Device):
    """The registers, at their offsets from 0xE000E000. A system reset leaves most alone.

    Attributes:
        fault_status: DFSR.
    """

    def __init__(self, target: DebugTarget, secure: bool) -> None:
        self._target = target
        self._always = _S_REGRDY | (_S_SDE if secure else 0)
        self.power_on()

    def power_on(self) -> None:
        """Take the state after power-on."""
        self._control = 0
        self._data = 0
        self.fault_status = 0
        self._exception_control = 0
        self._reset_seen = True
        self._count_seen = 0

    @property
    def enabled(self) -> bool:
        """Whether a debugger has enabled halting debug."""
        return bool(self._control & C_DEBUGEN)

    @property
    def interrupts_masked(self) -> bool:
        """Whether the debugger holds back PendSV, SysTick and external interrupts."""
        return self.enabled and bool(self._control & C_MASKINTS)

    @property
    def trace_enabled(self) -> bool:
        """DEMCR.TRCENA, without which the DWT stands still."""
        return bool(self._exception_control & TRCENA)

    @property
    def monitor_enabled(self) -> bool:
        """DEMCR.MON_EN."""
        return bool(self._exception_control & MON_EN)

    def catches(self, vector: int) -> bool:
        """Whether the debugger wants a halt for a vector catch bit."""
        return self.enabled and bool(self._exception_control & vector)

    def note_reset(self) -> None:
        """Remember a reset for S_RESET_ST. It takes back C_HALT and C_STEP."""
        self._reset_seen = True
        self._control &= C_DEBUGEN | C_MASKINTS

    def load(self, offset: int) -> int:
        if offset == DHCSR:
            return self._load_status()
        return {DCRDR: self._data, DEMCR: self._exception_control, DFSR: self.fault_status}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == DFSR:
            self.fault_status &= ~value
        elif offset == DCRDR:
            self._data = self._data & ~lanes | value
        elif offset == DEMCR:
            mask = _DEMCR_MASK & lanes
            self._exception_control = self._exception_control & ~mask | value & mask
            self._target.debug_changed()
        elif offset == DHCSR and value >> 16 == _KEY:
            self._control_execution(value)
        elif offset == DCRSR and self._target.halted:
            if value & _REGWNR:
                self._target.write_debug_register(value & _REGNR, self._data)
            else:
                self._data = self._target.read_debug_register(value & _REGNR)

    def _load_status(self) -> int:
        target = self._target
        value = self._control & 0xF | self._always
        value |= target.halted and _S_HALT
        value |= target.sleeping and _S_SLEEP
        value |= target.locked_up and _S_LOCKUP
        value |= (target.count != self._count_seen) and _S_RETIRE_ST
        value |= self._reset_seen and _S_RESET_ST
        self._count_seen = target.count
        self._reset_seen = False
        return value

    def _control_execution(self, value: int) -> None:
        target = self._target
        self._control = value & (C_DEBUGEN | C_HALT | C_STEP | C_MASKINTS)
        if not value & C_DEBUGEN:
            self._control = 0
            target.resume()
        elif value & C_HALT:
            if not target.halted:
                target.halt(DFSR_HALTED)
        elif target.halted and value & C_STEP:
            target.debug_step()
            self._control |= C_HALT
        elif target.halted:
            target.resume()
        target.debug_changed()

    def note_halt(self) -> None:
        """Show C_HALT, which the core sets when it enters Debug state by itself."""
        self._control |= C_HALT


_CONTROL = 0x000
_REMAP = 0x004
_COMPARATORS = 0x008

_ENABLE = 1 << 0
_FP_KEY = 1 << 1
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
        if offset == _CONTROL and value & _FP_KEY:
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


_DWT_CONTROL = 0x000
_CYCCNT = 0x004
_DWT_COMPARATORS = 0x020
_LOCK_ACCESS = 0xFB0
_LOCK_STATUS = 0xFB4

_CYCCNTENA = 1 << 0
_CONTROL_MASK = 0x00000001
_DWT_KEY = 0xC5ACCE55
_LOCK_IMPLEMENTED = 1 << 0
_LOCKED = 1 << 1
_MATCHED = 1 << 24


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
        if offset == _DWT_CONTROL:
            return WATCHPOINTS << 28 | self._control
        if offset == _CYCCNT:
            return self._cycles() & 0xFFFFFFFF
        index, register = divmod(offset - _DWT_COMPARATORS, 16)
        if not 0 <= index < WATCHPOINTS:
            lock = _LOCK_IMPLEMENTED | self._locked * _LOCKED
            return lock if offset == _LOCK_STATUS else self._identity.get(offset, 0)
        if register == 8:
            value = self._function[index] | self._watches.fixed
            self._function[index] &= ~_MATCHED
            return value
        return {0: self._compare[index], 4: self._mask[index]}.get(register, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        index, register = divmod(offset - _DWT_COMPARATORS, 16)
        if offset == _DWT_CONTROL:
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
            self._locked = value != _DWT_KEY
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
