# SPDX-License-Identifier: Apache-2.0
"""A general-purpose timer of the STM32, as an up-counter (RM0385, section 23): TIM2, 32 bits.

The core clock feeds it: the counter moves every PSC + 1 instructions. It is worked out from the clock.
Capture, compare, slave modes and other directions are registers without effect.
"""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.wiring import Clock

_CR1 = 0x00
_DIER = 0x0C
_SR = 0x10
_EGR = 0x14
_CNT = 0x24
_PSC = 0x28
_ARR = 0x2C

# CR1
_CEN = 1 << 0
_UDIS = 1 << 1
_URS = 1 << 2
_OPM = 1 << 3
_ARPE = 1 << 7

UIF = 1 << 0
_UIE = 1 << 0
_UG = 1 << 0


class TimDevice(Device):
    """One timer.

    Args:
        set_line: drives the interrupt line.
    """

    def __init__(self, clock: Clock, set_line: Callable[[bool], None]) -> None:
        self._clock = clock
        self._set_line = set_line
        self.reset()

    def reset(self) -> None:
        self._registers = {_ARR: 0xFFFFFFFF}
        self._status = 0
        self._prescaler = 0  # in effect; PSC itself is only taken over at an update
        self._reload = 0xFFFFFFFF  # in effect
        self._count = 0  # the counter at the tick _since
        self._since = 0
        self._set_line(False)

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _CNT:
            return self._now_at()
        if offset == _SR:
            return self._status
        return self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == _CNT:
            self._count_from(self._now_at() & ~lanes | value)
        elif offset == _SR:
            self._status &= value | ~lanes  # a zero clears, a one leaves alone
            self._drive_line()
        elif offset == _EGR:
            if value & _UG:
                self._take_over()
                self._update(flag=not self._control() & _URS)
                self._count_from(0)
        else:
            self._count_from(self._now_at())
            self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
            if offset == _ARR and not self._control() & _ARPE:
                self._reload = self._registers[_ARR]
            self._drive_line()
        self._clock.timers_changed()

    def next_event(self) -> int | None:
        """Return the tick of the next update that interrupts, or None."""
        return self._overflow() if self._registers.get(_DIER, 0) & _UIE else None

    def expire(self) -> None:
        """Do the updates that are due."""
        while (overflow := self._overflow()) is not None and overflow <= self._clock.now():
            self._count, self._since = 0, overflow
            prescaler, reload = self._prescaler, self._reload
            self._take_over()
            self._update(flag=True)
            if self._control() & _OPM:
                self._registers[_CR1] = self._control() & ~_CEN
            elif (prescaler, reload) == (self._prescaler, self._reload):
                period = (reload + 1) * (prescaler + 1)
                self._since += (self._clock.now() - overflow) // period * period

    def _control(self) -> int:
        return self._registers.get(_CR1, 0)

    def _now_at(self) -> int:
        if not self._control() & _CEN:
            return self._count
        return self._count + (self._clock.now() - self._since) // (self._prescaler + 1) & 0xFFFFFFFF

    def _overflow(self) -> int | None:
        """Return the tick at which the counter goes from ARR to 0, or None if it does not run."""
        if not self._control() & _CEN or self._reload == 0:
            return None
        # A counter that has been set beyond ARR runs to its own end first.
        steps = (self._reload if self._count <= self._reload else 0xFFFFFFFF) - self._count + 1
        return self._since + steps * (self._prescaler + 1)

    def _count_from(self, value: int) -> None:
        self._count, self._since = value, self._clock.now()

    def _take_over(self) -> None:
        if not self._control() & _UDIS:
            self._prescaler = self._registers.get(_PSC, 0) & 0xFFFF
            self._reload = self._registers[_ARR]

    def _update(self, *, flag: bool) -> None:
        if flag and not self._control() & _UDIS:
            self._status |= UIF
        self._drive_line()

    def _drive_line(self) -> None:
        self._set_line(bool(self._status & self._registers.get(_DIER, 0) & _UIE))
