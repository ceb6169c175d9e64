# SPDX-License-Identifier: Apache-2.0
"""Exceptions, their priorities, and faults with their status bits (ARM DDI 0403E, B1.5 and B3.2.15)."""

from collections.abc import Callable
from dataclasses import dataclass

NMI, HARD_FAULT, MEM_MANAGE, BUS_FAULT, USAGE_FAULT, SV_CALL, DEBUG_MONITOR = 2, 3, 4, 5, 6, 11, 12
PEND_SV, SYS_TICK, FIRST_INTERRUPT = 14, 15, 16

# CFSR: MemManage in bits 7:0, BusFault in 15:8, UsageFault in 31:16.
IACCVIOL, DACCVIOL, MUNSTKERR, MSTKERR, MLSPERR, MMARVALID = 1 << 0, 1 << 1, 1 << 3, 1 << 4, 1 << 5, 1 << 7
IBUSERR, PRECISERR, UNSTKERR, STKERR, LSPERR = 1 << 8, 1 << 9, 1 << 11, 1 << 12, 1 << 13
BFARVALID, UNDEFINSTR, INVSTATE, INVPC, NOCP = 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19
STKOF = 1 << 20  # of Armv8-M
UNALIGNED, DIVBYZERO = 1 << 24, 1 << 25

# HFSR
VECTTBL, FORCED, DEBUGEVT = 1 << 1, 1 << 30, 1 << 31


@dataclass(frozen=True)
class Fault:
    """A fault of one instruction: its exception, if enabled, bits in CFSR, and data address for MMFAR or BFAR."""

    exception: int
    status: int
    address: int | None = None


def fetch_fault(address: int) -> Fault:
    """Fault of an instruction fetch: by the default memory map, or by the bus (ARM DDI 0403E, B3.1)."""
    execute_never = 0x40000000 <= address < 0x60000000 or address >= 0xA0000000
    return Fault(MEM_MANAGE, IACCVIOL) if execute_never else Fault(BUS_FAULT, IBUSERR)


def data_fault(address: int) -> Fault:
    """Fault of a load or store that the bus refuses."""
    return Fault(BUS_FAULT, PRECISERR | BFARVALID, address)


def access_fault(address: int) -> Fault:
    """Fault of a load or store that the memory protection unit refuses."""
    return Fault(MEM_MANAGE, DACCVIOL | MMARVALID, address)


def usage_fault(status: int) -> Fault:
    return Fault(USAGE_FAULT, status)


NO_LIMIT = 1 << 16  # above every exception number
_NO_PRIORITY = 256  # of code outside handlers: any exception preempts it
PRIORITY_BITS = 0xF0  # four bits of priority are implemented
_FIXED = {NMI: -2, HARD_FAULT: -1}


class Exceptions:
    """The exceptions of a core; ``changed`` is called when one becomes pending or is enabled.

    Attributes:
        active: numbers of the exceptions with a running or preempted handler.
        enabled: numbers of the enabled external interrupts.
        priority: configurable priority by exception number, 0 to 255.
        group_shift: PRIGROUP.
    """

    def __init__(self, interrupts: int, changed: Callable[[], None]) -> None:
        self.interrupts = interrupts
        self._changed = changed
        self.reset()

    def reset(self) -> None:
        self.pending: set[int] = set()
        self.active: set[int] = set()
        self.enabled: set[int] = set()
        self.priority = [0] * (FIRST_INTERRUPT + self.interrupts)
        self.group_shift = 0
        self._lines: set[int] = set()

    def pend(self, exception: int) -> None:
        """Set an exception pending."""
        self.pending.add(exception)
        self._changed()

    def unpend(self, exception: int) -> None:
        """Clear pending, unless the interrupt line is high."""
        if exception not in self._lines:
            self.pending.discard(exception)

    def set_line(self, interrupt: int, level: bool) -> None:
        """Drive an external interrupt line. A high line pends again when its handler ends."""
        exception = FIRST_INTERRUPT + interrupt
        if not level:
            self._lines.discard(exception)
        elif exception not in self._lines:
            self._lines.add(exception)
            self.pend(exception)

    def enable(self, exception: int, on: bool) -> None:
        """Enable or disable an external interrupt."""
        if on:
            self.enabled.add(exception)
            self._changed()
        else:
            self.enabled.discard(exception)

    def begin(self, exception: int) -> None:
        """Mark a handler as begun."""
        self.pending.discard(exception)
        self.active.add(exception)

    def end(self, exception: int) -> None:
        """Mark a handler as ended."""
        self.active.discard(exception)
        if exception in self._lines:
            self.pend(exception)

    def group_priority(self, exception: int) -> int:
        """Priority that decides on preemption: lower is more urgent, NMI and HardFault are negative."""
        return _FIXED[exception] if exception in _FIXED else self._group(self.priority[exception])

    def _group(self, priority: int) -> int:
        return priority & -(2 << self.group_shift) & 0xFF

    def execution_priority(self, primask: int, faultmask: int, basepri: int) -> int:
        """Priority of the running code (ARM DDI 0403E, B1.5.4, ExecutionPriority)."""
        priority = min((self.group_priority(number) for number in self.active), default=_NO_PRIORITY)
        if basepri:
            priority = min(priority, self._group(basepri))
        if primask:
            priority = min(priority, 0)
        return min(priority, -1) if faultmask else priority

    def next(self, masked_from: int) -> int | None:
        """Return the most urgent exception that is pending, enabled and below ``masked_from``, or None."""
        ready = (n for n in self.pending if n < masked_from and (n < FIRST_INTERRUPT or n in self.enabled))
        return min(ready, key=lambda number: (_FIXED.get(number, self.priority[number]), number), default=None)
