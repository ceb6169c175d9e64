# SPDX-License-Identifier: Apache-2.0
"""The System Control Space of a Cortex-M: SCB, NVIC and SysTick (ARM DDI 0403E, B3.2 to B3.4)."""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m import faults, kinds
from utvm.virtual.cortex_m.faults import FIRST_INTERRUPT, NO_LIMIT, PRIORITY_BITS, Exceptions
from utvm.virtual.wiring import Clock


class SystemControlSpace(Device):
    """The 4 KiB at 0xE000E000, divided among parts.

    Parts are (first offset, end offset, device); the first match applies. All offsets are from 0xE000E000.
    """

    size = 0x1000

    def __init__(self, parts: list[tuple[int, int, Device]]) -> None:
        self._parts = parts

    def _part_at(self, offset: int) -> Device | None:
        return next((part for start, end, part in self._parts if start <= offset < end), None)

    def load(self, offset: int) -> int:
        part = self._part_at(offset)
        return part.load(offset) if part else 0

    def store(self, offset: int, value: int, lanes: int) -> None:
        part = self._part_at(offset)
        if part:
            part.store(offset, value, lanes)


def _load_priorities(exceptions: Exceptions, first: int) -> int:
    return int.from_bytes(bytes(exceptions.priority[first : first + 4]), "little")


def _store_priorities(exceptions: Exceptions, first: int, value: int, lanes: int) -> None:
    for byte in range(4):
        if lanes >> 8 * byte & 0xFF and first + byte < len(exceptions.priority):
            exceptions.priority[first + byte] = value >> 8 * byte & PRIORITY_BITS


_ENABLE, _DISABLE, _PEND, _UNPEND, _ACTIVE, _PRIORITY = 0x100, 0x180, 0x200, 0x280, 0x300, 0x400
_BANK_BYTES = 0x80
SOFTWARE_TRIGGER = 0xF00


class Nvic(Device):
    """ISER, ICER, ISPR, ICPR, IABR, IPR and STIR, at their offsets from 0xE000E000."""

    def __init__(self, exceptions: Exceptions) -> None:
        self._exceptions = exceptions

    def load(self, offset: int) -> int:
        state = self._exceptions
        if offset >= _PRIORITY:
            return _load_priorities(state, FIRST_INTERRUPT + offset - _PRIORITY)
        bank = offset & -_BANK_BYTES
        members = {_ENABLE: state.enabled, _DISABLE: state.enabled, _ACTIVE: state.active}.get(bank, state.pending)
        first = FIRST_INTERRUPT + 8 * (offset - bank)
        return sum(1 << bit for bit in range(32) if first + bit in members)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == SOFTWARE_TRIGGER:
            if value & 0x1FF < self._exceptions.interrupts:
                self._exceptions.pend(FIRST_INTERRUPT + (value & 0x1FF))
            return
        if offset >= _PRIORITY:
            _store_priorities(self._exceptions, FIRST_INTERRUPT + offset - _PRIORITY, value, lanes)
            return
        bank = offset & -_BANK_BYTES
        first = FIRST_INTERRUPT + 8 * (offset - bank)
        end = FIRST_INTERRUPT + self._exceptions.interrupts
        for number in (first + bit for bit in range(32) if value >> bit & 1 and first + bit < end):
            if bank in (_ENABLE, _DISABLE):
                self._exceptions.enable(number, bank == _ENABLE)
            elif bank == _PEND:
                self._exceptions.pend(number)
            elif bank == _UNPEND:
                self._exceptions.unpend(number)


_CONTROL, _RELOAD, _CURRENT = 0x10, 0x14, 0x18
_COUNTER_ENABLE = 1 << 0
_TICKINT = 1 << 1
_CLKSOURCE = 1 << 2
_COUNTFLAG = 1 << 16
_COUNTER_MASK = 0xFFFFFF
_EXTERNAL_DIVIDER = 8  # the STM32F7 feeds HCLK/8 as the reference clock (RM0385, 10.1)


class SysTick(Device):
    """SysTick, a 24-bit down counter; a tick of the processor clock is an instruction. CALIB: no calibration.

    The value is computed from the clock. While enabled, the counter reaches 0 at tick ``_zero``, and again every
    reload + 1 steps. ``pend`` sets the exception pending.
    """

    def __init__(self, clock: Clock, pend: Callable[[], None]) -> None:
        self._clock = clock
        self._pend = pend
        self.reset()

    def reset(self) -> None:
        self._control = 0
        self._reload = 0
        self._stopped_at = 0  # value of the disabled counter
        self._zero: int | None = None

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _CONTROL:
            value = self._control
            self._control &= ~_COUNTFLAG
            return value
        if offset == _RELOAD:
            return self._reload
        if offset == _CURRENT:
            return self._current()
        return 0xC0000000  # CALIB: no reference clock, not exact

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        current = self._current()
        if offset == _CONTROL:
            control = self._control & ~lanes | value
            self._control = self._control & _COUNTFLAG | control & (_COUNTER_ENABLE | _TICKINT | _CLKSOURCE)
        elif offset == _RELOAD:
            self._reload = (self._reload & ~lanes | value) & _COUNTER_MASK
        elif offset == _CURRENT:
            self._control &= ~_COUNTFLAG
            current = 0
        self._start_from(current)
        self._clock.reschedule()

    def next_event(self) -> int | None:
        return self._zero if self._control & _TICKINT else None

    def expire(self) -> None:
        if self._zero is None or self._clock.now() < self._zero:
            return
        self._control |= _COUNTFLAG
        if self._control & _TICKINT:
            self._pend()
        if self._reload == 0:
            self._stopped_at, self._zero = 0, None
            return
        period = (self._reload + 1) * self._step()
        self._zero += ((self._clock.now() - self._zero) // period + 1) * period

    def _step(self) -> int:
        return 1 if self._control & _CLKSOURCE else _EXTERNAL_DIVIDER

    def _current(self) -> int:
        if self._zero is None:
            return self._stopped_at
        steps = -(-(self._zero - self._clock.now()) // self._step())
        return 0 if steps == self._reload + 1 else steps  # 0 for one step, then it reloads

    def _start_from(self, current: int) -> None:
        self._stopped_at, self._zero = current, None
        if not self._control & _COUNTER_ENABLE or (current == 0 and self._reload == 0):
            return
        steps = current or self._reload + 1  # from 0 the next step reloads
        self._zero = self._clock.now() + steps * self._step()


_ICTR, _ACTLR = 0x004, 0x008
_CPUID, _ICSR, VTOR, _AIRCR, SCR, CCR = range(0xD00, 0xD18, 4)
_SHPR1, _SHPR3 = 0xD18, 0xD20
_SHCSR, _CFSR, _HFSR, _MMFAR, _BFAR, _AFSR = 0xD24, 0xD28, 0xD2C, 0xD34, 0xD38, 0xD3C
CPACR = 0xD88
FPCCR, FPCAR, FPDSCR = 0xF34, 0xF38, 0xF3C
FPDSCR_BITS = 0x07C00000

# Writable bits of the registers without side effects.
_MASKS = {
    _ACTLR: 0x1FFFFC04,
    SCR: 0x16,
    _AFSR: 0,
    _MMFAR: 0xFFFFFFFF,
    _BFAR: 0xFFFFFFFF,
    CPACR: 0x00F00000,
    FPCCR: 0xC000017B,
    FPCAR: 0xFFFFFFF8,
    FPDSCR: FPDSCR_BITS,
    VTOR: 0xFFFFFF80,
}
_AFTER_RESET = {CCR: 0x00040200, FPCCR: 0xC0000000}

NONBASETHRDENA = 1 << 0
USERSETMPEND, UNALIGN_TRP = 1 << 1, 1 << 3
DIV_0_TRP = 1 << 4
SLEEPONEXIT, SLEEPDEEP = 1 << 1, 1 << 2
SEVONPEND = 1 << 4
ASPEN, LSPEN, USER, LSPACT = 1 << 31, 1 << 30, 1 << 1, 1 << 0

_VECTKEY_WRITE, _VECTKEY_READ = 0x05FA, 0xFA05
_SYSRESETREQ, _VECTRESET = 1 << 2, 1 << 0

# SHCSR: active, pending and enable bits by exception.
_SHCSR_ACTIVE = {
    faults.MEM_MANAGE: 0,
    faults.BUS_FAULT: 1,
    faults.USAGE_FAULT: 3,
    faults.SV_CALL: 7,
    faults.DEBUG_MONITOR: 8,
    faults.PEND_SV: 10,
    faults.SYS_TICK: 11,
}
_SHCSR_PENDING = {faults.USAGE_FAULT: 12, faults.MEM_MANAGE: 13, faults.BUS_FAULT: 14, faults.SV_CALL: 15}
_SHCSR_ENABLE = {faults.MEM_MANAGE: 16, faults.BUS_FAULT: 17, faults.USAGE_FAULT: 18}


class SystemControlBlock(Device):
    """The System Control Block, at its offsets from 0xE000E000.

    Args:
        changed: called after a write that changes how the core runs.
        request_reset: called for AIRCR.SYSRESETREQ (True: with the peripherals) and VECTRESET.
        current_exception: returns IPSR.
    """

    def __init__(
        self,
        kind: kinds.CoreKind,
        exceptions: Exceptions,
        *,
        vector_table: int,
        changed: Callable[[], None],
        request_reset: Callable[[bool], None],
        current_exception: Callable[[], int],
    ) -> None:
        self._kind = kind
        self._masks = {**_MASKS, CCR: kind.configuration}
        self._exceptions = exceptions
        self._vector_table = vector_table
        self._changed = changed
        self._request_reset = request_reset
        self._current_exception = current_exception
        self.reset()

    def reset(self) -> None:
        self._plain = dict.fromkeys(self._masks, 0) | _AFTER_RESET | {VTOR: self._vector_table}
        self._fault_enables = 0
        self.fault_status = 0
        self.hard_fault_status = 0

    def value(self, offset: int) -> int:
        """Value of a register without side effects, such as SCR, CCR, CPACR, VTOR, FPCCR."""
        return self._plain[offset]

    def is_enabled(self, exception: int) -> bool:
        """True if SHCSR enables MemManage, BusFault or UsageFault."""
        return bool(self._fault_enables >> _SHCSR_ENABLE[exception] & 1)

    def record(self, fault: faults.Fault) -> None:
        """Set the status bits of a fault, and MMFAR or BFAR if it has an address."""
        self.fault_status |= fault.status
        if fault.address is not None:
            self._plain[_MMFAR if fault.exception == faults.MEM_MANAGE else _BFAR] = fault.address

    def load(self, offset: int) -> int:
        if offset in self._plain:
            return self._plain[offset]
        if offset in self._kind.features:
            return self._kind.features[offset]
        if _SHPR1 <= offset <= _SHPR3:
            return _load_priorities(self._exceptions, 4 + offset - _SHPR1)
        if offset == _ICSR:
            return self._load_icsr()
        if offset == _SHCSR:
            return self._load_shcsr()
        return {
            _ICTR: (self._exceptions.interrupts + 31) // 32 - 1,
            _CPUID: self._kind.cpuid,
            _AIRCR: _VECTKEY_READ << 16 | self._exceptions.group_shift << 8,
            _CFSR: self.fault_status,
            _HFSR: self.hard_fault_status,
        }.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset in self._plain:
            mask = self._masks[offset] & lanes
            self._plain[offset] = self._plain[offset] & ~mask | value & mask
            self._changed()
        elif _SHPR1 <= offset <= _SHPR3:
            _store_priorities(self._exceptions, 4 + offset - _SHPR1, value, lanes)
            self._changed()
        elif offset == _CFSR:
            self.fault_status &= ~value
        elif offset == _HFSR:
            self.hard_fault_status &= ~value
        elif offset == _ICSR:
            self._store_icsr(value)
        elif offset == _AIRCR and lanes == 0xFFFFFFFF:
            self._store_aircr(value)
        elif offset == _SHCSR:
            self._store_shcsr(value, lanes)

    def _load_icsr(self) -> int:
        state = self._exceptions
        interrupts = any(number >= FIRST_INTERRUPT for number in state.pending)
        value = self._current_exception() | interrupts << 22 | (state.next(NO_LIMIT) or 0) << 12
        value |= (len(state.active) <= 1) << 11
        value |= (faults.SYS_TICK in state.pending) << 26 | (faults.PEND_SV in state.pending) << 28
        return value | (faults.NMI in state.pending) << 31

    def _store_icsr(self, value: int) -> None:
        for bit, exception in ((31, faults.NMI), (28, faults.PEND_SV), (26, faults.SYS_TICK)):
            if value >> bit & 1:
                self._exceptions.pend(exception)
        for bit, exception in ((27, faults.PEND_SV), (25, faults.SYS_TICK)):
            if value >> bit & 1:
                self._exceptions.unpend(exception)

    def _store_aircr(self, value: int) -> None:
        if value >> 16 != _VECTKEY_WRITE:
            return
        self._exceptions.group_shift = value >> 8 & 7
        if value & (_SYSRESETREQ | _VECTRESET):
            self._request_reset(bool(value & _SYSRESETREQ))

    def _load_shcsr(self) -> int:
        active = sum((exception in self._exceptions.active) << bit for exception, bit in _SHCSR_ACTIVE.items())
        pending = sum((exception in self._exceptions.pending) << bit for exception, bit in _SHCSR_PENDING.items())
        return self._fault_enables | active | pending

    def _store_shcsr(self, value: int, lanes: int) -> None:
        enables = lanes & 0x70000
        self._fault_enables = self._fault_enables & ~enables | value & enables
        for exception, bit in _SHCSR_ACTIVE.items():
            if lanes >> bit & 1:
                (self._exceptions.active.add if value >> bit & 1 else self._exceptions.active.discard)(exception)
        for exception, bit in _SHCSR_PENDING.items():
            if lanes >> bit & 1:
                (self._exceptions.pend if value >> bit & 1 else self._exceptions.unpend)(exception)
