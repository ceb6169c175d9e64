# SPDX-License-Identifier: Apache-2.0
"""Small peripherals of the STM32 that firmware waits for: CRC and LPTIM.

Sections are those of RM0385 (STM32F7), where not noted. What is done at once on the model takes time on the chip.
"""

from collections.abc import Mapping

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.stm32.clocks import rates_on
from utvm.virtual.wiring import Wiring

_REFLECTED = tuple(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


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


class Lptim(PlainRegisters):
    """A low-power timer (25): a 16-bit counter of the 32,768 Hz crystal; registers are taken over at once."""

    _ISR, _ICR, _IER, _CFGR, _CR, _CMP, _ARR, _CNT = range(0x00, 0x20, 4)
    _CMPM, _ARRM, _CMPOK, _ARROK = 1 << 0, 1 << 1, 1 << 3, 1 << 4
    _ENABLE, _START, _TRIGEN, _WAVPOL = 1 << 0, 3 << 1, 3 << 17, 1 << 21

    def __init__(self, after_reset: Mapping[int, int], wiring: Wiring) -> None:
        self._bus, self._clock, self._set_line = wiring.bus, wiring.clock, wiring.set_line
        self._signals, self._out = wiring.signals, f"{wiring.name}_OUT"
        super().__init__({**after_reset, self._ARR: 1})
        wiring.signals.listen(f"{wiring.name}_ETR", self._take_edge)

    def reset(self) -> None:
        super().reset()
        self._started: int | None = None
        self._seen = 0  # Steps up to which matches have been flagged.

    def _take_edge(self, level: bool | None) -> None:
        """Start, or start again, at a rising edge, if CFGR selects a trigger; all triggers are ETR."""
        enabled = self.values.get(self._CR, 0) & self._ENABLE and self.values.get(self._CFGR, 0) & self._TRIGEN
        if level and enabled:
            self._started, self._seen = self._clock.now(), 0
            self._clock.reschedule()

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
        inverted = bool(self.values.get(self._CFGR, 0) & self._WAVPOL)
        for flag, value in self._matches():
            if (now - value) // period > (self._seen - value) // period:
                self.values[self._ISR] = self.values.get(self._ISR, 0) | flag
                self._signals.set(self._out, (flag == self._CMPM) is not inverted)
        self._seen = now
        self._drive_line()

    def next_event(self) -> int | None:
        enabled = self.values.get(self._IER, 0) & ~self.values.get(self._ISR, 0)
        if self._out in self._signals.edges or self._out in self._signals.listeners:
            enabled |= self._CMPM | self._ARRM
        if self._started is None:
            return None
        period = self._period()
        steps = [
            value + ((self._seen - value) // period + 1) * period for flag, value in self._matches() if flag & enabled
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
            triggered = self.values.get(self._CFGR, 0) & self._TRIGEN
            if not value & self._ENABLE:
                self._started = None
            elif value & self._START and self._started is None and not triggered:
                self._started, self._seen = self._clock.now(), 0
        self._drive_line()
        self._clock.reschedule()

    def _drive_line(self) -> None:
        self._set_line(bool(self.values.get(self._ISR, 0) & self.values.get(self._IER, 0)))
