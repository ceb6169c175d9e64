# SPDX-License-Identifier: Apache-2.0
"""A RISC-V hart in machine mode: puts the instruction set, traps, interrupts and debug mode together.

Time is the number of instructions plus what was slept through. Nothing in it depends on when a debugger looks or
on how fast the host is, so two runs agree to the instruction.

Numbers: RISC-V Instruction Set Manual, Volume II, 20211203, chapter 3; causes of halting: RISC-V External Debug
Support 0.13.2, table 4.3.
"""

from typing import Protocol

from utvm.virtual.bus import Bus
from utvm.virtual.riscv import core
from utvm.virtual.riscv.core import NEVER, HartStop, RiscvCore

EBREAK, TRIGGER, HALT_REQUEST, STEP = 1, 2, 3, 4
"""Why it halted."""

_INTERRUPTS_ENABLED = 1 << 3  # MIE in mstatus
_PREVIOUS = 4  # MPIE is so many bits above
_FROM_MACHINE_MODE = 3 << 11  # MPP
_BY_PRIORITY = (11, 3, 7)  # external, software, timer
_FAR = 1 << 20  # instructions: an event further off than that is worth a doze of this computer's


class InterruptSource(Protocol):
    """What may interrupt the hart."""

    def pending(self) -> int:
        """Return the bits of mip that it drives."""

    def next_event(self) -> int | None:
        """Return the instant at which it has something new to say by itself, or None."""


class Hart:
    """A hart. Whoever calls holds the machine's lock.

    Attributes:
        halted: in Debug Mode.
        cause: why it halted last.
        ebreak_halts: whether EBREAK halts, as dcsr says, or is a trap.
        step_interrupts: whether interrupts are taken during a step.
        sources: what may interrupt it.
        wanted: as :class:`utvm.virtual.stage.Performer` has it.
    """

    def __init__(self, isa: str, bus: Bus, start: int) -> None:
        self.core = RiscvCore(isa, bus)
        self._start = start
        self.wanted = False
        self.halted = False
        self.cause = HALT_REQUEST
        self.ebreak_halts = False
        self.step_interrupts = False
        self.sources: list[InterruptSource] = []
        self._sleeping = False
        self._slept = 0
        self._far_off = False
        self.reset()

    def reset(self) -> None:
        """Take the state after a reset; whether it is halted stays."""
        self._sleeping = False
        self.core.reset(self._start)

    def now(self) -> int:
        """Return the instructions since the model was made, and what was slept through."""
        return self.core.state.count + self._slept

    @property
    def dozing(self) -> bool:
        """Whether it sleeps and nothing it knows of wakes it soon."""
        return self._sleeping and self._far_off and not self.halted

    def interrupt(self) -> None:
        """Have the run loop look again before the next instruction."""
        self.core.state.stop = 1

    def close(self) -> None:
        """Nothing is held."""

    # Debug

    def halt(self, cause: int) -> None:
        """Enter Debug Mode."""
        if not self.halted:
            self.halted, self.cause, self._sleeping = True, cause, False

    def resume(self) -> None:
        """Leave Debug Mode."""
        self.halted = False

    def step(self) -> None:
        """Execute one instruction, or enter a trap, and halt again."""
        self.halted = False
        goal = self.core.state.count + 1
        if not (self.step_interrupts and self._take_interrupt()):
            while self.core.state.count < goal and not self.halted:
                self.core.state.stop = 0
                if self._after(self.core.run(goal)):
                    break
        self.halt(STEP)

    # Running

    def run(self, at_least: int) -> bool:
        """Execute until somebody wants the hart to stand still, or it halts."""
        state = self.core.state
        goal = state.count + at_least
        turns = 0
        while not self.halted:
            state.stop = 0
            wanted = self.wanted
            turns += 1
            # One that faults over and over comes no further.
            if wanted and (state.count >= goal or turns > at_least):
                return True
            if self._sleeping and not self._sleep():
                return self.wanted
            if self._sleeping or self._take_interrupt():
                continue
            event = self._next_event()
            deadline = NEVER if event is None else event - self._slept
            self._after(self.core.run(min(deadline, goal) if wanted else deadline))
        return False

    def _after(self, reason: HartStop) -> bool:
        """Do what the instruction at PC needs; return whether that was a trap."""
        if reason is HartStop.READ_COUNTER:
            reason = self.core.pass_counter()
        if reason is HartStop.TRIGGER:
            self.halt(TRIGGER)
        elif reason is HartStop.EBREAK and self.ebreak_halts:
            self.halt(EBREAK)
        elif reason is HartStop.EBREAK:
            self._trap(core.BREAKPOINT, self.core.pc)
        elif reason is HartStop.ECALL:
            self._trap(core.CALL)
        elif reason is HartStop.FAULT:
            self._trap(*self.core.fault)
        elif reason is HartStop.SLEEP:
            self.core.pc += 4
            self.core.state.count += 1
            self._sleeping = True
        return reason in (HartStop.EBREAK, HartStop.ECALL, HartStop.FAULT)

    def _trap(self, cause: int, value: int = 0) -> None:
        status = self._csr(core.MSTATUS)
        enabled = status & _INTERRUPTS_ENABLED
        status &= ~(_INTERRUPTS_ENABLED | _INTERRUPTS_ENABLED << _PREVIOUS)
        self.core.write_csr(core.MSTATUS, status | enabled << _PREVIOUS | _FROM_MACHINE_MODE)
        self.core.write_csr(core.MEPC, self.core.pc)
        self.core.write_csr(core.MCAUSE, cause)
        self.core.write_csr(core.MTVAL, value)
        self.core.pc = self._csr(core.MTVEC) & ~3

    def _csr(self, number: int) -> int:
        value = self.core.read_csr(number)
        assert value is not None
        return value

    # Interrupts

    def _due(self) -> int:
        """Return the interrupts that are pending and enabled in mie."""
        pending = 0
        for source in self.sources:
            pending |= source.pending()
        self.core.state.masks_matter = bool(pending)
        return pending & self._csr(core.MIE) if pending else 0

    def _take_interrupt(self) -> bool:
        due = self._due()
        if not due or not self._csr(core.MSTATUS) & _INTERRUPTS_ENABLED:
            return False
        number = next(number for number in _BY_PRIORITY if due >> number & 1)
        self._trap(number | 1 << (self.core.xlen - 1))
        return True

    def _next_event(self) -> int | None:
        events = (source.next_event() for source in self.sources)
        return min((event for event in events if event is not None), default=None)

    def _sleep(self) -> bool:
        """Skip to the next event that wakes it; False where that is far off, or nothing it knows of does."""
        rested, self._far_off = self._far_off, False
        while not self._due():
            event = self._next_event()
            if event is None or (event - self.now() > _FAR and not rested):
                self._far_off = event is not None
                return False
            self._slept += max(0, event - self.now())
            rested = False
            if self.wanted:
                return False
        self._sleeping = False
        return True
