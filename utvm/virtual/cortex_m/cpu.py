# SPDX-License-Identifier: Apache-2.0
"""A Cortex-M: puts the instruction set, exceptions, timers and debug together and lets time pass.

Time is the number of instructions plus the ticks slept through. Nothing in it depends on when a debugger looks or
on how fast the host is, so two runs agree to the instruction.
"""

from collections.abc import Callable

from utvm.virtual.bus import Bus, Device
from utvm.virtual.cortex_m import debug, faults, registers, scb
from utvm.virtual.cortex_m.clock import Timer
from utvm.virtual.cortex_m.core import Core, CoreStop, StopKind
from utvm.virtual.cortex_m.counter import NEVER
from utvm.virtual.cortex_m.debug import DebugControl
from utvm.virtual.cortex_m.dwt import DataWatchpointTrace
from utvm.virtual.cortex_m.exceptions import Exceptions
from utvm.virtual.cortex_m.fpb import FlashPatchBreakpoint
from utvm.virtual.cortex_m.handlers import Handlers, LockUp
from utvm.virtual.cortex_m.identity import ConstantPage
from utvm.virtual.cortex_m.kinds import CoreKind
from utvm.virtual.cortex_m.nvic import SOFTWARE_TRIGGER, Nvic
from utvm.virtual.cortex_m.scb import SystemControlBlock
from utvm.virtual.cortex_m.scs import SystemControlSpace
from utvm.virtual.cortex_m.systick import SysTick
from utvm.virtual.cortex_m.waits import Waits
from utvm.virtual.spec import WaitStates

_ITM = 0xE0000000  # a trace port that takes nothing
_SCS = 0xE000E000
_DWT = 0xE0001000
_FPB = 0xE0002000
_WFI = 0xBF30
_FAR = 1 << 20  # ticks: an event further off than that is worth a doze of this computer's
_FLOAT_SELECTORS = range(0x40, 0x60)  # of DCRSR: S0 to S31
_LOCK_UP_ADDRESS = 0xFFFFFFFE
# Selectors of DCRSR that name a register of Secure state, which is the one that there is, by those that do not.
_SECURE_SELECTORS = {0x1A: 17, 0x1B: 18, 0x22: 20}
_SECURE_LIMITS = (0x1C, 0x1D)

_VECTOR_CATCH = {
    faults.HARD_FAULT: debug.VC_HARDERR,
    faults.MEM_MANAGE: debug.VC_MMERR,
    faults.BUS_FAULT: debug.VC_BUSERR,
}


class CortexM:
    """A core with its private peripherals. Whoever calls holds the machine's lock.

    Args:
        kind: the core.
        bus: memory and peripherals; the private peripherals are added to it.
        interrupts: number of external interrupt lines.
        vector_table: where it lies after reset.

    Attributes:
        halted: in Debug state.
        sleeping: in WFI or WFE.
        locked_up: after a fault that no handler could take.
        wanted: somebody else wants the lock: :meth:`run` returns soon.
    """

    def __init__(
        self,
        kind: CoreKind,
        bus: Bus,
        *,
        interrupts: int,
        vector_table: int,
        wait_states: WaitStates | None = None,
    ) -> None:
        self._bus = bus
        self._vector_table = vector_table
        self.core = Core(bus, kind.unicorn_model)
        self.wanted = False
        self.halted = False
        self.sleeping = False
        self._far_off = False  # whether a sleep has been interrupted for a doze
        self.locked_up = False
        self._sleep_ends_by_event = False
        self._slept = 0
        self._reset_wanted: bool | None = None
        self._timers: list[Timer] = []
        self.exceptions = Exceptions(interrupts, self.interrupt)
        self.scb = SystemControlBlock(
            kind,
            self.exceptions,
            vector_table=vector_table,
            changed=self._control_changed,
            request_reset=self._request_reset,
            current_exception=lambda: self.core.read(registers.XPSR) & 0x1FF,
        )
        self._exc_return = kind.exc_return
        self._secure = kind.secure
        self._handlers = Handlers(self.core, bus, self.exceptions, self.scb, kind.exc_return)
        self.debug = DebugControl(self, kind.secure)
        self._waits = Waits(self.core, bus, wait_states) if wait_states else None
        self._systick = SysTick(self, lambda: self.exceptions.pend(faults.SYS_TICK))
        self.add_timer(self._systick)
        self._dwt = DataWatchpointTrace(self._cycles, self._watch, kind.watches, kind.components["dwt"])
        self._fpb = FlashPatchBreakpoint(kind, self._set_breakpoints)
        self._watched: list[tuple[int, int, int]] = []
        self._breakpoints: list[int] = []
        self._add_private_peripherals(kind)

    # Set-up

    def add_device(self, address: int, device: Device) -> None:
        """Put a device on the bus, for the core and for the debugger."""
        self._bus.add(address, device)
        self.core.map_device(address, device)

    def add_timer(self, timer: Timer) -> None:
        """Let something happen at known ticks."""
        self._timers.append(timer)

    def _add_private_peripherals(self, kind: CoreKind) -> None:
        nvic = Nvic(self.exceptions)
        parts: list[tuple[int, int, Device]] = [
            (0x010, 0x020, self._systick),
            (0x100, 0x400 + (self.exceptions.interrupts + 3 & ~3), nvic),
            (SOFTWARE_TRIGGER, SOFTWARE_TRIGGER + 4, nvic),
            (debug.DFSR, debug.DFSR + 4, self.debug),
            (debug.DHCSR, debug.DEMCR + 4, self.debug),
            (0x000, 0xFD0, self.scb),
            (0xFD0, 0x1000, ConstantPage(kind.components["scs"])),
        ]
        self.add_device(_SCS, SystemControlSpace(parts))
        self.add_device(_DWT, self._dwt)
        self.add_device(_FPB, self._fpb)
        for address, words in {_ITM: kind.components["itm"], **kind.pages}.items():
            self.add_device(address, ConstantPage(words))

    # Reset

    def reset(self) -> None:
        """Do a system reset of the core: registers, exceptions, private peripherals; debug stays."""
        for device in (self.exceptions, self.scb, self._systick):
            device.reset()
        self.core.reset_registers()
        self.halted = self.sleeping = self.locked_up = False
        vectors = self._bus.read(self._vector_table, 8)
        stack, start = int.from_bytes(vectors[:4], "little"), int.from_bytes(vectors[4:], "little")
        self.core.write(registers.SP, stack & ~3)
        self.core.write(registers.XPSR, registers.THUMB if start & 1 else 0)
        self.core.write_pc(start)
        self._control_changed()
        self.debug.note_reset()
        if self.debug.catches(debug.VC_CORERESET):
            self.halt(debug.DFSR_VCATCH)

    def _request_reset(self, peripherals: bool) -> None:
        self._reset_wanted = peripherals
        self.interrupt()

    def take_reset_request(self) -> bool | None:
        """Return whether a reset asked for through AIRCR includes the peripherals, once, or None."""
        wanted, self._reset_wanted = self._reset_wanted, None
        return wanted

    def power_on(self) -> None:
        """Forget what only a power cycle forgets: the debugger's settings, floating-point registers."""
        for selector in _FLOAT_SELECTORS:
            self.core.write_selected(selector, 0)
        self._reset_wanted = None
        self.debug.power_on()
        self._dwt.power_on()
        self._fpb.power_on()
        self.debug_changed()

    # Time

    def _cycles(self) -> int:
        return self.core.count + (self._waits.cycles if self._waits else 0)

    def now(self) -> int:
        """Return the ticks of the core clock since the model was made."""
        return self.core.count + self._slept

    @property
    def count(self) -> int:
        """Instructions executed since the model was made."""
        return self.core.count

    @property
    def dozing(self) -> bool:
        """Whether it sleeps and nothing it knows of wakes it soon; the next :meth:`run` skips that time."""
        return self.sleeping and self._far_off

    def timers_changed(self) -> None:
        """Note that the next event of a timer has moved."""
        self.interrupt()

    def close(self) -> None:
        """Free what the C part holds."""
        self.core.close()

    def interrupt(self) -> None:
        """Have the run loop look again before the next instruction."""
        self.core.state.stop = 1

    def _expire_timers(self) -> None:
        for timer in self._timers:
            timer.expire()

    def _next_event(self) -> int | None:
        return min((event for timer in self._timers if (event := timer.next_event()) is not None), default=None)

    # Running

    def run(self, at_least: int) -> bool:
        """Execute until somebody wants the lock or the core cannot go on by itself.

        Args:
            at_least: instructions to execute before the lock is given away.

        Returns:
            Whether there is more to execute.
        """
        goal = self.core.count + at_least
        while not self.halted and not self.locked_up:
            self.core.state.stop = 0
            wanted = self.wanted
            if self._reset_wanted is not None or (wanted and self.core.count >= goal):
                return True
            if self.sleeping and not self._sleep():
                return self.wanted
            if not self.sleeping and not self._take_exception():
                event = self._next_event()
                deadline = NEVER if event is None else event - self._slept
                stop = self.core.run(min(deadline, goal) if wanted else deadline)
                self._expire_timers()
                self._after(stop)
        return self._reset_wanted is not None

    def _take_exception(self) -> bool:
        """Enter the handler of a pending exception that is due. Returns whether there was one."""
        limit = self._debug_limit()
        exception = self._handlers.preempting(limit)
        if exception is None:
            self.core.state.masks_matter = self.exceptions.next(limit) is not None
            return False
        self._attempt(lambda: self._handlers.enter(exception))
        return True

    def _debug_limit(self) -> int:
        return faults.PEND_SV if self.debug.interrupts_masked else scb.NO_LIMIT

    def _after(self, stop: CoreStop) -> None:
        kind = stop.kind
        hits = self.core.take_watch_hits()
        if hits:
            self._dwt.matched(hits)
        if kind is StopKind.FAULT and stop.fault is not None:
            fault = stop.fault
            self._attempt(lambda: self._handlers.take_fault(fault), fault)
        elif kind is StopKind.EXCEPTION_RETURN:
            self._return()
        elif kind is StopKind.SUPERVISOR_CALL:
            self._attempt(lambda: self._handlers.take_synchronous(faults.SV_CALL))
        elif kind is StopKind.SLEEP:
            self._fall_asleep()
        elif kind is StopKind.BREAKPOINT:
            self.halt(debug.DFSR_BKPT)
        elif kind is StopKind.BKPT:
            self._debug_event()
        if hits and not self.halted and self.debug.enabled:
            self.halt(debug.DFSR_DWTTRAP)

    def _attempt(self, entry: Callable[[], None], fault: faults.Fault | None = None) -> None:
        """Enter a handler; lock up where none can be entered; halt where a debugger catches the vector."""
        self.sleeping = False
        self._handlers.entered.clear()
        try:
            entry()
        except LockUp:
            self._lock_up()
            return
        self.core.state.event = 1
        catches = [_VECTOR_CATCH.get(exception, 0) for exception in self._handlers.entered]
        if fault is not None and fault.exception == faults.USAGE_FAULT:
            checks = faults.UNALIGNED | faults.DIVBYZERO
            catches.append(
                debug.VC_NOCPERR
                if fault.status & faults.NOCP
                else debug.VC_CHKERR
                if fault.status & checks
                else debug.VC_STATERR
            )
        if any(self.debug.catches(vector) for vector in catches if vector):
            self.halt(debug.DFSR_VCATCH)

    def _return(self) -> None:
        exc_return = self.core.read(registers.PC) | self._exc_return & 1
        self._attempt(lambda: self._handlers.return_from(exc_return))
        to_thread = not self.locked_up and not self.core.read(registers.XPSR) & 0x1FF
        if to_thread and not self.halted and self.scb.value(scb.SCR) & scb.SLEEPONEXIT:
            self.sleeping = True
            self._sleep_ends_by_event = False

    def _debug_event(self) -> None:
        """BKPT: halt, or the monitor's turn, or a HardFault."""
        if self.debug.enabled:
            self.halt(debug.DFSR_BKPT)
            return
        self.debug.fault_status |= debug.DFSR_BKPT
        if self.debug.monitor_enabled:
            self._attempt(lambda: self._handlers.take_synchronous(faults.DEBUG_MONITOR, faults.DEBUGEVT))
        else:
            self._attempt(self._handlers.debug_event_fault)

    def _lock_up(self) -> None:
        self.locked_up = True
        self.core.write_pc(_LOCK_UP_ADDRESS)

    # Sleep

    def _fall_asleep(self) -> None:
        """Execute the WFI or WFE at PC, then wait."""
        instruction = int.from_bytes(self._bus.read(self.core.read(registers.PC), 2), "little")
        self.core.pass_sleep()
        self.core.step()
        self._sleep_ends_by_event = instruction != _WFI
        self.sleeping = True

    def _sleep(self) -> bool:
        """Skip to the next event that wakes the core.

        Returns:
            False where only the outside can wake it, or somebody wants the lock meanwhile, or it dozes first.
        """
        rested, self._far_off = self._far_off, False
        while not self._awake():
            event = self._next_event()
            if event is None:
                return False
            if event - self.now() > _FAR and not rested:
                self._far_off = True
                return False
            rested = False
            self._slept += max(0, event - self.now())
            self._expire_timers()
            if self.wanted:
                return False
        self.sleeping = False
        return True

    def _awake(self) -> bool:
        limit = self._debug_limit()
        if self._sleep_ends_by_event:
            if self.core.state.event:
                self.core.state.event = 0
                return True
            if self.scb.value(scb.SCR) & scb.SEVONPEND and self.exceptions.pending:
                return True
            return self._handlers.preempting(limit) is not None
        return self._handlers.wakes(limit)

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
            self._expire_timers()
            self._after(stop)
        if not self.halted:
            self.halt(debug.DFSR_HALTED)

    def debug_changed(self) -> None:
        """Follow DHCSR and DEMCR."""
        self._dwt.set_enabled(self.debug.trace_enabled)
        self._set_breakpoints(self._breakpoints)
        self.interrupt()

    def _set_breakpoints(self, addresses: list[int]) -> None:
        self._breakpoints = addresses
        self.core.set_breakpoints(addresses if self.debug.enabled else [])

    def _watch(self, watched: list[tuple[int, int, int]]) -> None:
        self._watched = watched
        self._control_changed()

    def _control_changed(self) -> None:
        """Follow CCR, CPACR and the watchpoints."""
        state = self.core.state
        control = self.scb.value(scb.CCR)
        state.trap_division = bool(control & scb.DIV_0_TRP)
        state.float_enabled = self.scb.value(scb.CPACR) & scb.FPU_ENABLED == scb.FPU_ENABLED
        self.core.set_data_checks(self._watched, bool(control & scb.UNALIGN_TRP))
        self.interrupt()

    def read_debug_register(self, selector: int) -> int:
        """Return the core register of a DCRSR selector (ARM DDI 0403E, C1.6.3; DDI 0553B, D1.2, DCRSR)."""
        if self._secure and selector in _SECURE_LIMITS:
            return self.core.state.limits[selector & 1]
        return self.core.read_selected(self._selector(selector))

    def write_debug_register(self, selector: int, value: int) -> None:
        """Set the core register of a DCRSR selector."""
        self.core.write_selected(self._selector(selector), value)

    def _selector(self, selector: int) -> int:
        return _SECURE_SELECTORS.get(selector, selector) if self._secure else selector
