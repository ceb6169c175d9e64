# SPDX-License-Identifier: Apache-2.0
"""The registers of the interrupt controller (ARM DDI 0403E, B3.4)."""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.cortex_m import faults
from utvm.virtual.cortex_m.exceptions import PRIORITY_BITS, Exceptions
from utvm.virtual.cortex_m.faults import FIRST_INTERRUPT
from utvm.virtual.cortex_m.kinds import CoreKind
from utvm.virtual.wiring import Clock

_ENABLE = 0x100
_DISABLE = 0x180
_PEND = 0x200
_UNPEND = 0x280
_ACTIVE = 0x300
_PRIORITY = 0x400
_BANK_BYTES = 0x80
SOFTWARE_TRIGGER = 0xF00


class Nvic(Device):
    """ISER, ICER, ISPR, ICPR, IABR, IPR and STIR, at their offsets from 0xE000E000."""

    def __init__(self, exceptions: Exceptions) -> None:
        self._exceptions = exceptions

    def load(self, offset: int) -> int:
        if offset >= _PRIORITY:
            return self._load_priorities(offset)
        state = self._exceptions
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
            self._store_priorities(offset, value, lanes)
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

    def _load_priorities(self, offset: int) -> int:
        first = FIRST_INTERRUPT + offset - _PRIORITY
        priorities = self._exceptions.priority[first : first + 4]
        return int.from_bytes(bytes(priorities), "little")

    def _store_priorities(self, offset: int, value: int, lanes: int) -> None:
        first = FIRST_INTERRUPT + offset - _PRIORITY
        for byte in range(4):
            number = first + byte
            if lanes >> 8 * byte & 0xFF and number < FIRST_INTERRUPT + self._exceptions.interrupts:
                self._exceptions.priority[number] = value >> 8 * byte & PRIORITY_BITS


_CONTROL = 0x10
_RELOAD = 0x14
_CURRENT = 0x18

_ST_ENABLE = 1 << 0
_TICKINT = 1 << 1
_CLKSOURCE = 1 << 2
_COUNTFLAG = 1 << 16
_COUNTER_MASK = 0xFFFFFF

EXTERNAL_DIVIDER = 8  # the STM32F7 feeds HCLK/8 as the reference clock (RM0385, 10.1)


class SysTick(Device):
    """The counter and its four registers; CALIB says that there is no calibration.

    The counter is not run: it is worked out from the clock. While it is enabled, ``_zero`` is a tick at which it
    reaches 0; it is there again every reload + 1 steps.

    Args:
        pend: makes the SysTick exception pending.
    """

    def __init__(self, clock: Clock, pend: Callable[[], None]) -> None:
        self._clock = clock
        self._pend = pend
        self.reset()

    def reset(self) -> None:
        self._control = 0
        self._reload = 0
        self._stopped_at = 0  # the counter's value while it is disabled
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
        return 0xC0000000  # CALIB: no reference clock known, not exact

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        current = self._current()
        if offset == _CONTROL:
            wanted = self._control & ~lanes | value
            self._control = self._control & _COUNTFLAG | wanted & (_ST_ENABLE | _TICKINT | _CLKSOURCE)
        elif offset == _RELOAD:
            self._reload = (self._reload & ~lanes | value) & _COUNTER_MASK
        elif offset == _CURRENT:
            self._control &= ~_COUNTFLAG
            current = 0
        self._start_from(current)
        self._clock.timers_changed()

    def next_event(self) -> int | None:
        """Return the tick of the next interrupt, or None if there will be none."""
        return self._zero if self._control & _TICKINT else None

    def expire(self) -> None:
        """Set COUNTFLAG, and pend the exception if that is on, once the counter has reached 0."""
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
        return 1 if self._control & _CLKSOURCE else EXTERNAL_DIVIDER

    def _current(self) -> int:
        if self._zero is None:
            return self._stopped_at
        left = -(-(self._zero - self._clock.now()) // self._step())
        # One step before it reloads, the counter stands at 0.
        return 0 if left == self._reload + 1 else left

    def _start_from(self, current: int) -> None:
        """Go on counting from a value, or stop there."""
        self._stopped_at, self._zero = current, None
        if not self._control & _ST_ENABLE or (current == 0 and self._reload == 0):
            return
        steps = current or self._reload + 1  # from 0 the next step reloads
        self._zero = self._clock.now() + steps * self._step()


ICTR = 0x004
ACTLR = 0x008
CPUID = 0xD00
ICSR = 0xD04
VTOR = 0xD08
AIRCR = 0xD0C
SCR = 0xD10
CCR = 0xD14
SHPR1 = 0xD18
SHPR3 = 0xD20
SHCSR = 0xD24
CFSR = 0xD28
HFSR = 0xD2C
MMFAR = 0xD34
BFAR = 0xD38
AFSR = 0xD3C
CPACR = 0xD88
FPCCR = 0xF34
FPCAR = 0xF38
FPDSCR = 0xF3C

# Bits that can be written.
_PLAIN_MASKS = {
    ACTLR: 0x1FFFFC04,
    SCR: 0x16,
    AFSR: 0,
    MMFAR: 0xFFFFFFFF,
    BFAR: 0xFFFFFFFF,
    CPACR: 0x00F00000,
    FPCCR: 0xC0000000,
    FPCAR: 0xFFFFFFF8,
    FPDSCR: 0x07C00000,
    VTOR: 0xFFFFFF80,
}
_AFTER_RESET = {CCR: 0x00040200, FPCCR: 0xC0000000}

STKALIGN = 1 << 9  # reads as one and stays one on the Cortex-M7
NONBASETHRDENA = 1 << 0
UNALIGN_TRP = 1 << 3
DIV_0_TRP = 1 << 4
SLEEPONEXIT = 1 << 1
SEVONPEND = 1 << 4
FPU_ENABLED = 0xF << 20
ASPEN = 1 << 31

_VECTKEY_WRITE = 0x05FA
_VECTKEY_READ = 0xFA05
_SYSRESETREQ = 1 << 2
_VECTRESET = 1 << 0

# SHCSR: bit of active, pending and enable by exception.
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
    """Registers by their offset from 0xE000E000.

    Args:
        kind: the core.
        changed: called after a write that changes how the core runs (CCR, CPACR).
        request_reset: called for AIRCR.SYSRESETREQ and VECTRESET; told whether the peripherals are reset too.
        current_exception: returns IPSR.
    """

    def __init__(
        self,
        kind: CoreKind,
        exceptions: Exceptions,
        *,
        vector_table: int,
        changed: Callable[[], None],
        request_reset: Callable[[bool], None],
        current_exception: Callable[[], int],
    ) -> None:
        self._kind = kind
        self._masks = {**_PLAIN_MASKS, CCR: kind.configuration}
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
        """Return one of the plain registers: ACTLR, SCR, CCR, CPACR, VTOR, FPCCR, FPDSCR..."""
        return self._plain[offset]

    def is_enabled(self, exception: int) -> bool:
        """Whether SHCSR enables MemManage, BusFault or UsageFault."""
        return bool(self._fault_enables >> _SHCSR_ENABLE[exception] & 1)

    def record(self, fault: faults.Fault) -> None:
        """Set the status bits of a fault, and BFAR where it has an address."""
        self.fault_status |= fault.status
        if fault.address is not None:
            self._plain[BFAR] = fault.address

    def load(self, offset: int) -> int:
        if offset in self._plain:
            return self._plain[offset]
        if offset in self._kind.features:
            return self._kind.features[offset]
        if SHPR1 <= offset <= SHPR3:
            first = 4 + offset - SHPR1
            return int.from_bytes(bytes(self._exceptions.priority[first : first + 4]), "little")
        if offset == ICSR:
            return self._load_icsr()
        if offset == SHCSR:
            return self._load_shcsr()
        return {
            ICTR: (self._exceptions.interrupts + 31) // 32 - 1,
            CPUID: self._kind.cpuid,
            AIRCR: _VECTKEY_READ << 16 | self._exceptions.group_shift << 8,
            CFSR: self.fault_status,
            HFSR: self.hard_fault_status,
        }.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset in self._plain:
            mask = self._masks[offset] & lanes
            self._plain[offset] = self._plain[offset] & ~mask | value & mask
            self._changed()
        elif SHPR1 <= offset <= SHPR3:
            self._store_priorities(offset, value, lanes)
        elif offset == CFSR:
            self.fault_status &= ~value
        elif offset == HFSR:
            self.hard_fault_status &= ~value
        elif offset == ICSR:
            self._store_icsr(value)
        elif offset == AIRCR and lanes == 0xFFFFFFFF:
            self._store_aircr(value)
        elif offset == SHCSR:
            self._store_shcsr(value, lanes)

    def _store_priorities(self, offset: int, value: int, lanes: int) -> None:
        for byte in range(4):
            if lanes >> 8 * byte & 0xFF:
                self._exceptions.priority[4 + offset - SHPR1 + byte] = value >> 8 * byte & PRIORITY_BITS
        self._changed()

    def _load_icsr(self) -> int:
        state = self._exceptions
        current = self._current_exception()
        interrupts = any(number >= faults.FIRST_INTERRUPT for number in state.pending)
        value = current | interrupts << 22 | (state.next(NO_LIMIT) or 0) << 12
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
        value = self._fault_enables
        for exception, bit in _SHCSR_ACTIVE.items():
            value |= (exception in self._exceptions.active) << bit
        for exception, bit in _SHCSR_PENDING.items():
            value |= (exception in self._exceptions.pending) << bit
        return value

    def _store_shcsr(self, value: int, lanes: int) -> None:
        enables = lanes & 0x70000
        self._fault_enables = self._fault_enables & ~enables | value & enables
        for exception, bit in _SHCSR_ACTIVE.items():
            if lanes >> bit & 1:
                (self._exceptions.active.add if value >> bit & 1 else self._exceptions.active.discard)(exception)
        for exception, bit in _SHCSR_PENDING.items():
            if lanes >> bit & 1:
                (self._exceptions.pend if value >> bit & 1 else self._exceptions.unpend)(exception)


NO_LIMIT = 1 << 16  # above every exception number


class SystemControlSpace(Device):
    """Hands each register of the 4 KiB at 0xE000E000 to the part it belongs to.

    Args:
        parts: (first offset, offset after the last, part). Parts see offsets from 0xE000E000.
    """

    size = 0x1000

    def __init__(self, parts: list[tuple[int, int, Device]]) -> None:
        self._parts = parts

    def load(self, offset: int) -> int:
        for start, end, part in self._parts:
            if start <= offset < end:
                return part.load(offset)
        return 0

    def store(self, offset: int, value: int, lanes: int) -> None:
        for start, end, part in self._parts:
            if start <= offset < end:
                part.store(offset, value, lanes)
                return
