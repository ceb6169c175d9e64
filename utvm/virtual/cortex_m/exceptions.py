# SPDX-License-Identifier: Apache-2.0
"""Which exceptions are pending, active and enabled, and which of them is next (ARM DDI 0403E, B1.5)."""

from collections.abc import Callable

from utvm.virtual.cortex_m.faults import FIRST_INTERRUPT, HARD_FAULT, NMI

NO_PRIORITY = 256  # of code that is in no exception: anything preempts it
PRIORITY_BITS = 0xF0  # the Cortex-M7 of the STM32F7 implements four bits of priority


class Exceptions:
    """The state of all exceptions of a core.

    Args:
        interrupts: number of external interrupt lines.
        changed: called when an exception becomes pending or a priority changes.

    Attributes:
        pending: exception numbers.
        active: exception numbers of all handlers that have begun and not ended.
        enabled: exception numbers of the external interrupts that are enabled.
        priority: priority by exception number, 0 to 255; fixed ones are not in here.
        group_shift: PRIGROUP.
    """

    def __init__(self, interrupts: int, changed: Callable[[], None]) -> None:
        self.interrupts = interrupts
        self._changed = changed
        self.reset()

    def reset(self) -> None:
        """Take the state after reset; lines stay as the peripherals drive them."""
        self.pending: set[int] = set()
        self.active: set[int] = set()
        self.enabled: set[int] = set()
        self.priority = [0] * (FIRST_INTERRUPT + self.interrupts)
        self.group_shift = 0
        self._lines: set[int] = set()

    def pend(self, exception: int) -> None:
        """Make an exception pending."""
        self.pending.add(exception)
        self._changed()

    def unpend(self, exception: int) -> None:
        """Take pending back, unless a peripheral still asks."""
        if exception not in self._lines:
            self.pending.discard(exception)

    def set_line(self, interrupt: int, level: bool) -> None:
        """Drive the line of an external interrupt. While it is high the interrupt becomes pending again."""
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
        """Note that a handler starts."""
        self.pending.discard(exception)
        self.active.add(exception)

    def end(self, exception: int) -> None:
        """Note that a handler has ended. A line that is still high makes it pending again."""
        self.active.discard(exception)
        if exception in self._lines:
            self.pend(exception)

    def group_priority(self, exception: int) -> int:
        """Return what decides about preemption: lower is more urgent, NMI and HardFault are negative."""
        if exception == NMI:
            return -2
        if exception == HARD_FAULT:
            return -1
        return self.group(self.priority[exception])

    def group(self, priority: int) -> int:
        """Return the group part of a priority, as PRIGROUP splits it."""
        return priority & -(2 << self.group_shift) & 0xFF

    def execution_priority(self, primask: int, faultmask: int, basepri: int) -> int:
        """Return the priority of the code that runs (ARM DDI 0403E, B1.5.4, ExecutionPriority)."""
        priority = min((self.group_priority(number) for number in self.active), default=NO_PRIORITY)
        if basepri:
            priority = min(priority, self.group(basepri))
        if primask:
            priority = min(priority, 0)
        if faultmask:
            priority = min(priority, -1)
        return priority

    def next(self, masked_from: int) -> int | None:
        """Return the pending and enabled exception that is most urgent, or None.

        Args:
            masked_from: exceptions of this number and above are held back by the debugger.
        """
        candidates = [
            number
            for number in self.pending
            if (number < FIRST_INTERRUPT or number in self.enabled) and number < masked_from
        ]
        return min(candidates, key=self._urgency) if candidates else None

    def _urgency(self, exception: int) -> tuple[int, int]:
        fixed = {NMI: -2, HARD_FAULT: -1}
        return fixed.get(exception, self.priority[exception]), exception
