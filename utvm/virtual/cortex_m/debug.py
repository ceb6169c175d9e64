# SPDX-License-Identifier: Apache-2.0
"""Debug of a Cortex-M: halting debug, breakpoints, watchpoints and the cycle counter.

Sources: ARM DDI 0403E, C1 (Armv7-M); DDI 0553B, D1.2 (Armv8-M); DDI 0489, section 11 (Cortex-M7).
"""

from collections.abc import Callable
from typing import Any

from utvm.virtual import bus, spec
from utvm.virtual.cortex_m import core, kinds

DFSR, DHCSR, _DCRSR, _DCRDR, DEMCR = 0xD30, 0xDF0, 0xDF4, 0xDF8, 0xDFC

# DHCSR
_DHCSR_KEY = 0xA05F
_C_DEBUGEN, _C_HALT, _C_STEP, _C_MASKINTS = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_S_REGRDY, _S_HALT, _S_SLEEP, _S_LOCKUP = 1 << 16, 1 << 17, 1 << 18, 1 << 19
_S_SDE = 1 << 20  # of the Security Extension: Secure debug is enabled
_S_RETIRE_ST, _S_RESET_ST = 1 << 24, 1 << 25

# DFSR
DFSR_HALTED, DFSR_BKPT, DFSR_DWTTRAP, DFSR_VCATCH = 1 << 0, 1 << 1, 1 << 2, 1 << 3

# DEMCR
VC_CORERESET, VC_MMERR, VC_NOCPERR, VC_CHKERR, VC_STATERR = 1 << 0, 1 << 4, 1 << 5, 1 << 6, 1 << 7
VC_BUSERR, VC_HARDERR, _MON_EN, _TRCENA = 1 << 8, 1 << 10, 1 << 16, 1 << 24
_DEMCR_MASK = 0x010F07F1

# DCRSR
_REGNR, _REGWNR = 0x7F, 1 << 16


class DebugControl(bus.Device):
    """DHCSR, DCRSR, DCRDR, DEMCR and DFSR, at their offsets from 0xE000E000. Most survive a system reset.

    ``target`` is the :class:`utvm.virtual.cortex_m.cpu.CortexM` that they control, which has them as a part.
    """

    def __init__(self, target: Any, secure: bool) -> None:
        self._target = target
        self._constant_status = _S_REGRDY | (_S_SDE if secure else 0)
        self.power_on()

    def power_on(self) -> None:
        self._control = 0
        self._data = 0
        self.fault_status = 0
        self._exception_control = 0
        self._reset_since_read = True
        self._count_at_read = 0

    @property
    def enabled(self) -> bool:
        """True if a debugger has enabled halting debug."""
        return bool(self._control & _C_DEBUGEN)

    @property
    def interrupts_masked(self) -> bool:
        """True if the debugger masks PendSV, SysTick and external interrupts."""
        return self.enabled and bool(self._control & _C_MASKINTS)

    @property
    def trace_enabled(self) -> bool:
        """DEMCR.TRCENA, which enables the DWT."""
        return bool(self._exception_control & _TRCENA)

    @property
    def monitor_enabled(self) -> bool:
        """DEMCR.MON_EN."""
        return bool(self._exception_control & _MON_EN)

    def catches(self, vector: int) -> bool:
        """True if halting debug is enabled and a vector catch bit is set."""
        return self.enabled and bool(self._exception_control & vector)

    def note_reset(self) -> None:
        """Set S_RESET_ST; clear C_HALT and C_STEP."""
        self._reset_since_read = True
        self._control &= _C_DEBUGEN | _C_MASKINTS

    def note_halt(self) -> None:
        """Set C_HALT, as the core does when it enters Debug state by itself."""
        self._control |= _C_HALT

    def load(self, offset: int) -> int:
        if offset == DHCSR:
            return self._load_status()
        return {_DCRDR: self._data, DEMCR: self._exception_control, DFSR: self.fault_status}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == DFSR:
            self.fault_status &= ~value
        elif offset == _DCRDR:
            self._data = self._data & ~lanes | value
        elif offset == DEMCR:
            mask = _DEMCR_MASK & lanes
            self._exception_control = self._exception_control & ~mask | value & mask
            self._target.apply_debug_settings()
        elif offset == DHCSR and value >> 16 == _DHCSR_KEY:
            self._control_execution(value)
        elif offset == _DCRSR and self._target.halted:
            if value & _REGWNR:
                self._target.write_debug_register(value & _REGNR, self._data)
            else:
                self._data = self._target.read_debug_register(value & _REGNR)

    def _load_status(self) -> int:
        target = self._target
        value = self._control & 0xF | self._constant_status
        value |= target.halted and _S_HALT
        value |= target.sleeping and _S_SLEEP
        value |= target.locked_up and _S_LOCKUP
        value |= (target.count != self._count_at_read) and _S_RETIRE_ST
        value |= self._reset_since_read and _S_RESET_ST
        self._count_at_read = target.count
        self._reset_since_read = False
        return value

    def _control_execution(self, value: int) -> None:
        target = self._target
        self._control = value & (_C_DEBUGEN | _C_HALT | _C_STEP | _C_MASKINTS)
        if not value & _C_DEBUGEN:
            self._control = 0
            target.resume()
        elif value & _C_HALT:
            if not target.halted:
                target.halt(DFSR_HALTED)
        elif target.halted and value & _C_STEP:
            target.debug_step()
            self._control |= _C_HALT
        elif target.halted:
            target.resume()
        target.apply_debug_settings()


_FP_CTRL, _FP_COMPARATORS = 0x000, 0x008
_FP_ENABLE, _FP_KEY = 1 << 0, 1 << 1
_BREAKPOINT_ENABLE = 1 << 0
_LITERALS = 2 << 8  # data comparators of version 1, which read as zero
_WORD = 0x1FFFFFFC
_HALVES = {0: (), 1: (0,), 2: (2,), 3: (0, 2)}  # REPLACE: 0 patches instead


class FlashPatchBreakpoint(bus.Device):
    """FP_CTRL, FP_REMAP and FP_COMPn. Patching is not modelled.

    Version 2 has breakpoints at any address, version 1 at halves of words below 0x20000000. ``changed`` is called
    with the addresses of all enabled breakpoints.
    """

    size = 0x1000

    def __init__(self, kind: kinds.CoreKind, changed: Callable[[list[int]], None]) -> None:
        self._changed = changed
        self._identity = kind.components["fpb"]
        self._version_1 = kind.breakpoint_version == 1
        self._control = kind.breakpoints << 4 | (_LITERALS if self._version_1 else 1 << 28)
        self._enabled = 0
        self._comparators = [0] * kind.breakpoints

    def power_on(self) -> None:
        """Clear all breakpoints. A system reset does not."""
        self._enabled = 0
        self._comparators = [0] * len(self._comparators)
        self._report()

    def load(self, offset: int) -> int:
        if offset == _FP_CTRL:
            return self._control | self._enabled
        index = (offset - _FP_COMPARATORS) // 4
        return self._comparators[index] if 0 <= index < len(self._comparators) else self._identity.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        index = (offset - _FP_COMPARATORS) // 4
        if offset == _FP_CTRL and value & _FP_KEY:
            self._enabled = value & _FP_ENABLE
        elif 0 <= index < len(self._comparators):
            self._comparators[index] = self._comparators[index] & ~lanes | value
        self._report()

    def _report(self) -> None:
        enabled = [value for value in self._comparators if self._enabled and value & _BREAKPOINT_ENABLE]
        if self._version_1:
            self._changed([value & _WORD | half for value in enabled for half in _HALVES[value >> 30]])
        else:
            self._changed([value & ~1 for value in enabled])


_DWT_CTRL, _CYCCNT, _PCSR, _DWT_COMPARATORS = 0x000, 0x004, 0x01C, 0x020
_LOCK_ACCESS, _LOCK_STATUS = 0xFB0, 0xFB4
_SELECT = spec.WAITS_REGISTER & 0xFFF
_CYCCNTENA = 1 << 0
_LOCK_KEY = 0xC5ACCE55
_LOCK_IMPLEMENTED, _LOCKED = 1 << 0, 1 << 1
_MATCHED = 1 << 24


class DataWatchpointTrace(bus.Device):
    """The Data Watchpoint and Trace unit: DWT_CTRL, CYCCNT, four comparators and the software lock.

    CYCCNT counts instructions or modelled cycles, without time asleep. DEMCR.TRCENA enables the unit. ``count``
    returns the cycles so far; ``select`` chooses which are counted; ``sample`` returns an address for PCSR;
    ``changed`` gets (first, last, access) of each comparator; access 0 is off.
    """

    size = 0x1000

    def __init__(
        self,
        count: Callable[[], int],
        select: Callable[[int], None],
        sample: Callable[[], int],
        changed: Callable[[list[tuple[int, int, int]]], None],
        kind: kinds.CoreKind,
    ) -> None:
        self._sample = sample
        self._watches = kind.watches
        self._identity = kind.components["dwt"]
        self._count = count
        self._select = select
        self._changed = changed
        self._enabled = False
        self._clear()

    def power_on(self) -> None:
        """Reset the unit. A system reset does not, and debuggers rely on that."""
        self._clear()
        self._report()

    def set_enabled(self, on: bool) -> None:
        """Apply DEMCR.TRCENA."""
        self._freeze()
        self._enabled = on
        self._report()

    def set_matched(self, hits: int) -> None:
        """Set MATCHED of the comparators in a bit mask."""
        for index in range(core.WATCHPOINTS):
            self._function[index] |= (hits >> index & 1) * _MATCHED

    def load(self, offset: int) -> int:
        if offset == _DWT_CTRL:
            return core.WATCHPOINTS << 28 | self._control
        if offset == _CYCCNT:
            return self._cycles() & 0xFFFFFFFF
        if offset == _PCSR:
            return self._sample()
        index, register = divmod(offset - _DWT_COMPARATORS, 16)
        if not 0 <= index < core.WATCHPOINTS:
            lock = _LOCK_IMPLEMENTED | self._locked * _LOCKED
            return lock if offset == _LOCK_STATUS else self._identity.get(offset, 0)
        if register == 8:
            value = self._function[index] | self._watches.fixed
            self._function[index] &= ~_MATCHED
            return value
        return {0: self._compare[index], 4: self._mask[index]}.get(register, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        index, register = divmod(offset - _DWT_COMPARATORS, 16)
        if offset == _DWT_CTRL:
            self._freeze()
            self._control = value & _CYCCNTENA
        elif offset == _SELECT:
            self._freeze()
            self._select(value)
            self._since = self._count()
        elif offset == _CYCCNT:
            self._base = value
            self._since = self._count()
        elif 0 <= index < core.WATCHPOINTS:
            if register == 0:
                self._compare[index] = value
            elif register == 4 and not self._watches.size:
                self._mask[index] = value & 0x1F
            elif register == 8:
                known = value & self._watches.kind in self._watches.accesses
                self._function[index] = value & (self._watches.kind | self._watches.size) if known else 0
            self._report()

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        if offset == _LOCK_ACCESS:
            self._locked = value != _LOCK_KEY
        elif not self._locked:
            self.write(offset, size, value)

    def _clear(self) -> None:
        self._control = 0
        self._base = 0
        self._since = self._count()
        self._locked = True
        self._compare, self._mask, self._function = ([0] * core.WATCHPOINTS for _ in range(3))

    def _cycles(self) -> int:
        running = self._enabled and self._control & _CYCCNTENA
        return self._base + (self._count() - self._since if running else 0)

    def _freeze(self) -> None:
        self._base = self._cycles() & 0xFFFFFFFF
        self._since = self._count()

    def _report(self) -> None:
        watchpoints = []
        for compare, mask, function in zip(self._compare, self._mask, self._function, strict=True):
            size = (function & self._watches.size) // (self._watches.size & -self._watches.size or 1)
            span = (1 << mask + size) - 1
            access = self._watches.accesses.get(function & self._watches.kind, 0) if self._enabled else 0
            watchpoints.append((compare & ~span, compare | span, access))
        self._changed(watchpoints)
