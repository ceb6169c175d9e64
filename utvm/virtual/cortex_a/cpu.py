# SPDX-License-Identifier: Apache-2.0
"""A Cortex-A9: puts the instruction set, exceptions, interrupts and Debug state together.

Numbers: ARM DDI 0406C, B1.8 (exceptions) and C11.11.20 (why it entered Debug state).
"""

from utvm.virtual.bus import Bus
from utvm.virtual.cortex_a import core
from utvm.virtual.cortex_a.core import THUMB, ArmCore
from utvm.virtual.counted import Pause
from utvm.virtual.runner import CoreRunner

HALT_REQUEST, BREAKPOINT, BKPT = 0, 1, 3
"""Why it entered Debug state (MOE)."""

_NO_INTERRUPTS, _NO_ABORTS = 1 << 7, 1 << 8
_KEPT = ~(0x1F | THUMB | 1 << 24 | 0x0600FC00)  # of CPSR: not the mode, T, J, IT
_IN_DEBUG_ROM = 0xFFFFFF34  # where the boot ROM of a Zynq waits (UG585, 6.1.10)
# What each exception's mode is, what it masks, and how far behind its link register is (tables B1-7, B1-8), in Arm
# and in Thumb code.
_MODES = {
    core.UNDEFINED: (0x1B, 0, (4, 2)),
    core.SUPERVISOR_CALL: (0x13, 0, (0, 0)),
    core.PREFETCH_ABORT: (0x17, _NO_ABORTS, (4, 4)),
    core.DATA_ABORT: (0x17, _NO_ABORTS, (8, 8)),
    core.INTERRUPT: (0x12, _NO_ABORTS, (4, 4)),
}


class CortexA9(CoreRunner):
    """A core. Whoever calls holds the machine's lock.

    Args:
        private: where its private peripherals are.
        number: which core it is of its cluster.

    Attributes:
        entry: why it entered Debug state last.
        halts_at_bkpt: whether BKPT enters Debug state, or is a prefetch abort.
        parked: it waits in the boot ROM, until a debugger has it do something else.
    """

    def __init__(self, bus: Bus, private: int, number: int = 0) -> None:
        super().__init__()
        self.core: ArmCore = ArmCore(bus, number)
        self._private = private
        self.entry = HALT_REQUEST
        self.halts_at_bkpt = False
        self.reset()

    def reset(self) -> None:
        """Take the state after a reset: the boot ROM has found nothing to boot."""
        self.halted = False
        self.parked = self._sleeping = True
        self.core.reset(_IN_DEBUG_ROM)
        self.core.write_cp15(core.CBAR, self._private)

    # Debug

    def halt(self, entry: int) -> None:
        """Enter Debug state."""
        if not self.halted:
            self.halted, self.entry, self._sleeping = True, entry, False

    def resume(self) -> None:
        """Leave Debug state."""
        self.halted, self._sleeping = False, self.parked

    # Running

    def after(self, reason: Pause) -> bool:
        """Do what the instruction at PC needs; return whether that was an exception."""
        size = 2 if self.core.cpsr & THUMB else 4
        if reason is Pause.TRIGGER:
            self.halt(BREAKPOINT)
        elif reason is Pause.BREAK and self.halts_at_bkpt:
            self.halt(BKPT)
        elif reason is Pause.BREAK:
            self._enter(core.PREFETCH_ABORT, 0b00010, self.core.pc)
        elif reason is Pause.SLEEP:
            self.sleep(size)
        elif reason is Pause.PASS:
            self.pass_instruction(size)
        elif reason is Pause.UNALIGNED:
            self._refuse_alignment()
        elif reason is Pause.FAULT:
            self._enter(*self.core.fault)
        return reason in (Pause.BREAK, Pause.FAULT)

    def _refuse_alignment(self) -> None:
        word = int.from_bytes(self.core.instruction(), "little")
        if not _holds(word >> 28, self.core.cpsr >> 28):
            self.pass_instruction(4)
            return
        if word >> 26 & 3 == 3 and not self.core.has_floats:
            self._enter(core.UNDEFINED)
            return
        double = word >> 25 & 7 == 0
        stores = word >> 5 & 1 if double else not word >> 20 & 1
        self._enter(core.DATA_ABORT, core.ALIGNMENT | (core.WRITE if stores else 0), self.core.state.target)

    def _enter(self, number: int, status: int = 0, address: int = 0) -> None:
        """Enter an exception."""
        inner = self.core
        if number == core.PREFETCH_ABORT:
            inner.write_cp15(core.IFSR, status)
            inner.write_cp15(core.IFAR, address)
        elif number == core.DATA_ABORT:
            inner.write_cp15(core.DFSR, status)
            inner.write_cp15(core.DFAR, address)
        mode, masks, behind = _MODES[number]
        before, link = inner.cpsr, inner.pc
        inner.cpsr = before & _KEPT | mode | masks | _NO_INTERRUPTS
        inner.spsr = before
        inner.write_r(14, link + behind[bool(before & THUMB)])
        inner.pc = (inner.read_cp15(core.VBAR) or 0) + 4 * number

    # Interrupts

    def due(self) -> int:
        """Return whether the interrupt controller has one; one that is masked ends a sleep, too."""
        return 0 if self.parked else self.pending()

    def take_interrupt(self) -> bool:
        """Take it, if the core lets it in."""
        if not self.due() or self.core.cpsr & _NO_INTERRUPTS:
            return False
        self._enter(core.INTERRUPT)
        return True


def _holds(condition: int, flags: int) -> bool:
    """Return whether a condition holds (table A8-1), where flags are N, Z, C and V from bit 3 on."""
    negative, zero, carry, overflow = (bool(flags >> bit & 1) for bit in (3, 2, 1, 0))
    first = (
        zero,
        carry,
        negative,
        overflow,
        carry and not zero,
        negative == overflow,
        negative == overflow and not zero,
        True,
    )[condition >> 1]
    return first != bool(condition & 1) or condition >= 14
