# SPDX-License-Identifier: Apache-2.0
"""ADC and DAC of the STM32F4 and F7. Sections are those of RM0385."""

import functools

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.signals import Signals
from utvm.virtual.stm32.clocks import rates_on
from utvm.virtual.wiring import Wiring

_UNITS = range(0, 0x300, 0x100)
_CYCLES = (3, 15, 28, 56, 84, 112, 144, 480)  # of sampling, by SMPR (15.13.4)
_CONVERSION = 12


class Adc(PlainRegisters):
    """ADC1 to ADC3 (15): a single conversion ends at once, continuous ones take their time; a debugger sets DR.

    External triggers and scan mode have no effect.
    """

    _SR, _CR1, _CR2, _SMPR2, _DR, _CCR = 0x00, 0x04, 0x08, 0x10, 0x4C, 0x304
    _EOC, _JEOC, _JSTRT, _STRT = 1 << 1, 1 << 2, 1 << 3, 1 << 4
    _EOCIE, _JSWSTART, _SWSTART, _CONT, _DMA = 1 << 5, 1 << 22, 1 << 30, 1 << 1, 1 << 8
    _MIDDLE = 0x7FF  # what is read from a pin that nobody set

    def __init__(self, after_reset: dict[int, int], wiring: Wiring) -> None:
        self._wiring, self._clock = wiring, wiring.clock
        super().__init__(after_reset | dict.fromkeys(range(self._DR, 0x300, 0x100), self._MIDDLE))

    def reset(self) -> None:
        super().reset()
        self._ends: dict[int, int] = {}  # ticks of the next continuous conversion by unit

    def load(self, offset: int) -> int:
        self.expire()
        unit, inside = offset & ~0xFF, offset & 0xFF
        if inside == self._DR and unit < 0x300:
            self.values[unit] = self.values.get(unit, 0) & ~self._EOC
            self._drive()
        return super().load(offset)

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        if offset & 0xFC != self._DR or offset >= 0x300:
            super().write_by_software(offset, size, value)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        unit, inside = offset & ~0xFF, offset & 0xFF
        if inside == self._SR:
            self.values[offset] = self.values.get(offset, 0) & (value | ~lanes)
        else:
            super().store(offset, value, lanes)
        if inside == self._CR2 and unit < 0x300:
            done = (self._STRT | self._EOC) * bool(value & self._SWSTART)
            done |= (self._JSTRT | self._JEOC) * bool(value & self._JSWSTART)
            self.values[offset] &= ~(self._SWSTART | self._JSWSTART)
            self.values[unit] = self.values.get(unit, 0) | done
            if not value & self._CONT or not value & 1:
                self._ends.pop(unit, None)
            elif value & self._SWSTART:
                self._ends[unit] = self._clock.now() + self._ticks(unit)
            self._clock.reschedule()
        self._drive()

    def _ticks(self, unit: int) -> int:
        sampling = _CYCLES[self.values.get(unit + self._SMPR2, 0) & 7]
        divider = 2 * (self.values.get(self._CCR, 0) >> 16 & 3) + 2
        return (sampling + _CONVERSION) * divider * rates_on(self._wiring.bus).apb2

    def next_event(self) -> int | None:
        return min(self._ends.values(), default=None)

    def expire(self) -> None:
        due = [unit for unit, end in self._ends.items() if end <= self._clock.now()]
        for unit in due:
            self._ends[unit] = self._clock.now() + self._ticks(unit)
            self.values[unit] = self.values.get(unit, 0) | self._EOC
        if due:
            self._drive()

    def _drive(self) -> None:
        ended = [unit for unit in _UNITS if self.values.get(unit, 0) & self._EOC]
        self._wiring.set_line(any(self.values.get(unit + self._CR1, 0) & self._EOCIE for unit in ended))
        for unit in _UNITS:
            wanted = unit in ended and self.values.get(unit + self._CR2, 0) & self._DMA
            self._wiring.signals.set(f"ADC{1 + unit // 0x100}", bool(wanted))


class Dac(PlainRegisters):
    """The DAC (16): a channel takes its data at once, or at a trigger, which may request DMA; without waves."""

    _CR, _SWTRIGR, _DHR, _DUAL, _DOR = 0x00, 0x04, 0x08, 0x20, 0x2C
    _TRIGGERS = ("TIM6", "TIM8", "TIM7", "TIM5", "TIM2", "TIM4")  # by TSEL (table 103)
    _SOFTWARE = 7

    def __init__(self, after_reset: dict[int, int], signals: Signals) -> None:
        self._signals = signals
        super().__init__(after_reset, {self._DOR, self._DOR + 4})
        for number, timer in enumerate(self._TRIGGERS):
            signals.listen(f"{timer}_TRGO", functools.partial(self._trigger, number))

    def reset(self) -> None:
        super().reset()
        self._held = [0, 0]

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        if self._DHR <= offset < self._DUAL:
            channel, form = divmod((offset - self._DHR) // 4, 3)
            self._held[channel] = (value, value >> 4, value << 4)[form] & 0xFFF
        elif self._DUAL <= offset < self._DOR:
            form = (offset - self._DUAL) // 4
            halves = (value & 0xFF, value >> 8) if form == 2 else (value & 0xFFFF, value >> 16)
            self._held = [(half, half >> 4, half << 4)[form] & 0xFFF for half in halves]
        elif offset == self._SWTRIGR:
            self._trigger(self._SOFTWARE, None, value)
        for channel in (0, 1):
            if not self.values.get(self._CR, 0) >> 16 * channel & 4:
                self.values[self._DOR + 4 * channel] = self._held[channel]

    def _trigger(self, source: int, _level: bool | None, channels: int = 3) -> None:
        for channel in (0, 1):
            control = self.values.get(self._CR, 0) >> 16 * channel
            if channels >> channel & 1 and control & 5 == 5 and control >> 3 & 7 == source:
                self.values[self._DOR + 4 * channel] = self._held[channel]
                if control & 1 << 12:
                    self._signals.set(f"DAC{channel + 1}", None)
