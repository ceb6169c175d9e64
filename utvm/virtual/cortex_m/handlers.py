# SPDX-License-Identifier: Apache-2.0
"""Exception entry, exception return and the escalation of faults (ARM DDI 0403E, B1.5; DDI 0553B, B3).

Floating-point registers are stacked at once where the chip would do so lazily: the frame is the same, only
FPCCR.LSPACT never shows. Entry and return take no virtual time.
"""

import struct

from utvm.virtual.bus import Bus, BusError
from utvm.virtual.cortex_m import faults, registers, scb
from utvm.virtual.cortex_m.core import Core
from utvm.virtual.cortex_m.exceptions import Exceptions
from utvm.virtual.cortex_m.faults import Fault
from utvm.virtual.cortex_m.scb import SystemControlBlock

_BASIC_WORDS = 8
_FLOAT_WORDS = 18  # S0 to S15, FPSCR and a spare word
_ALIGNED = 1 << 9  # in the stacked xPSR: the stack pointer was moved by 4
_FRAME_REGISTERS = (
    *(registers.R0 + number for number in range(4)),
    registers.R12,
    registers.LR,
)

_TO_THREAD = 1 << 3
_ON_PROCESS_STACK = 1 << 2
_BASIC_FRAME = 1 << 4

# xPSR of a stacked frame that is restored: flags, Q, IT, GE and Thumb.
_STATUS_MASK = 0xFF0FFC00


class LockUp(Exception):
    """A fault where no fault can be handled (ARM DDI 0403E, B1.5.15)."""


class Handlers:
    """Takes a core into handlers and back.

    Args:
        exc_return: EXC_RETURN of a handler that returns to one, with a frame that has floating-point registers.

    Attributes:
        entered: numbers of the exceptions entered since somebody emptied the list, for vector catch.
    """

    def __init__(
        self, core: Core, bus: Bus, exceptions: Exceptions, control: SystemControlBlock, exc_return: int
    ) -> None:
        self._core = core
        self._bus = bus
        self._exceptions = exceptions
        self._scb = control
        self._exc_return = exc_return
        self.entered: list[int] = []

    def execution_priority(self) -> int:
        """Return the priority of what runs now."""
        return self._exceptions.execution_priority(*self._masks())

    def enter(self, exception: int) -> None:
        """Stack a frame and start a handler. PC is where it will return to."""
        priority = self.execution_priority()
        try:
            exc_return = self._push()
        except _StackingFailed as failure:
            self._scb.fault_status |= failure.fault.status
            derived = self._escalated(failure.fault.exception, priority)
            late = self._exceptions.group_priority(derived) < self._exceptions.group_priority(exception)
            first, second = (derived, exception) if late else (exception, derived)
            if second != first:
                self._exceptions.pend(second)
            self._start(first, failure.exc_return)
            return
        self._start(exception, exc_return)

    def take_fault(self, fault: Fault) -> None:
        """Report a fault of the instruction at PC and start its handler."""
        self._scb.record(fault)
        self.enter(self._escalated(fault.exception, self.execution_priority()))

    def take_synchronous(self, exception: int, hard_fault_status: int = faults.FORCED) -> None:
        """Start SVCall or DebugMonitor at once; what cannot preempt becomes a HardFault."""
        priority = self.execution_priority()
        if self._exceptions.group_priority(exception) >= priority:
            exception = self._hard_fault(priority, hard_fault_status)
        self.enter(exception)

    def debug_event_fault(self) -> None:
        """Escalate a debug event that nobody handles to a HardFault."""
        self.enter(self._hard_fault(self.execution_priority(), faults.DEBUGEVT))

    def return_from(self, exc_return: int) -> None:
        """Leave a handler: chain to the next pending exception, or unstack."""
        current = self._core.read(registers.XPSR) & 0x1FF
        if current == 0:
            self._fault_at(exc_return, faults.fetch_fault(exc_return))
            return
        problem = self._check_return(current, exc_return)
        if current in self._exceptions.active:
            self._exceptions.end(current)
        if current != faults.NMI:
            self._core.write(registers.FAULTMASK, 0)
        if problem:
            self._chain_fault(problem, exc_return)
            return
        following = self._exceptions.next(scb.NO_LIMIT)
        if following is not None and self._preempts(following):
            self._start(following, exc_return)
            return
        self._pop(exc_return)

    def preempting(self, masked_from: int) -> int | None:
        """Return the pending exception that is to be taken now, or None."""
        following = self._exceptions.next(masked_from)
        return following if following is not None and self._preempts(following) else None

    def wakes(self, masked_from: int) -> bool:
        """Whether a pending exception ends WFI: one that would preempt if PRIMASK were clear."""
        following = self._exceptions.next(masked_from)
        if following is None:
            return False
        _, faultmask, basepri = self._masks()
        return self._exceptions.group_priority(following) < self._exceptions.execution_priority(
            0, faultmask, basepri
        )

    def _preempts(self, exception: int) -> bool:
        return self._exceptions.group_priority(exception) < self.execution_priority()

    def _masks(self) -> tuple[int, int, int]:
        core = self._core
        read = core.read_privileged if core.unprivileged else core.read
        return read(registers.PRIMASK), read(registers.FAULTMASK), read(registers.BASEPRI)

    def _escalated(self, exception: int, priority: int) -> int:
        if self._scb.is_enabled(exception) and self._exceptions.group_priority(exception) < priority:
            return exception
        return self._hard_fault(priority, faults.FORCED)

    def _hard_fault(self, priority: int, status: int) -> int:
        if priority <= -1:
            raise LockUp
        self._scb.hard_fault_status |= status
        return faults.HARD_FAULT

    def _fault_at(self, address: int, fault: Fault) -> None:
        self._core.write_pc(address)
        self.take_fault(fault)

    # Entry

    def _push(self) -> int:
        core = self._core
        control = core.read_control()
        status = core.read(registers.XPSR)
        handler = bool(status & 0x1FF)
        extended = bool(control & registers.FLOAT_ACTIVE and self._scb.value(scb.FPCCR) & scb.ASPEN)
        stack = core.read(registers.SP)
        realign = stack & 4
        frame = (stack - 4 * (_BASIC_WORDS + (_FLOAT_WORDS if extended else 0)) & ~4) & 0xFFFFFFFF
        words = [core.read(register) for register in _FRAME_REGISTERS]
        words += [core.read(registers.PC), status & ~_ALIGNED | (_ALIGNED if realign else 0)]
        if extended:
            words += [core.read(registers.S0 + number) for number in range(16)]
            words += [core.read(registers.FPSCR), 0]
        exc_return = self._exc_return | (0 if extended else _BASIC_FRAME)
        if not handler:
            exc_return |= _TO_THREAD | (_ON_PROCESS_STACK if control & registers.PROCESS_STACK else 0)
        limit = core.state.limits[not handler and bool(control & registers.PROCESS_STACK)]
        if frame < limit:
            core.write(registers.SP, limit)
            raise _StackingFailed(exc_return, faults.usage_fault(faults.STKOF))
        core.write(registers.SP, frame)
        try:
            self._bus.write(frame, struct.pack(f"<{len(words)}I", *words))
        except BusError:
            raise _StackingFailed(exc_return, Fault(faults.BUS_FAULT, faults.STKERR)) from None
        return exc_return

    def _start(self, exception: int, exc_return: int) -> None:
        """Enter a handler whose frame is on the stack."""
        core = self._core
        control = core.read_control()
        if control & (registers.PROCESS_STACK | registers.FLOAT_ACTIVE):
            core.write_control(control & registers.UNPRIVILEGED)
        vector = self._scb.value(scb.VTOR) + 4 * exception
        try:
            (target,) = struct.unpack("<I", self._bus.read(vector, 4))
        except BusError:
            self._exceptions.pend(exception)
            hard_fault = self._hard_fault(self.execution_priority(), faults.VECTTBL)
            if exception == faults.HARD_FAULT:
                raise LockUp from None
            self._start(hard_fault, exc_return)
            return
        thumb = registers.THUMB if target & 1 else 0
        core.write(registers.XPSR, core.read(registers.XPSR) & 0xF80F0000 | thumb | exception)
        core.write(registers.LR, exc_return)
        core.write_pc(target)
        self._exceptions.begin(exception)
        self.entered.append(exception)

    # Return

    def _check_return(self, current: int, exc_return: int) -> int:
        """Return the UsageFault bit of an illegal return, or 0."""
        nested = len(self._exceptions.active)
        to_thread = exc_return & _TO_THREAD
        modes = (0, _TO_THREAD, _TO_THREAD | _ON_PROCESS_STACK)
        if current not in self._exceptions.active or (exc_return | _BASIC_FRAME) not in (
            self._exc_return | _BASIC_FRAME | mode for mode in modes
        ):
            return faults.INVPC
        if to_thread and nested != 1 and not self._scb.value(scb.CCR) & scb.NONBASETHRDENA:
            return faults.INVPC
        return faults.INVPC if not to_thread and nested == 1 else 0

    def _chain_fault(self, status: int, exc_return: int) -> None:
        fault = faults.usage_fault(status)
        self._scb.record(fault)
        self._start(self._escalated(fault.exception, self.execution_priority()), exc_return)

    def _pop(self, exc_return: int) -> None:
        core = self._core
        extended = not exc_return & _BASIC_FRAME
        size = 4 * (_BASIC_WORDS + (_FLOAT_WORDS if extended else 0))
        frame = core.read(registers.PSP if exc_return & _ON_PROCESS_STACK else registers.MSP)
        try:
            words = struct.unpack(f"<{size // 4}I", self._bus.read(frame, size))
        except BusError:
            self._scb.fault_status |= faults.UNSTKERR
            self._start(self._escalated(faults.BUS_FAULT, self.execution_priority()), exc_return)
            return
        status = words[7]
        if bool(status & 0x1FF) == bool(exc_return & _TO_THREAD):
            self._chain_fault(faults.INVPC, exc_return)
            return
        if extended:
            for number in range(16):
                core.write(registers.S0 + number, words[_BASIC_WORDS + number])
            core.write(registers.FPSCR, words[_BASIC_WORDS + 16])
        control = core.read_control() & registers.UNPRIVILEGED
        control |= registers.FLOAT_ACTIVE if extended else 0
        control |= registers.PROCESS_STACK if exc_return & _ON_PROCESS_STACK else 0
        if control != core.read_control():
            core.write_control(control)
        core.write(registers.XPSR, status & (_STATUS_MASK | 0x1FF))
        core.write(registers.SP, frame + size + (4 if status & _ALIGNED else 0))
        for register, value in zip(_FRAME_REGISTERS, words[:6], strict=True):
            core.write(register, value)
        core.write_pc(words[6])


class _StackingFailed(Exception):
    def __init__(self, exc_return: int, fault: Fault) -> None:
        super().__init__()
        self.exc_return = exc_return
        self.fault = fault
