# SPDX-License-Identifier: Apache-2.0
"""Small peripherals of the STM32 that firmware waits for: RNG, CRC, ADC, LPTIM and an idle USB OTG.

Sections are those of RM0385 (STM32F7), where not noted. What is done at once on the model takes time on the chip.
"""

import random
from collections.abc import Callable, Mapping

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.stm32.clocks import rates_on
from utvm.virtual.wiring import Wiring

Line = Callable[[bool], None]
_REFLECTED = tuple(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class Rng(PlainRegisters):
    """The random number generator (20): data is ready at once. Seeded: every run has the same numbers."""

    _CR, _SR, _DR = 0x0, 0x4, 0x8
    _RNGEN, _IE, _DRDY = 1 << 2, 1 << 3, 1 << 0

    def __init__(self, after_reset: Mapping[int, int], set_line: Line) -> None:
        self._noise = random.Random(0)
        self._set_line = set_line
        super().__init__(after_reset, read_only={self._DR})

    def load(self, offset: int) -> int:
        on = bool(self.values.get(self._CR, 0) & self._RNGEN)
        if offset == self._SR:
            return super().load(offset) & ~self._DRDY | on
        return self._noise.getrandbits(32) * on if offset == self._DR else super().load(offset)

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        enabled = self._RNGEN | self._IE
        self._set_line(self.values.get(self._CR, 0) & enabled == enabled)


class Crc(PlainRegisters):
    """The CRC unit (13), also of the older chips, whose polynomial is fixed (RM0090, 4)."""

    _DR, _CR, _INIT, _POL = 0x00, 0x08, 0x10, 0x14
    _RESET, _REV_OUT = 1 << 0, 1 << 7

    def __init__(self, after_reset: Mapping[int, int]) -> None:
        super().__init__({**after_reset, self._DR: 0xFFFFFFFF, self._INIT: 0xFFFFFFFF, self._POL: 0x04C11DB7})

    def load(self, offset: int) -> int:
        value = super().load(offset)
        if offset == self._DR and self.values.get(self._CR, 0) & self._REV_OUT:
            return int(f"{value:0{self._bits}b}"[::-1], 2)
        return value

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == self._DR:
            self._take(value >> (lanes & -lanes).bit_length() - 1, lanes.bit_count() // 8)
            return
        super().store(offset, value, lanes)
        if offset == self._INIT or (offset == self._CR and value & self._RESET):  # 13.3.3
            self.values[self._CR] = self.values.get(self._CR, 0) & ~self._RESET
            self.values[self._DR] = self.values[self._INIT] & (1 << self._bits) - 1

    @property
    def _bits(self) -> int:
        return (32, 16, 8, 7)[self.values.get(self._CR, 0) >> 3 & 3]

    def _take(self, value: int, size: int) -> None:
        """Add a word, halfword or byte; REV_IN reverses the bits of every byte, halfword or word."""
        reverse = self.values.get(self._CR, 0) >> 5 & 3
        data = value.to_bytes(size, "big")
        unit = min(size, (0, 1, 2, 4)[reverse])
        if unit:
            parts = (data[start : start + unit][::-1] for start in range(0, size, unit))
            data = bytes(_REFLECTED[byte] for part in parts for byte in part)
        bits, crc = self._bits, self.values[self._DR]
        for bit in (byte >> shift & 1 for byte in data for shift in range(7, -1, -1)):
            carry = crc >> bits - 1 & 1 ^ bit
            crc = (crc << 1 ^ self.values[self._POL] * carry) & (1 << bits) - 1
        self.values[self._DR] = crc


class Adc(PlainRegisters):
    """ADC1 to ADC3 of STM32F4 and F7 (15) without triggers. A single conversion ends at once; debuggers set DR."""

    _UNITS, _CONVERSION = range(0, 0x300, 0x100), 12
    _CYCLES = (3, 15, 28, 56, 84, 112, 144, 480)  # Cycles of sampling, by SMPR (15.13.4).
    _SR, _CR1, _CR2, _SMPR2, _DR, _CCR = 0x00, 0x04, 0x08, 0x10, 0x4C, 0x304
    _EOC, _JEOC, _JSTRT, _STRT = 1 << 1, 1 << 2, 1 << 3, 1 << 4
    _EOCIE, _JSWSTART, _SWSTART, _CONT, _DMA = 1 << 5, 1 << 22, 1 << 30, 1 << 1, 1 << 8
    _MIDDLE = 0x7FF  # Value of an input that no debugger has set.

    def __init__(self, after_reset: dict[int, int], wiring: Wiring) -> None:
        self._wiring, self._clock = wiring, wiring.clock
        super().__init__(after_reset | dict.fromkeys(range(self._DR, 0x300, 0x100), self._MIDDLE))

    def reset(self) -> None:
        super().reset()
        self._ends: dict[int, int] = {}  # Tick at which a continuous conversion ends, by unit.

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
        sampling = self._CYCLES[self.values.get(unit + self._SMPR2, 0) & 7]
        divider = 2 * (self.values.get(self._CCR, 0) >> 16 & 3) + 2
        return (sampling + self._CONVERSION) * divider * rates_on(self._wiring.bus).apb2

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
        ended = [unit for unit in self._UNITS if self.values.get(unit, 0) & self._EOC]
        self._wiring.set_line(any(self.values.get(unit + self._CR1, 0) & self._EOCIE for unit in ended))
        for unit in self._UNITS:
            request = unit in ended and self.values.get(unit + self._CR2, 0) & self._DMA
            self._wiring.signals.set(f"ADC{1 + unit // 0x100}", bool(request))


class Otg(PlainRegisters):
    """The core registers of USB OTG (34): the bus is idle, resets and flushes end at once, nobody is connected."""

    _GRSTCTL, _AHBIDL = 0x10, 1 << 31

    def load(self, offset: int) -> int:
        value = super().load(offset)
        return value & ~0x31 | self._AHBIDL if offset == self._GRSTCTL else value


class Lptim(PlainRegisters):
    """A low-power timer (25): a 16-bit counter of the 32,768 Hz crystal; registers are taken over at once."""

    _ISR, _ICR, _IER, _CFGR, _CR, _CMP, _ARR, _CNT = range(0x00, 0x20, 4)
    _CMPM, _ARRM, _CMPOK, _ARROK = 1 << 0, 1 << 1, 1 << 3, 1 << 4
    _ENABLE, _START, _TRIGEN = 1 << 0, 3 << 1, 3 << 17

    def __init__(self, after_reset: Mapping[int, int], wiring: Wiring) -> None:
        self._bus, self._clock, self._set_line = wiring.bus, wiring.clock, wiring.set_line
        super().__init__({**after_reset, self._ARR: 1})
        wiring.signals.listen(f"{wiring.name}_ETR", self._take_edge)

    def reset(self) -> None:
        super().reset()
        self._started: int | None = None
        self._seen = 0  # Steps up to which matches have been flagged.

    def _take_edge(self, level: bool | None) -> None:
        """Restart at a rising edge if CFGR selects a trigger. All triggers are taken from ETR."""
        if level and self._waits and self.values.get(self._CR, 0) & self._ENABLE:
            self._started, self._seen = self._clock.now(), 0
            self._clock.reschedule()

    @property
    def _waits(self) -> bool:
        return bool(self.values.get(self._CFGR, 0) & self._TRIGEN)

    def _step(self) -> int:
        return max(1, rates_on(self._bus)[0] // 32768) << (self.values.get(self._CFGR, 0) >> 9 & 7)

    def _steps(self) -> int:
        return 0 if self._started is None else (self._clock.now() - self._started) // self._step()

    def _period(self) -> int:
        return (self.values.get(self._ARR, 0) & 0xFFFF) + 1

    def _matches(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self._CMPM, self.values.get(self._CMP, 0) & 0xFFFF), (self._ARRM, self._period() - 1)

    def expire(self) -> None:
        if self._started is None:
            return
        now, period = self._steps(), self._period()
        for flag, value in self._matches():
            if (now - value) // period > (self._seen - value) // period:
                self.values[self._ISR] = self.values.get(self._ISR, 0) | flag
        self._seen = now
        self._drive_line()

    def next_event(self) -> int | None:
        enabled = self.values.get(self._IER, 0) & ~self.values.get(self._ISR, 0)
        if self._started is None:
            return None
        period = self._period()
        steps = [
            value + ((self._seen - value) // period + 1) * period
            for flag, value in self._matches()
            if flag & enabled
        ]
        return self._started + min(steps) * self._step() if steps else None

    def load(self, offset: int) -> int:
        self.expire()
        return self._steps() % self._period() if offset == self._CNT else super().load(offset)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == self._ICR:
            self.values[self._ISR] = self.values.get(self._ISR, 0) & ~value
        elif offset not in (self._ISR, self._CNT):
            super().store(offset, value, lanes)
        if offset in (self._CMP, self._ARR):
            done = self._CMPOK if offset == self._CMP else self._ARROK
            self.values[self._ISR] = self.values.get(self._ISR, 0) | done
        elif offset == self._CR:
            if not value & self._ENABLE:
                self._started = None
            elif value & self._START and self._started is None and not self._waits:
                self._started, self._seen = self._clock.now(), 0
        self._drive_line()
        self._clock.reschedule()

    def _drive_line(self) -> None:
        self._set_line(bool(self.values.get(self._ISR, 0) & self.values.get(self._IER, 0)))
