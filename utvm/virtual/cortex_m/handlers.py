# SPDX-License-Identifier: Apache-2.0
"""Exception entry, exception return and the escalation of faults (ARM DDI 0403E, B1.5; DDI 0553B, B3).

Entry and return take no virtual time.
"""

import struct

from utvm.virtual.bus import Bus, BusError
from utvm.virtual.cortex_m import faults, mpu, registers, scs
from utvm.virtual.cortex_m.core import Core
from utvm.virtual.cortex_m.faults import NO_LIMIT, Exceptions, Fault
from utvm.virtual.cortex_m.scs import SystemControlBlock

_BASIC_WORDS = 8
_FLOAT_WORDS = 18  # S0 to S15, FPSCR and a spare word
_ALIGNED = 1 << 9  # in the stacked xPSR: the stack pointer was aligned
_FRAME_REGISTERS = (*range(registers.R0, registers.R0 + 4), registers.R12, registers.LR)
_ENTRY_REGISTERS = (*_FRAME_REGISTERS, registers.PC, registers.CONTROL, registers.XPSR, registers.SP)
_RETURN_REGISTERS = (registers.XPSR, registers.SP, *_FRAME_REGISTERS, registers.PC)
_FLOAT_REGISTERS = (*range(registers.S0, registers.S0 + 16), registers.FPSCR)

_TO_THREAD, _ON_PROCESS_STACK, _BASIC_FRAME = 1 << 3, 1 << 2, 1 << 4

# Bits of xPSR that a return restores: flags, Q, IT, GE and Thumb.
_STATUS_MASK = 0xFF0FFC00

# FPCCR: THREAD; the bits of exceptions that could preempt.
_THREAD, _READY = 1 << 3, {faults.MEM_MANAGE: 5, faults.BUS_FAULT: 6}
_ALL = 0xFFFFFFFF


class LockUp(Exception):
    """A fault that no handler can take (ARM DDI 0403E, B1.5.15)."""


class Handlers:
    """Entry of a core into handlers, and return from them.

    ``exc_return`` is EXC_RETURN of a return to a handler, with floating-point registers in the frame. ``entered``
    lists the exceptions entered since it was cleared, for vector catch.
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
        """Return the priority of the running code."""
        return self._exceptions.execution_priority(*self._masks())

    def enter(self, exception: int) -> None:
        """Stack a frame and start a handler. PC is its return address."""
        try:
            exc_return = self._push()
        except _StackingFailed as failure:
            self._scb.fault_status |= failure.fault.status
            derived = self._escalate(failure.fault.exception, self.execution_priority())
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
        self.enter(self._escalate(fault.exception, self.execution_priority()))

    def take_synchronous(self, exception: int, hard_fault_status: int = faults.FORCED) -> None:
        """Start SVCall or DebugMonitor at once, or a HardFault if that cannot preempt."""
        priority = self.execution_priority()
        if self._exceptions.group_priority(exception) >= priority:
            exception = self._hard_fault(priority, hard_fault_status)
        self.enter(exception)

    def debug_event_fault(self) -> None:
        """Escalate an unhandled debug event to a HardFault."""
        self.enter(self._hard_fault(self.execution_priority(), faults.DEBUGEVT))

    def return_from(self, exc_return: int) -> None:
        """Leave a handler: chain to the next pending exception, or unstack."""
        current = self._core.read(registers.XPSR) & 0x1FF
        if current == 0:
            self._core.write_pc(exc_return)
            self.take_fault(faults.fetch_fault(exc_return))
            return
        problem = self._check_return(current, exc_return)
        if current in self._exceptions.active:
            self._exceptions.end(current)
        if current != faults.NMI:
            self._core.write(registers.FAULTMASK, 0)
        if problem:
            self._chain_fault(problem, exc_return)
            return
        following = self._exceptions.next(NO_LIMIT)
        if following is not None and self._preempts(following):
            self._start(following, exc_return)
            return
        self._pop(exc_return)

    def preempting(self, masked_from: int) -> int | None:
        """Return the pending exception that preempts the running code, or None."""
        following = self._exceptions.next(masked_from)
        return following if following is not None and self._preempts(following) else None

    def wakes(self, masked_from: int) -> bool:
        """True if a pending exception ends WFI: it would preempt if PRIMASK were clear."""
        following = self._exceptions.next(masked_from)
        if following is None:
            return False
        _, faultmask, basepri = self._masks()
        return self._exceptions.group_priority(following) < self._exceptions.execution_priority(0, faultmask, basepri)

    def _preempts(self, exception: int) -> bool:
        return self._exceptions.group_priority(exception) < self.execution_priority()

    def _masks(self) -> list[int]:
        return self._core.read_privileged(registers.PRIMASK, registers.FAULTMASK, registers.BASEPRI)

    def _escalate(self, exception: int, priority: int) -> int:
        if self._scb.is_enabled(exception) and self._exceptions.group_priority(exception) < priority:
            return exception
        return self._hard_fault(priority, faults.FORCED)

    def _hard_fault(self, priority: int, status: int) -> int:
        if priority <= -1:
            raise LockUp
        self._scb.hard_fault_status |= status
        return faults.HARD_FAULT

    def _push(self) -> int:
        core = self._core
        *frame_words, pc, control, status, stack = core.read_all(_ENTRY_REGISTERS)
        handler = bool(status & 0x1FF)
        unprivileged = not handler and bool(control & registers.UNPRIVILEGED)
        extended = bool(control & registers.FLOAT_ACTIVE and self._scb.value(scs.FPCCR) & scs.ASPEN)
        realign = stack & 4
        frame = (stack - 4 * (_BASIC_WORDS + (_FLOAT_WORDS if extended else 0)) & ~4) & 0xFFFFFFFF
        words = [*frame_words, pc, status & ~_ALIGNED | (_ALIGNED if realign else 0)]
        lazy = extended and self._scb.value(scs.FPCCR) & scs.LSPEN
        if extended and not lazy:
            words += self._float_words()
        exc_return = self._exc_return | (0 if extended else _BASIC_FRAME)
        if not handler:
            exc_return |= _TO_THREAD | (_ON_PROCESS_STACK if control & registers.PROCESS_STACK else 0)
        limit = core.state.limits[not handler and bool(control & registers.PROCESS_STACK)]
        if frame < limit:
            core.write(registers.SP, limit)
            raise _StackingFailed(exc_return, faults.usage_fault(faults.STKOF))
        core.write(registers.SP, frame)
        fault = self._write(frame, words, unprivileged, (faults.MSTKERR, faults.STKERR))
        if fault:
            raise _StackingFailed(exc_return, fault)
        if lazy:
            self._defer_float(frame + 4 * _BASIC_WORDS, handler, unprivileged)
        return exc_return

    def _write(self, address: int, words: list[int], unprivileged: bool, statuses: tuple[int, int]) -> Fault | None:
        """Store words; return the fault: MemManage or BusFault, by the status bits of the two."""
        try:
            if self._refuses(address, 4 * len(words), mpu.RIGHT_WRITE, unprivileged):
                return Fault(faults.MEM_MANAGE, statuses[0])
            self._bus.write(address, struct.pack(f"<{len(words)}I", *words))
        except BusError:
            return Fault(faults.BUS_FAULT, statuses[1])
        return None

    def _refuses(self, address: int, size: int, right: int, unprivileged: bool) -> bool:
        """True if the MPU does not let exception entry or return access memory."""
        control = self._core.state.mpu.control
        if not control & mpu.ENABLE or (self.execution_priority() < 0 and not control & mpu.HFNMIENA):
            return False
        return not self._core.permits(address, size, right << (0 if unprivileged else mpu.PRIVILEGED_SHIFT))

    def _float_words(self) -> list[int]:
        return [*self._core.read_all(_FLOAT_REGISTERS), 0]

    def _defer_float(self, address: int, handler: bool, unprivileged: bool) -> None:
        """Record where to store floating-point registers, and the faults that may raise (DDI 0403E, UpdateFPCCR)."""
        priority = self.execution_priority()
        context = self._scb.value(scs.FPCCR) & (scs.ASPEN | scs.LSPEN) | scs.LSPACT
        context |= (scs.USER if unprivileged else 0) | (0 if handler else _THREAD) | (priority > -1) << 4
        for exception, bit in _READY.items():
            able = self._scb.is_enabled(exception) and self._exceptions.group_priority(exception) < priority
            context |= able << bit
        self._scb.store(scs.FPCAR, address, _ALL)
        self._scb.store(scs.FPCCR, context, _ALL)

    def begin_float(self) -> None:
        """Store the registers that entry left, and begin a context with FPDSCR (DDI 0403E, ExecuteFPCheck)."""
        core, context = self._core, self._scb.value(scs.FPCCR)
        if context & scs.LSPACT:
            address, statuses = self._scb.value(scs.FPCAR), (faults.MLSPERR, faults.LSPERR)
            fault = self._write(address, self._float_words(), bool(context & scs.USER), statuses)
            if fault:
                ready = context >> _READY[fault.exception] & 1
                self._scb.fault_status |= fault.status
                self._scb.hard_fault_status |= 0 if ready else faults.FORCED
                self._exceptions.pend(fault.exception if ready else faults.HARD_FAULT)
                if self.preempting(NO_LIMIT):
                    return
            self._scb.store(scs.FPCCR, context & ~scs.LSPACT, _ALL)
        if context & scs.ASPEN:
            core.write_control(core.read_control() | registers.FLOAT_ACTIVE)
            status = core.read(registers.FPSCR) & ~scs.FPDSCR_BITS
            core.write(registers.FPSCR, status | self._scb.value(scs.FPDSCR))

    def _start(self, exception: int, exc_return: int) -> None:
        core = self._core
        control, status = core.read_all((registers.CONTROL, registers.XPSR))
        if control & (registers.PROCESS_STACK | registers.FLOAT_ACTIVE):
            core.write_control(control & registers.UNPRIVILEGED)
        vector = self._scb.value(scs.VTOR) + 4 * exception
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
        core.state.exclusive = 0
        words = [status & 0xF80F0000 | thumb | exception, exc_return, target]
        core.write_all((registers.XPSR, registers.LR, registers.PC), words)
        self._exceptions.begin(exception)
        self.entered.append(exception)

    def _check_return(self, current: int, exc_return: int) -> int:
        nested = len(self._exceptions.active)
        to_thread = exc_return & _TO_THREAD
        modes = (0, _TO_THREAD, _TO_THREAD | _ON_PROCESS_STACK)
        if current not in self._exceptions.active or (exc_return | _BASIC_FRAME) not in (
            self._exc_return | _BASIC_FRAME | mode for mode in modes
        ):
            return faults.INVPC
        if to_thread and nested != 1 and not self._scb.value(scs.CCR) & scs.NONBASETHRDENA:
            return faults.INVPC
        return faults.INVPC if not to_thread and nested == 1 else 0

    def _chain_fault(self, status: int, exc_return: int) -> None:
        fault = faults.usage_fault(status)
        self._scb.record(fault)
        self._start(self._escalate(fault.exception, self.execution_priority()), exc_return)

    def _pop(self, exc_return: int) -> None:
        core = self._core
        extended = not exc_return & _BASIC_FRAME
        size = 4 * (_BASIC_WORDS + (_FLOAT_WORDS if extended else 0))
        stack = registers.PSP if exc_return & _ON_PROCESS_STACK else registers.MSP
        frame, before = core.read_all((stack, registers.CONTROL))
        unprivileged = bool(exc_return & _TO_THREAD and before & registers.UNPRIVILEGED)
        fault = None
        try:
            words = struct.unpack(f"<{size // 4}I", self._bus.read(frame, size))
        except BusError:
            fault = Fault(faults.BUS_FAULT, faults.UNSTKERR)
        if self._refuses(frame, size, mpu.RIGHT_READ, unprivileged):
            fault = Fault(faults.MEM_MANAGE, faults.MUNSTKERR)
        if fault:
            self._scb.fault_status |= fault.status
            self._start(self._escalate(fault.exception, self.execution_priority()), exc_return)
            return
        status = words[7]
        if bool(status & 0x1FF) == bool(exc_return & _TO_THREAD):
            self._chain_fault(faults.INVPC, exc_return)
            return
        context = self._scb.value(scs.FPCCR)
        if extended and context & scs.LSPACT:
            self._scb.store(scs.FPCCR, context & ~scs.LSPACT, _ALL)
        elif extended:
            core.write_all(_FLOAT_REGISTERS, list(words[_BASIC_WORDS:-1]))
        control = before & registers.UNPRIVILEGED
        control |= registers.FLOAT_ACTIVE if extended else 0
        control |= registers.PROCESS_STACK if exc_return & _ON_PROCESS_STACK else 0
        if control != before:
            core.write_control(control)
        core.state.exclusive = 0
        stack = frame + size + (4 if status & _ALIGNED else 0)
        pc = words[6] & ~1 | bool(status & registers.THUMB)
        core.write_all(_RETURN_REGISTERS, [status & (_STATUS_MASK | 0x1FF), stack, *words[:6], pc])


class _StackingFailed(Exception):
    def __init__(self, exc_return: int, fault: Fault) -> None:
        super().__init__()
        self.exc_return = exc_return
        self.fault = fault
