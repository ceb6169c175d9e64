# SPDX-License-Identifier: Apache-2.0
"""A general-purpose timer of the STM32, as an up-counter (RM0385, section 23): TIM2, 32 bits.

The core clock feeds it: it counts every PSC + 1 instructions. Its value is computed from the clock. Registers of
capture, compare, slave modes and other directions have no effect.
"""

from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.wiring import Clock

_CR1, _DIER, _SR, _EGR, _CNT, _PSC, _ARR = 0x00, 0x0C, 0x10, 0x14, 0x24, 0x28, 0x2C

# CR1
_CEN, _UDIS, _URS, _OPM, _ARPE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 7

UIF, _UIE, _UG = 1 << 0, 1 << 0, 1 << 0


class TimDevice(Device):
    """The timer."""

    def __init__(self, clock: Clock, set_line: Callable[[bool], None]) -> None:
        self._clock = clock
        self._set_line = set_line
        self.reset()

    def reset(self) -> None:
        self._registers = {_ARR: 0xFFFFFFFF}
        self._status = 0
        self._prescaler = 0  # in effect; PSC is copied at an update
        self._reload = 0xFFFFFFFF  # in effect
        self._count = 0  # the counter at the tick _since
        self._since = 0
        self._set_line(False)

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _CNT:
            return self._current()
        if offset == _SR:
            return self._status
        return self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == _CNT:
            self._count_from(self._current() & ~lanes | value)
        elif offset == _SR:
            self._status &= value | ~lanes  # zeros clear
            self._drive_line()
        elif offset == _EGR:
            if value & _UG:
                self._load_buffers()
                self._update(flag=not self._control() & _URS)
                self._count_from(0)
        else:
            self._count_from(self._current())
            self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
            if offset == _ARR and not self._control() & _ARPE:
                self._reload = self._registers[_ARR]
            self._drive_line()
        self._clock.reschedule()

    def next_event(self) -> int | None:
        return self._overflow() if self._registers.get(_DIER, 0) & _UIE else None

    def expire(self) -> None:
        while (overflow := self._overflow()) is not None and overflow <= self._clock.now():
            self._count, self._since = 0, overflow
            prescaler, reload = self._prescaler, self._reload
            self._load_buffers()
            self._update(flag=True)
            if self._control() & _OPM:
                self._registers[_CR1] = self._control() & ~_CEN
            elif (prescaler, reload) == (self._prescaler, self._reload):
                period = (reload + 1) * (prescaler + 1)
                self._since += (self._clock.now() - overflow) // period * period

    def _control(self) -> int:
        return self._registers.get(_CR1, 0)

    def _current(self) -> int:
        if not self._control() & _CEN:
            return self._count
        return self._count + (self._clock.now() - self._since) // (self._prescaler + 1) & 0xFFFFFFFF

    def _overflow(self) -> int | None:
        """Tick at which the counter goes from ARR to 0, or None if it is stopped."""
        if not self._control() & _CEN or self._reload == 0:
            return None
        # A counter beyond ARR runs to its maximum first.
        steps = (self._reload if self._count <= self._reload else 0xFFFFFFFF) - self._count + 1
        return self._since + steps * (self._prescaler + 1)

    def _count_from(self, value: int) -> None:
        self._count, self._since = value, self._clock.now()

    def _load_buffers(self) -> None:
        if not self._control() & _UDIS:
            self._prescaler = self._registers.get(_PSC, 0) & 0xFFFF
            self._reload = self._registers[_ARR]

    def _update(self, *, flag: bool) -> None:
        if flag and not self._control() & _UDIS:
            self._status |= UIF
        self._drive_line()

    def _drive_line(self) -> None:
        self._set_line(bool(self._status & self._registers.get(_DIER, 0) & _UIE))
