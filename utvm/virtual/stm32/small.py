# SPDX-License-Identifier: Apache-2.0
"""Small peripherals of the STM32 that firmware waits for: CRC, LPTIM and the calendar.

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


def _decimal(bcd: int) -> int:
    return bcd - 6 * (bcd >> 4)


class Rtc(PlainRegisters):
    """The calendar (29): initialization mode is there at once; the time of day runs on.

    The date does not change. PC13 is the first tamper input and the time stamp input. Alarms do not compare the
    date or fields above a masked one, and do not pass EXTI.
    """

    loop = 20_000  # A program that waits for an alarm prints the time meanwhile.
    _TR, _CR, _ISR, _PRER, _WUTR, _ALARM = 0x00, 0x08, 0x0C, 0x10, 0x14, 0x1C
    _READY, _INIT = 0x27, 1 << 7  # the flags that say that a register may be written, and RSF
    _EVENTS = _ALARM_A, _ALARM_B, _WAKE_UP = 1 << 8, 1 << 9, 1 << 10  # enables in CR, flags in ISR
    _TSTR, _TAMPCR = 0x30, 0x40
    _STAMPED, _TAMPERED = 1 << 11, 1 << 13  # flags in ISR; in CR, the first one is the enable bit

    def __init__(self, after_reset: Mapping[int, int], wiring: Wiring) -> None:
        self._wiring, self._clock = wiring, wiring.clock
        super().__init__(after_reset)
        wiring.signals.listen("PC13", self._take_edge)

    def _take_edge(self, level: bool | None) -> None:
        """Handle an edge of PC13: time stamp and tamper (29.3.12 and 29.3.13)."""
        control, tamper, status = self.values.get(self._CR, 0), self.values.get(self._TAMPCR, 0), 0
        if control & self._STAMPED and level is not bool(control & 1 << 3):
            status = self._STAMPED
            self.values[self._TSTR], self.values[self._TSTR + 4] = self.load(self._TR), self.load(4)
        if tamper & 1 and level is not bool(tamper & 1 << 1):
            status |= self._TAMPERED
            self.values.update(dict.fromkeys(range(0x50, 0xD0, 4), 0))  # the backup registers
        self.values[self._ISR] = self.values.get(self._ISR, 0) | status
        self._drive_lines()

    def reset(self) -> None:
        super().reset()
        self._begun = 0
        self._due: dict[int, int] = {}  # ticks of events by flag

    def _second(self) -> int:
        prescalers = self.values.get(self._PRER, 0)
        steps = ((prescalers >> 16 & 127) + 1) * ((prescalers & 0x7FFF) + 1)
        return self._ticks(steps)

    def _ticks(self, steps: int) -> int:
        """Ticks of the core's clock, of steps of RTCCLK."""
        rates = rates_on(self._wiring.bus)
        return max(1, steps * rates.core // rates.calendar)

    def load(self, offset: int) -> int:
        self.expire()
        value = super().load(offset)
        if offset == self._ISR:
            return value & ~0x40 | (value & self._INIT) >> 1 | self._READY
        return self._bcd(self._seconds()) if offset == self._TR else value

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset == self._ISR:
            clear = sum(self._EVENTS) | self._STAMPED | self._TAMPERED  # zeros clear
            value = value & ~clear | self.values.get(offset, 0) & value & clear
        super().store(offset, value, lanes)
        if offset == self._TR:
            self._begun = self._clock.now()
        if offset < 0x24 and offset != self._ISR:
            self._due = {flag: tick for flag in self._EVENTS if (tick := self._goal(flag)) is not None}
        self._drive_lines()
        self._clock.reschedule()

    def next_event(self) -> int | None:
        return min(self._due.values(), default=None)

    def expire(self) -> None:
        due = [flag for flag, tick in self._due.items() if tick <= self._clock.now()]
        for flag in due:
            self.values[self._ISR] = self.values.get(self._ISR, 0) | flag
            self._due[flag] = self._goal(flag) or self._clock.now()
        if due:
            self._drive_lines()

    def _goal(self, flag: int) -> int | None:
        """Tick of the next event of an alarm or the wake-up timer."""
        control, second = self.values.get(self._CR, 0), self._second()
        if not control & flag:
            return None
        if flag == self._WAKE_UP:
            step = second if control & 4 else self._ticks(16 >> (control & 3))
            return self._clock.now() + ((self.values.get(self._WUTR, 0) & 0xFFFF) + 1) * step
        alarm = self.values.get(self._ALARM + 4 * (flag == self._ALARM_B), 0)
        phase, period = 0, 1
        for unit, span, shift in ((1, 60, 0), (60, 60, 8), (3600, 24, 16)):
            if alarm >> shift & 0x80:
                break
            phase, period = phase + unit * _decimal(alarm >> shift & 0x7F), unit * span
        wait = 1 + (phase - self._seconds() - 1) % period
        return self._begun + ((self._clock.now() - self._begun) // second + wait) * second

    def _seconds(self) -> int:
        start = self.values.get(self._TR, 0)
        seconds = sum(_decimal(start >> shift & 0x7F) * unit for unit, shift in ((1, 0), (60, 8), (3600, 16)))
        return seconds + (self._clock.now() - self._begun) // self._second()

    def _bcd(self, seconds: int) -> int:
        fields = (seconds // 3600 % 24, seconds // 60 % 60, seconds % 60)
        return int("".join(f"{field:02d}" for field in fields), 16)

    def _drive_lines(self) -> None:
        status, control = self.values.get(self._ISR, 0), self.values.get(self._CR, 0)
        active = status & control >> 4
        *first, wake_up, alarm = self._wiring.lines
        tamper = status & self._TAMPERED and self.values.get(self._TAMPCR, 0) & 0x10004
        seal = bool(tamper or active & self._STAMPED)
        for set_line in first:
            set_line(seal)
        self._wiring.signals.set("RTC_TAMP", seal)
        alarm(bool(active & (self._ALARM_A | self._ALARM_B)))
        wake_up(bool(active & self._WAKE_UP))
