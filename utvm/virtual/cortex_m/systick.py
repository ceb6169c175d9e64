# SPDX-License-Identifier: Apache-2.0
"""SysTick (ARM DDI 0403E, B3.3): a 24-bit down counter. One instruction is one tick of the processor clock."""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.wiring import Clock

_CONTROL = 0x10
_RELOAD = 0x14
_CURRENT = 0x18

_ENABLE = 1 << 0
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
            self._control = self._control & _COUNTFLAG | wanted & (_ENABLE | _TICKINT | _CLKSOURCE)
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
        if not self._control & _ENABLE or (current == 0 and self._reload == 0):
            return
        steps = current or self._reload + 1  # from 0 the next step reloads
        self._zero = self._clock.now() + steps * self._step()
