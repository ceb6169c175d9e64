# SPDX-License-Identifier: Apache-2.0
"""A timer of the STM32, as an up-counter (RM0385, sections 22 to 25), with update and four compare events.

It counts every PSC + 1 cycles of its clock; the count is computed from the core's ticks. Channels are the signals
TIM1_CH1 and so on: captured inputs, or outputs, which cost time only while recorded. Of the slave modes, reset
and trigger are modelled. Other directions, repetition, break and complementary outputs have no effect.
"""

import functools
from collections.abc import Iterator

from utvm.virtual.bus import Device
from utvm.virtual.stm32.clocks import LSI, rates_on
from utvm.virtual.wiring import Wiring

_CR1, _CR2, _SMCR, _DIER, _SR, _EGR, _CCMR1, _CCER = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18, 0x20
_CNT, _PSC, _ARR, _CCR1, _OR = 0x24, 0x28, 0x2C, 0x34, 0x50
_RESET_MODE, _TRIGGER_MODE = 4, 6
_TIF, _TIE = 1 << 6, 1 << 6
_LSI_CHANNEL = 3  # Channel of TIM5 that its OR can connect to the LSI (RM0385, 23.4.20).

# CR1
_CEN, _UDIS, _URS, _OPM, _ARPE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 7

UIF, _UG = 1 << 0, 1 << 0
_COMPARES = 0x1E  # in DIER, SR and EGR: a bit for a channel
_CHANNELS = 4
_UPDATE_LINE, _COMPARE_LINE = 1, 3  # of TIM1 and TIM8, which have four: break, update, trigger, compare


class TimDevice(Device):
    """A timer with counts up to ``top``. With four interrupt lines, update and compare have one each."""

    def __init__(self, wiring: Wiring, address: int, top: int = 0xFFFFFFFF) -> None:
        self._wiring, self._clock, self._address = wiring, wiring.clock, address
        self._lines = wiring.lines or (wiring.set_line,)
        self._top = top
        self._names = [f"{wiring.name}_CH{channel + 1}" for channel in range(_CHANNELS)]
        for channel, name in enumerate(self._names):
            wiring.signals.listen(name, functools.partial(self._take_edge, channel))
        self.reset()

    def reset(self) -> None:
        self._registers = {_ARR: self._top}
        self._status = 0
        self._prescaler = 0  # in effect; PSC is copied at an update
        self._reload = self._top  # in effect
        self._count = 0  # the counter at the tick _since
        self._since = 0
        self._ratio = 1  # core cycles per cycle of its clock
        self._levels = [False] * _CHANNELS
        self._edges = [0] * _CHANNELS  # edges at inputs so far, for their prescalers
        self._lsi_tick: int | None = None  # tick of the LSI's next edge, if connected
        self._drive_line()

    def load(self, offset: int) -> int:
        self.expire()
        if offset == _CNT:
            return self._current()
        if offset == _SR:
            return self._status
        channel = (offset - _CCR1) // 4
        if 0 <= channel < _CHANNELS and self._mode(channel) & 3:
            self._status &= ~(2 << channel)
            self._drive_line()
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
            self._ratio = rates_on(self._wiring.bus).timer(self._address)
            if offset == _ARR and not self._control() & _ARPE:
                self._reload = self._registers[_ARR] & self._top
            if self._wiring.name == "TIM5":
                counts = self._mode(_LSI_CHANNEL) & 3 and self._polarity(_LSI_CHANNEL) & 1
                self._lsi_tick = self._lsi_edge() if counts and self._registers.get(_OR, 0) >> 6 & 3 == 1 else None
        self._drive_line()
        self._show()
        self._clock.reschedule()

    def _lsi_edge(self) -> int:
        """Return the tick of the LSI's next edge that is captured."""
        step = rates_on(self._wiring.bus).core << (self._mode(_LSI_CHANNEL) >> 2 & 3)
        return (self._clock.now() * LSI // step + 1) * step // LSI

    def _mode(self, channel: int) -> int:
        return self._registers.get(_CCMR1 + 4 * (channel // 2), 0) >> 8 * (channel % 2) & 0xFF

    def _polarity(self, channel: int) -> int:
        return self._registers.get(_CCER, 0) >> 4 * channel & 0xF

    def _take_edge(self, pin: int, level: bool | None) -> None:
        """Handle an edge at an input (RM0385, 23.3.5 and 23.3.15)."""
        if not (self._mode(pin) | self._mode(pin ^ 1)) & 3:
            return
        self.expire()

        def is_active(channel: int) -> bool:
            polarity = self._polarity(channel) & 0xA
            return polarity == 0xA or level is not bool(polarity)

        for channel, selection in ((pin, 1), (pin ^ 1, 2)):
            enabled = self._mode(channel) & 3 == selection and self._polarity(channel) & 1
            if enabled and is_active(channel):
                self._edges[channel] += 1
                if self._edges[channel] % (1 << (self._mode(channel) >> 2 & 3)) == 0:
                    self._capture(channel)
        slave = self._registers.get(_SMCR, 0)
        if pin < 2 and slave >> 4 & 7 == 5 + pin and is_active(pin):
            if slave & 7 == _RESET_MODE:
                self._update(flag=not self._control() & _URS)
                self._count_from(0)
            elif slave & 7 == _TRIGGER_MODE:
                self._count_from(self._current())
                self._registers[_CR1] = self._control() | _CEN
            self._status |= _TIF
        self._drive_line()
        self._show()
        self._clock.reschedule()

    def _capture(self, channel: int) -> None:
        self._registers[_CCR1 + 4 * channel] = self._current()
        self._status |= (0x200 << channel) * bool(self._status & 2 << channel)  # overcapture
        self._raise_compare(channel)

    def _raise_compare(self, channel: int) -> None:
        self._status |= 2 << channel
        if self._registers.get(_DIER, 0) & 0x200 << channel:
            self._wiring.signals.set(f"{self._names[channel]}_DMA", None)

    def _timed_flags(self) -> int:
        """Flags of SR that need an event at the exact tick."""
        enabled, watched = self._registers.get(_DIER, 0), self._wiring.signals.edges
        shown = sum(2 << channel for channel, name in enumerate(self._names) if name in watched)
        output = self._output() * (f"{self._wiring.name}_TRGO" in self._wiring.signals.listeners)
        shown |= UIF * bool(shown) | UIF * (output >= 2) | (2 << output % 4) * (output >= 4) | 2 * (output == 3)
        return (enabled | enabled >> 8) & (UIF | _COMPARES) | shown

    def _output(self) -> int:
        """MMS, which selects the trigger output (RM0385, 23.4.2): 2 is an update, 4 and above are channels."""
        return self._registers.get(_CR2, 0) >> 4 & 7

    def _trigger(self, *, active: bool) -> None:
        if active:
            self._wiring.signals.set(f"{self._wiring.name}_TRGO", None)

    def _show(self) -> None:
        """Set the outputs whose edges are recorded (RM0385, 23.3.8 to 23.3.10)."""
        for channel, name in enumerate(self._names):
            mode, polarity = self._mode(channel), self._polarity(channel)
            if mode & 3 or not polarity & 1 or name not in self._wiring.signals.edges:
                continue
            kind = mode >> 4 & 7
            if kind & 6 == 4:
                self._levels[channel] = kind == 5
            elif kind & 6 == 6:
                below = self._current() < self._registers.get(_CCR1 + 4 * channel, 0) & self._top
                self._levels[channel] = below is (kind == 6)
            self._wiring.signals.set(name, self._levels[channel] is not bool(polarity & 2))

    def next_event(self) -> int | None:
        if self._lsi_tick is None and not self._registers.get(_CR1, 0) & _CEN:
            return None
        enabled = self._timed_flags()
        ticks = [self._lsi_tick] if self._lsi_tick is not None else []
        overflow = self._overflow() if enabled else None
        if overflow is None:
            return min(ticks, default=None)
        ticks += [overflow] if enabled & UIF else []
        step = self._step()
        for flag, value in self._compares():
            if flag & enabled and value > self._count:
                ticks.append(self._since + (value - self._count) * step)
            elif flag & enabled and value <= self._reload:
                ticks.append(overflow + value * step)
        return min(ticks, default=None)

    def expire(self) -> None:
        now, before = self._clock.now(), self._status
        if self._lsi_tick is not None and self._lsi_tick <= now:
            self._lsi_tick = self._lsi_edge()
            self._capture(_LSI_CHANNEL)
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
                period = (reload + 1) * self._step()
                if now - overflow >= period:
                    self._flag_compares(0, reload)
                self._since += (now - overflow) // period * period
        current = self._current()
        if current != self._count:
            self._flag_compares(self._count, current)
            self._since += (current - self._count) * self._step()
            self._count = current
        if self._status != before:
            self._drive_line()
        self._show()

    def _step(self) -> int:
        return (self._prescaler + 1) * self._ratio

    def _compares(self) -> Iterator[tuple[int, int]]:
        """Yield flag and value of the channels that are not inputs."""
        for channel in range(_CHANNELS):
            if not self._mode(channel) & 3:
                yield 2 << channel, self._registers.get(_CCR1 + 4 * channel, 0) & self._top

    def _flag_compares(self, first: int, last: int) -> None:
        """Flag the channels whose values the counter takes after ``first``, up to ``last``."""
        for flag, value in self._compares():
            if first < value <= last:
                channel = flag.bit_length() - 2
                self._raise_compare(channel)
                kind = self._mode(channel) >> 4 & 7
                if 1 <= kind <= 3:
                    self._levels[channel] = not self._levels[channel] if kind == 3 else kind == 1
                outputs = {3: channel == 0, 4 + channel: self._levels[channel]}
                self._trigger(active=outputs.get(self._output(), False))

    def _control(self) -> int:
        return self._registers.get(_CR1, 0)

    def _current(self) -> int:
        if not self._control() & _CEN:
            return self._count
        return self._count + (self._clock.now() - self._since) // self._step() & self._top

    def _overflow(self) -> int | None:
        """Tick at which the counter goes from ARR to 0, or None if it is stopped."""
        if not self._control() & _CEN or self._reload == 0:
            return None
        # A counter beyond ARR runs to its maximum first.
        steps = (self._reload if self._count <= self._reload else self._top) - self._count + 1
        return self._since + steps * self._step()

    def _count_from(self, value: int) -> None:
        self._count, self._since = value, self._clock.now()

    def _load_buffers(self) -> None:
        if not self._control() & _UDIS:
            self._prescaler = self._registers.get(_PSC, 0) & 0xFFFF
            self._reload = self._registers[_ARR] & self._top

    def _update(self, *, flag: bool) -> None:
        if flag and not self._control() & _UDIS:
            self._status |= UIF
            output = self._output()
            self._trigger(active=output == 2 or (output > 3 and self._mode(output - 4) >> 4 & 7 == 6))
            if self._registers.get(_DIER, 0) & 0x100:
                self._wiring.signals.set(f"{self._wiring.name}_UP_DMA", None)

    def _drive_line(self) -> None:
        active = self._status & self._registers.get(_DIER, 0)
        if len(self._lines) > _COMPARE_LINE:
            self._lines[_UPDATE_LINE](bool(active & UIF))
            self._lines[_COMPARE_LINE](bool(active & _COMPARES))
        elif self._lines:
            self._lines[0](bool(active & (UIF | _COMPARES | _TIE)))
