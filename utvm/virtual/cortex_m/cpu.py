# SPDX-License-Identifier: Apache-2.0
"""A Cortex-M: instruction set, exceptions, timers, debug, and virtual time.

Time is the number of instructions plus the ticks slept, independent of debuggers and the speed of the host.
"""

import ctypes
from collections import deque
from collections.abc import Callable

from utvm.virtual.bus import Bus, Device, ResetCause
from utvm.virtual.cortex_m import debug, faults, registers, scs
from utvm.virtual.cortex_m.core import Core, CoreStop, StopKind
from utvm.virtual.cortex_m.cycles import Cycles
from utvm.virtual.cortex_m.debug import DataWatchpointTrace, DebugControl, FlashPatchBreakpoint
from utvm.virtual.cortex_m.faults import NO_LIMIT, Exceptions
from utvm.virtual.cortex_m.handlers import Handlers, LockUp
from utvm.virtual.cortex_m.kinds import TPIU, ConstantPage, CoreKind
from utvm.virtual.cortex_m.mpu import FILTERS_DATA, MPU, MPU_END, UNPRIVILEGED, MpuRegisters
from utvm.virtual.cortex_m.scs import SOFTWARE_TRIGGER, Nvic, SystemControlBlock, SystemControlSpace, SysTick
from utvm.virtual.cortex_m.trace import FORMATTER, ITM, PORTS_END, TraceState, TraceUnit
from utvm.virtual.engine import NEVER
from utvm.virtual.spec import FLASH_BYTES, TimingSpec
from utvm.virtual.wiring import Timer

_SCS, _DWT, _FPB = 0xE000E000, 0xE0001000, 0xE0002000
_PORTS = frozenset(range(ITM, ITM + PORTS_END))
_WFI = 0xBF30
_SPIN = 2000  # Most ticks that pass before a debugger's access while the core spins.
_STRIDE = 1 << 20  # most ticks that a poll of a device without an event passes
_FAR = 1 << 20  # Ticks to an event before which the core's thread pauses.
_MOST_TRACE = 1 << 20
_FLOAT_SELECTORS = range(0x40, 0x60)  # of DCRSR: S0 to S31
_LOCK_UP_ADDRESS = 0xFFFFFFFE
# DCRSR selectors of Secure registers, the only ones modelled, mapped to those without a security state.
_SECURE_SELECTORS = {0x1A: 17, 0x1B: 18, 0x22: 20}
_SECURE_LIMITS = (0x1C, 0x1D)

_VECTOR_CATCH = {
    faults.HARD_FAULT: debug.VC_HARDERR,
    faults.MEM_MANAGE: debug.VC_MMERR,
    faults.BUS_FAULT: debug.VC_BUSERR,
}
_CHECKS = faults.UNALIGNED | faults.DIVBYZERO
_USAGE_CATCH = {faults.NOCP: debug.VC_NOCPERR, _CHECKS: debug.VC_CHKERR, -1: debug.VC_STATERR}


class CortexM:
    """A core with its private peripherals, which it adds to the bus. The caller holds the machine's lock.

    ``interrupts`` is the number of external lines, ``vector_table`` its address after reset.

    Attributes:
        halted: in Debug state.
        locked_up: after a fault that no handler could take.
        trace: the last bytes of the pin SWO that no probe has read.
        stop_requested: another thread waits for the lock: :meth:`run` returns soon.
    """

    def __init__(
        self, kind: CoreKind, bus: Bus, *, interrupts: int, vector_table: int, timing: TimingSpec | None = None
    ) -> None:
        self._bus = bus
        self._vector_table = vector_table
        self.core = Core(bus, kind.unicorn_model)
        self.stop_requested = False
        self.halted = self.sleeping = self.locked_up = False
        self._rested = False  # during this sleep
        self._spinning = False  # in a branch to itself, which is treated as sleep
        self._sleep_ends_by_event = False
        self._slept = self._polled = 0
        self._reset_request: ResetCause | bool | None = None
        self._timers: list[Timer] = []
        self._event: int | None = None
        self._events: list[tuple[int, Timer]] = []
        self._is_scheduled = False
        self.exceptions = Exceptions(interrupts, self.interrupt)
        self.scb = SystemControlBlock(
            kind,
            self.exceptions,
            vector_table=vector_table,
            changed=self._apply_control,
            request_reset=self.request_reset,
            current_exception=lambda: self.core.read(registers.XPSR) & 0x1FF,
        )
        self._exc_return = kind.exc_return
        self._secure = kind.secure
        self._handlers = Handlers(self.core, bus, self.exceptions, self.scb, kind.exc_return)
        self.debug = DebugControl(self, kind.secure)
        self._model = Cycles(self.core, bus, kind.timing, timing) if timing and kind.timing else None
        self.core.clock, self.core.on_poll = self.now, self._pass_time
        self._systick = SysTick(self, lambda: self.exceptions.pend(faults.SYS_TICK))
        self.add_timer(self._systick)
        self._dwt = DataWatchpointTrace(self._cycles, self._select, self._sample, self._set_watchpoints, kind)
        self.core.state.mpu.v8, self.core.state.mpu.count = kind.watches.size != 0, kind.regions
        self._mpu = MpuRegisters(self.core.counter, self.core.state.mpu, self._apply_control)
        self._fpb = FlashPatchBreakpoint(kind, self._set_breakpoints)
        self.trace: deque[int] = deque(maxlen=_MOST_TRACE)
        self._trace, self._formatter = TraceState(), FORMATTER * (kind.trace_port == TPIU)
        self._reset_trace()
        for address, name in ((ITM, "itm"), (kind.trace_port, "tpiu")):
            self.add_device(address, TraceUnit(name, kind, self.core, self._trace, self.trace.extend))
        self._watchpoints: list[tuple[int, int, int]] = []
        self._breakpoints: list[int] = []
        self._add_private_peripherals(kind)

    # Set-up

    def add_device(self, address: int, device: Device) -> None:
        """Add a device to the bus, for the core and the debugger."""
        self._bus.add(address, device)
        self.core.map_device(address, device)

    def add_timer(self, timer: Timer) -> None:
        self._timers.append(timer)

    def _add_private_peripherals(self, kind: CoreKind) -> None:
        nvic = Nvic(self.exceptions)
        parts: list[tuple[int, int, Device]] = [
            (0x010, 0x020, self._systick),
            (0x100, 0x400 + (self.exceptions.interrupts + 3 & ~3), nvic),
            (SOFTWARE_TRIGGER, SOFTWARE_TRIGGER + 4, nvic),
            (debug.DFSR, debug.DFSR + 4, self.debug),
            (debug.DHCSR, debug.DEMCR + 4, self.debug),
            (MPU, MPU_END, self._mpu),
            (0x000, 0xFD0, self.scb),
            (0xFD0, 0x1000, ConstantPage(kind.components["scs"])),
        ]
        self.add_device(_SCS, SystemControlSpace(parts))
        self.add_device(_DWT, self._dwt)
        self.add_device(_FPB, self._fpb)
        for address, words in kind.pages.items():
            self.add_device(address, ConstantPage(words))

    # Reset

    def reset(self) -> None:
        """Reset registers, exceptions and private peripherals; debug keeps its state."""
        for device in (self.exceptions, self.scb, self._systick, self._mpu):
            device.reset()
        self.core.reset_registers()
        self.halted = self.sleeping = self.locked_up = self._is_scheduled = False
        vectors = self._bus.read(self._vector_table, 8)
        stack, start = int.from_bytes(vectors[:4], "little"), int.from_bytes(vectors[4:], "little")
        self.core.write(registers.SP, stack & ~3)
        self.core.write(registers.XPSR, registers.THUMB if start & 1 else 0)
        self.core.write_pc(start)
        self._apply_control()
        self.debug.note_reset()
        if self.debug.catches(debug.VC_CORERESET):
            self.halt(debug.DFSR_VCATCH)

    def request_reset(self, cause: ResetCause | bool) -> None:
        """Request a reset before the next instruction: with the peripherals, or without them if False."""
        self._reset_request = cause
        self.interrupt()

    def take_reset_request(self) -> ResetCause | bool | None:
        """Take a reset request: True for AIRCR's that includes the peripherals; None without one."""
        request, self._reset_request = self._reset_request, None
        return request

    def _reset_trace(self) -> None:
        self.core.counter.utvm_trace_reset(ctypes.byref(self._trace), self._formatter)

    def power_on(self) -> None:
        """Reset debug settings and floating-point registers, which a system reset keeps."""
        for selector in _FLOAT_SELECTORS:
            self.core.write_selected(selector, 0)
        self._reset_request = None
        self.debug.power_on()
        self._dwt.power_on()
        self._fpb.power_on()
        self._reset_trace()
        self.apply_debug_settings()

    # Time

    def _select(self, number: int) -> None:
        if self._model and number <= FLASH_BYTES:
            self._model.selected = number

    def _cycles(self) -> int:
        return (self._model.count if self._model else self.core.count) + self._polled

    def _pass_time(self, device: Device, since: int) -> None:
        """Advance time for a polling core, as if it had run the loop: to the device's event, or by an eighth.

        Time never passes an event of another device.
        """
        now, event = self.now(), self._next_event()
        own = device.next_event() if hasattr(device, "next_event") else None
        ahead = min((now - since) // 8, _STRIDE) if own is None else own - now
        if event is not None:
            ahead = min(ahead, event - now)
        if ahead > 0:
            self._slept += ahead
            self._polled += ahead
            self.core.state.deadline = max(0, self.core.state.deadline - ahead)

    def _sample(self) -> int:
        """Address of an instruction that ran last, for DWT_PCSR; ones in Debug state (ARM DDI 0403E, C1.8.2)."""
        return 0xFFFFFFFF if self.halted else self.core.state.begun

    def now(self) -> int:
        """Ticks of the core clock since the model was created."""
        return self.core.count + self._slept

    @property
    def count(self) -> int:
        return self.core.count

    @property
    def idle(self) -> bool:
        """True if the core sleeps or spins until a distant event, to which the next :meth:`run` advances time."""
        return (self.sleeping or self._spinning) and self._rested

    def reschedule(self) -> None:
        """See :class:`utvm.virtual.wiring.Clock`."""
        self._is_scheduled = False
        event = self._next_event()
        if event is not None and event - self._slept < self.core.state.deadline:
            self.interrupt()

    def close(self) -> None:
        self.core.close()

    def interrupt(self) -> None:
        """Return to the run loop before the next instruction."""
        self.core.state.stop = 1

    def _expire_timers(self) -> None:
        """Handle the events that are due. Timers without an event catch up when they are read."""
        while (event := self._next_event()) is not None and event <= self.now():
            for due, timer in self._events:
                if due <= self.now():
                    timer.expire()
            self._is_scheduled = False

    def _next_event(self) -> int | None:
        if not self._is_scheduled:
            stopped = self._systick if self.deeply_asleep else None  # without a clock in Stop mode
            timers = (timer for timer in self._timers if timer is not stopped)
            self._events = [(event, timer) for timer in timers if (event := timer.next_event()) is not None]
            self._event = min((event for event, _ in self._events), default=None)
            self._is_scheduled = True
        return self._event

    # Running

    def run(self, minimum: int) -> bool:
        """Execute at least ``minimum`` instructions, until a stop is requested. True if the core can continue."""
        goal = self.core.count + minimum
        self._spinning = False
        while not self.halted and not self.locked_up:
            self.core.state.stop = 0
            stop_requested = self.stop_requested
            if self._reset_request is not None or (stop_requested and self.core.count >= goal):
                return True
            if (self.sleeping or self._spinning) and not self._sleep():
                if self._spinning and not self._rested:  # it is stopped without an event
                    event = self._next_event()
                    ahead = _SPIN if event is None else min(_SPIN, event - self.now() - 1)
                    self._slept, self._polled = self._slept + ahead, self._polled + ahead
                return self.stop_requested or self._reset_request is not None
            if not self.sleeping and not self._take_exception():
                event = self._next_event()
                deadline = NEVER if event is None else event - self._slept
                stop = self.core.run(min(deadline, goal) if stop_requested else deadline)
                self._expire_timers()
                if self.core.state.mpu.used != self._protection:
                    self._apply_control()
                self._handle(stop)
        return self._reset_request is not None

    def _take_exception(self) -> bool:
        limit = self._debug_limit()
        exception = self._handlers.preempting(limit)
        if exception is None:
            self.core.state.masks_matter = self.exceptions.next(limit) is not None
            return False
        self._attempt(lambda: self._handlers.enter(exception))
        return True

    def _debug_limit(self) -> int:
        return faults.PEND_SV if self.debug.interrupts_masked else NO_LIMIT

    def _handle(self, stop: CoreStop) -> None:
        kind = stop.kind
        hits = self.core.take_watch_hits()
        if hits:
            self._dwt.set_matched(hits)
        if kind is StopKind.FAULT and stop.fault is not None:
            fault = stop.fault
            self._attempt(lambda: self._handlers.take_fault(fault), fault)
        elif kind is StopKind.EXCEPTION_RETURN:
            self._return()
        elif kind is StopKind.SUPERVISOR_CALL:
            self._attempt(lambda: self._handlers.take_synchronous(faults.SV_CALL))
        elif kind is StopKind.SLEEP:
            self._fall_asleep()
        elif kind is StopKind.FLOAT:
            self._handlers.begin_float()
        elif kind is StopKind.SPIN:
            self._spinning = True
        elif kind is StopKind.BREAKPOINT:
            self.halt(debug.DFSR_BKPT)
        elif kind is StopKind.BKPT:
            self._debug_event()
        if hits and not self.halted and self.debug.enabled:
            self.halt(debug.DFSR_DWTTRAP)

    def _attempt(self, entry: Callable[[], None], fault: faults.Fault | None = None) -> None:
        """Enter a handler; lock up if none can be entered; halt at a vector catch."""
        self.sleeping = False
        self._handlers.entered.clear()
        try:
            entry()
        except LockUp:
            self.locked_up = True
            self.core.write_pc(_LOCK_UP_ADDRESS)
            return
        self.core.state.event = 1
        catches = [_VECTOR_CATCH.get(exception, 0) for exception in self._handlers.entered]
        if fault is not None and fault.exception == faults.USAGE_FAULT:
            catches.append(next(vector for status, vector in _USAGE_CATCH.items() if fault.status & status))
        if any(self.debug.catches(vector) for vector in catches if vector):
            self.halt(debug.DFSR_VCATCH)

    def _return(self) -> None:
        exc_return = self.core.read(registers.PC) | self._exc_return & 1
        self._attempt(lambda: self._handlers.return_from(exc_return))
        to_thread = not self.locked_up and not self.core.read(registers.XPSR) & 0x1FF
        if to_thread and not self.halted and self.scb.value(scs.SCR) & scs.SLEEPONEXIT:
            self.sleeping = True
            self._sleep_ends_by_event = False

    def _debug_event(self) -> None:
        """Handle BKPT: halt, enter DebugMonitor, or raise a HardFault."""
        if self.debug.enabled:
            self.halt(debug.DFSR_BKPT)
            return
        self.debug.fault_status |= debug.DFSR_BKPT
        if self.debug.monitor_enabled:
            self._attempt(lambda: self._handlers.take_synchronous(faults.DEBUG_MONITOR, faults.DEBUGEVT))
        else:
            self._attempt(self._handlers.debug_event_fault)

    # Sleep

    @property
    def deeply_asleep(self) -> bool:
        """True in the sleep that SCR.SLEEPDEEP selects: a chip's low-power mode."""
        return self.sleeping and bool(self.scb.value(scs.SCR) & scs.SLEEPDEEP)

    def _fall_asleep(self) -> None:
        instruction = int.from_bytes(self._bus.read(self.core.read(registers.PC), 2), "little")
        self.core.pass_sleep()
        self.core.step()
        self._sleep_ends_by_event = instruction != _WFI
        self.sleeping, self._is_scheduled = True, False

    def _sleep(self) -> bool:
        """Advance time to the event that wakes the core. False without one, at a stop request, or to pause."""
        rested, self._rested = self._rested, False
        while not self._wakes_up():
            event = self._next_event()
            if event is None:
                return False
            ahead = max(0, event - self.now())
            if ahead > _FAR and not rested:
                self._rested = True
                return False
            rested = False
            self._slept += ahead
            self._polled += ahead * self._spinning
            self._expire_timers()
            if self.stop_requested or self._reset_request is not None:
                return False
        self.sleeping = self._spinning = self._is_scheduled = False
        return True

    def _wakes_up(self) -> bool:
        limit = self._debug_limit()
        if self._spinning:
            return self._handlers.preempting(limit) is not None
        if not self._sleep_ends_by_event:
            return self._handlers.wakes(limit)
        if self.core.state.event:
            self.core.state.event = 0
            return True
        if self.scb.value(scs.SCR) & scs.SEVONPEND and self.exceptions.pending:
            return True
        return self._handlers.preempting(limit) is not None

    # Debug

    def halt(self, reason: int) -> None:
        """Enter Debug state for a reason, one bit of DFSR. Wakes a sleeping core."""
        self.halted = True
        self.sleeping = False
        self.locked_up = False
        self.debug.fault_status |= reason
        self.debug.note_halt()
        self.interrupt()

    def resume(self) -> None:
        """Leave Debug state."""
        self.halted = False

    def debug_step(self) -> None:
        """Execute one instruction, or enter the handler of a pending exception, and halt again."""
        self.halted = False
        if not self._take_exception():
            stop = self.core.step()
            if stop.kind is StopKind.SPIN:
                self.core.pass_sleep()
                stop = self.core.step()
            elif stop.kind is StopKind.FLOAT:
                self._handle(stop)
                stop = self.core.step()
            self._expire_timers()
            self._handle(stop)
        if not self.halted:
            self.halt(debug.DFSR_HALTED)

    def apply_debug_settings(self) -> None:
        """Apply a change of DHCSR or DEMCR."""
        self._trace.enabled = self.debug.trace_enabled
        self._dwt.set_enabled(self.debug.trace_enabled)
        self._set_breakpoints(self._breakpoints)
        self.interrupt()

    def _set_breakpoints(self, addresses: list[int]) -> None:
        self._breakpoints = addresses
        self.core.set_breakpoints(addresses if self.debug.enabled else [])

    def _set_watchpoints(self, watchpoints: list[tuple[int, int, int]]) -> None:
        self._watchpoints = watchpoints
        self._apply_control()

    def _apply_control(self) -> None:
        state = self.core.state
        control = self.scb.value(scs.CCR)
        state.trap_division = bool(control & scs.DIV_0_TRP)
        self.core.open_registers = _PORTS | ({_SCS + SOFTWARE_TRIGGER} if control & scs.USERSETMPEND else set())
        access, context = self.scb.value(scs.CPACR) >> 20, self.scb.value(scs.FPCCR)
        state.float_access = access & 3 if access & 3 == access >> 2 else 0
        defaults = context & scs.ASPEN and self.scb.value(scs.FPDSCR)
        state.float_lazy = context & scs.LSPACT | (2 if defaults else 0)
        state.float_enabled = state.float_access == 3 and not state.float_lazy
        self._protection = self.core.counter.utvm_mpu_filters(ctypes.byref(state))
        protects = bool(self._protection & FILTERS_DATA)
        self.core.set_data_checks(self._watchpoints, bool(control & scs.UNALIGN_TRP), protects)
        self._set_breakpoints(self._breakpoints)
        self.interrupt()

    def read_debug_register(self, selector: int) -> int:
        """Read the core register of a DCRSR selector (ARM DDI 0403E, C1.6.3; DDI 0553B, D1.2, DCRSR)."""
        if self._secure and selector in _SECURE_LIMITS:
            return int(self.core.state.limits[selector & 1])
        return self.core.read_selected(self._selector(selector))

    def write_debug_register(self, selector: int, value: int) -> None:
        """Write the core register of a DCRSR selector."""
        self.core.write_selected(self._selector(selector), value)
        self.core.state.mpu.used |= UNPRIVILEGED * self.core.unprivileged

    def _selector(self, selector: int) -> int:
        return _SECURE_SELECTORS.get(selector, selector) if self._secure else selector
