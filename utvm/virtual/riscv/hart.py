# SPDX-License-Identifier: Apache-2.0
"""A RISC-V hart in machine mode: puts the instruction set, traps, interrupts and debug mode together.

Numbers: RISC-V Instruction Set Manual, Volume II, 20211203, chapter 3; causes of halting: RISC-V External Debug
Support 0.13.2, table 4.3.
"""

from utvm.virtual.bus import Bus
from utvm.virtual.counted import Pause
from utvm.virtual.riscv import core
from utvm.virtual.riscv.core import RiscvCore
from utvm.virtual.runner import CoreRunner

EBREAK, TRIGGER, HALT_REQUEST, STEP = 1, 2, 3, 4
"""Why it halted."""

_INTERRUPTS_ENABLED = 1 << 3  # MIE in mstatus
_PREVIOUS = 4  # MPIE is so many bits above
_FROM_MACHINE_MODE = 3 << 11  # MPP
_BY_PRIORITY = (11, 3, 7)  # external, software, timer


class Hart(CoreRunner):
    """A hart. Whoever calls holds the machine's lock.

    Attributes:
        cause: why it halted last.
        ebreak_halts: whether EBREAK halts, as dcsr says, or is a trap.
        step_interrupts: whether interrupts are taken during a step.
    """

    def __init__(self, isa: str, bus: Bus, start: int) -> None:
        super().__init__()
        self.core: RiscvCore = RiscvCore(isa, bus)
        self._start = start
        self.cause = HALT_REQUEST
        self.ebreak_halts = False
        self.step_interrupts = False
        self.reset()

    def reset(self) -> None:
        """Take the state after a reset; whether it is halted stays."""
        self._sleeping = False
        self.core.reset(self._start)

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
        if not (self.step_interrupts and self.take_interrupt()):
            while self.core.state.count < goal and not self.halted:
                self.core.state.stop = 0
                if self.after(self.core.run(goal)):
                    break
        self.halt(STEP)

    def after(self, reason: Pause) -> bool:
        """Do what the instruction at PC needs; return whether that was a trap."""
        if reason is Pause.READ_COUNTER:
            reason = self.core.pass_counter()
        if reason is Pause.TRIGGER:
            self.halt(TRIGGER)
        elif reason is Pause.BREAK and self.ebreak_halts:
            self.halt(EBREAK)
        elif reason is Pause.BREAK:
            self._trap(core.BREAKPOINT, self.core.pc)
        elif reason is Pause.ECALL:
            self._trap(core.CALL)
        elif reason is Pause.FAULT:
            self._trap(*self.core.fault)
        elif reason is Pause.SLEEP:
            self.sleep(4)
        return reason in (Pause.BREAK, Pause.ECALL, Pause.FAULT)

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

    def due(self) -> int:
        """Return the interrupts that are pending, by their bits of mip, and enabled in mie."""
        pending = self.pending()
        return pending & self._csr(core.MIE) if pending else 0

    def take_interrupt(self) -> bool:
        """Take the first of them, if mstatus lets it in."""
        due = self.due()
        if not due or not self._csr(core.MSTATUS) & _INTERRUPTS_ENABLED:
            return False
        number = next(number for number in _BY_PRIORITY if due >> number & 1)
        self._trap(number | 1 << (self.core.xlen - 1))
        return True
