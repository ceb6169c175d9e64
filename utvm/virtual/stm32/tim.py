# SPDX-License-Identifier: Apache-2.0
"""A timer of the STM32, as an up-counter (RM0385, sections 22 to 25), with update and four compare events.

The core clock feeds it: it counts every PSC + 1 instructions. Its value is computed from the clock. Registers of
capture, slave modes, other directions and outputs have no effect.
"""

from collections.abc import Callable, Iterator, Sequence

from utvm.virtual.bus import Device
from utvm.virtual.wiring import Clock

_CR1, _DIER, _SR, _EGR, _CCMR1, _CNT, _PSC, _ARR, _CCR1 = 0x00, 0x0C, 0x10, 0x14, 0x18, 0x24, 0x28, 0x2C, 0x34

# CR1
_CEN, _UDIS, _URS, _OPM, _ARPE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 7

UIF, _UG = 1 << 0, 1 << 0
_COMPARES = 0x1E  # in DIER, SR and EGR: a bit for a channel
_CHANNELS = 4
_UPDATE_LINE, _COMPARE_LINE = 1, 3  # of TIM1 and TIM8, which have four: break, update, trigger, compare


class TimDevice(Device):
    """The timer; ``top`` is its largest count. With four ``lines``, update and compare have their own."""

    def __init__(self, clock: Clock, lines: Sequence[Callable[[bool], None]], top: int = 0xFFFFFFFF) -> None:
        self._clock = clock
        self._lines = lines
        self._top = top
        self.reset()

    def reset(self) -> None:
        self._registers = {_ARR: self._top}
        self._status = 0
        self._prescaler = 0  # in effect; PSC is copied at an update
        self._reload = self._top  # in effect
        self._count = 0  # the counter at the tick _since
        self._since = 0
        self._drive_line()

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
            self._count_from((self._current() & ~lanes | value) & self._top)
        elif offset == _SR:
            self._status &= value | ~lanes  # zeros clear
        elif offset == _EGR:
            self._status |= value & _COMPARES
            if value & _UG:
                self._load_buffers()
                self._update(flag=not self._control() & _URS)
                self._count_from(0)
        else:
            self._count_from(self._current())
            self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
            if offset == _ARR and not self._control() & _ARPE:
                self._reload = self._registers[_ARR] & self._top
        self._drive_line()
        self._clock.reschedule()

    def next_event(self) -> int | None:
        enabled = self._registers.get(_DIER, 0)
        overflow = self._overflow() if enabled & (UIF | _COMPARES) else None
        if overflow is None:
            return None
        ticks = [overflow] if enabled & UIF else []
        step = self._prescaler + 1
        for flag, value in self._compares():
            if flag & enabled and value > self._count:
                ticks.append(self._since + (value - self._count) * step)
            elif flag & enabled and value <= self._reload:
                ticks.append(overflow + value * step)
        return min(ticks, default=None)

    def expire(self) -> None:
        now, before = self._clock.now(), self._status
        while (overflow := self._overflow()) is not None and overflow <= now:
            self._flag_compares(self._count, self._reload)
            self._count, self._since = 0, overflow
            self._flag_compares(-1, 0)
            prescaler, reload = self._prescaler, self._reload
            self._load_buffers()
            self._update(flag=True)
            if self._control() & _OPM:
                self._registers[_CR1] = self._control() & ~_CEN
            elif (prescaler, reload) == (self._prescaler, self._reload):
                period = (reload + 1) * (prescaler + 1)
                if now - overflow >= period:
                    self._flag_compares(0, reload)
                self._since += (now - overflow) // period * period
        current = self._current()
        if current != self._count:
            self._flag_compares(self._count, current)
            self._since += (current - self._count) * (self._prescaler + 1)
            self._count = current
        if self._status != before:
            self._drive_line()

    def _compares(self) -> Iterator[tuple[int, int]]:
        """Flag and value of the channels that are no inputs."""
        for channel in range(_CHANNELS):
            mode = self._registers.get(_CCMR1 + 4 * (channel // 2), 0) >> 8 * (channel % 2)
            if not mode & 3:
                yield 2 << channel, self._registers.get(_CCR1 + 4 * channel, 0) & self._top

    def _flag_compares(self, first: int, last: int) -> None:
        """Flag the channels whose values the counter takes after ``first``, up to ``last``."""
        for flag, value in self._compares():
            if first < value <= last:
                self._status |= flag

    def _control(self) -> int:
        return self._registers.get(_CR1, 0)

    def _current(self) -> int:
        if not self._control() & _CEN:
            return self._count
        return self._count + (self._clock.now() - self._since) // (self._prescaler + 1) & self._top

    def _overflow(self) -> int | None:
        """Tick at which the counter goes from ARR to 0, or None if it is stopped."""
        if not self._control() & _CEN or self._reload == 0:
            return None
        # A counter beyond ARR runs to its maximum first.
        steps = (self._reload if self._count <= self._reload else self._top) - self._count + 1
        return self._since + steps * (self._prescaler + 1)

    def _count_from(self, value: int) -> None:
        self._count, self._since = value, self._clock.now()

    def _load_buffers(self) -> None:
        if not self._control() & _UDIS:
            self._prescaler = self._registers.get(_PSC, 0) & 0xFFFF
            self._reload = self._registers[_ARR] & self._top

    def _update(self, *, flag: bool) -> None:
        if flag and not self._control() & _UDIS:
            self._status |= UIF

    def _drive_line(self) -> None:
        active = self._status & self._registers.get(_DIER, 0)
        if len(self._lines) > _COMPARE_LINE:
            self._lines[_UPDATE_LINE](bool(active & UIF))
            self._lines[_COMPARE_LINE](bool(active & _COMPARES))
        elif self._lines:
            self._lines[0](bool(active & (UIF | _COMPARES)))
