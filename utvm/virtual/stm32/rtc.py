# SPDX-License-Identifier: Apache-2.0
"""The calendar of the STM32. Sections are those of RM0385 (STM32F7), where not noted."""

from collections.abc import Mapping

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.stm32.clocks import rates_on
from utvm.virtual.wiring import Wiring


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
