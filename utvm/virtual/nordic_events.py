# SPDX-License-Identifier: Apache-2.0
"""Peripherals of Nordic's nRF52 and nRF53 with tasks and events: TIMER, RTC, RNG, TEMP, CLOCK, and the pins.

Sections are those of the nRF52840 Product Specification 1.7. PPI and the shortcuts between peripherals have no
effect.
"""

import functools
import random
from collections.abc import Callable, Collection

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.signals import Signals
from utvm.virtual.wiring import Clock

_FIRST_EVENT = 0x100
_SHORTS, _SET, _CLEAR, _ROUTE_SET, _ROUTE_CLEAR = 0x200, 0x304, 0x308, 0x344, 0x348
_COMPARE_EVENTS, _COMPARES = 0x140, 0x540
_CORE_HZ = 64_000_000


# Event, status register and its value, by a task of CLOCK.
_STARTS = {0x000: (0x100, 0x40C, 0x10001), 0x008: (0x104, 0x418, 0x10000), 0x010: (0x10C, 0, 0)}


class Events(PlainRegisters):
    """A peripheral with tasks below 0x100 and events above (6.1.6). The bit of an event is its index."""

    def __init__(self, clock: Clock, set_line: Callable[[bool], None]) -> None:
        self._clock = clock
        self._set_line = set_line
        super().__init__(size=0x1000)

    def start_task(self, offset: int) -> None:
        """Do a task."""

    def expire(self) -> None:
        """Handle all events up to the current tick."""

    def raise_event(self, offset: int) -> None:
        self.values[offset] = 1

    def load(self, offset: int) -> int:
        self.expire()
        return super().load({_CLEAR: _SET, _ROUTE_CLEAR: _ROUTE_SET}.get(offset, offset))

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset in (_SET, _ROUTE_SET):
            self.values[offset] = self.values.get(offset, 0) | value
        elif offset in (_CLEAR, _ROUTE_CLEAR):
            self.values[offset - 4] = self.values.get(offset - 4, 0) & ~value
        elif offset >= _FIRST_EVENT:
            super().store(offset, value, lanes)
        elif value & 1:
            self.start_task(offset)
        self._drive_line()
        self._clock.reschedule()

    def _drive_line(self) -> None:
        enabled = self.values.get(_SET, 0)
        bits = (bit for bit in range(enabled.bit_length()) if enabled >> bit & 1)
        self._set_line(any(self.values.get(_FIRST_EVENT + 4 * bit, 0) for bit in bits))


class Counter(Events):
    """What TIMER and RTC share: a counter with compare registers, computed from the clock.

    ``channels`` is the number of compare registers, ``clear`` the offset of its task.
    """

    channels: int
    clear: int

    def reset(self) -> None:
        super().reset()
        self._origin = 0  # steps, not wrapped, when it started
        self._since: int | None = None  # tick of the start, None while stopped
        self._seen = 0  # steps up to which events are raised

    def _step(self) -> tuple[int, int]:
        """Ticks of the core's clock that a number of steps takes: both."""
        raise NotImplementedError

    def _span(self) -> int:
        """Number of values of the counter."""
        raise NotImplementedError

    def _steps(self) -> int:
        if self._since is None:
            return self._origin
        ticks, steps = self._step()
        return self._origin + (self._clock.now() - self._since) * steps // ticks

    def start_task(self, offset: int) -> None:
        if offset == 0x000 and self._since is None:
            self._since, self._seen = self._clock.now(), self._origin
        elif offset == 0x004:
            self._origin, self._since = self._steps(), None
        elif offset == self.clear:
            self._restart()

    def _restart(self) -> None:
        self._origin = self._seen = 0
        self._since = None if self._since is None else self._clock.now()

    def _match(self, channel: int) -> None:
        self.raise_event(_COMPARE_EVENTS + 4 * channel)

    def _compare(self, channel: int) -> int:
        return self.values.get(_COMPARES + 4 * channel, 0) % self._span()

    def expire(self) -> None:
        now = self._steps()
        if self._since is None or now == self._seen:
            return
        span, seen, self._seen = self._span(), self._seen, now
        for channel in range(self.channels):
            value = self._compare(channel)
            if (now - value) // span > (seen - value) // span:
                self._match(channel)
        if now // span > seen // span:
            self.raise_event(0x104)
        self._drive_line()

    def _goals(self, now: int) -> list[int]:
        """Steps of the next events that interrupt."""
        enabled, span = self.values.get(_SET, 0), self._span()
        channels = (channel for channel in range(self.channels) if enabled >> 16 + channel & 1)
        values = (self._compare(channel) for channel in channels)
        return [value + ((now - value) // span + 1) * span for value in values]

    def next_event(self) -> int | None:
        if self._since is None or not (goals := self._goals(self._seen)):
            return None
        ticks, steps = self._step()
        return self._since - (self._origin - min(goals)) * ticks // steps


class TimerCounter(Counter):
    """TIMER (6.30), also with its shortcuts COMPARE to CLEAR and to STOP."""

    channels, clear = 6, 0x00C

    def _step(self) -> tuple[int, int]:
        return (_CORE_HZ // 16_000_000) << min(self.values.get(0x510, 4), 9), 1

    def _span(self) -> int:
        return 1 << (16, 8, 24, 32)[self.values.get(0x508, 0) & 3]

    def start_task(self, offset: int) -> None:
        super().start_task(offset)
        if offset == 0x008:
            self._origin += 1  # COUNT
        elif 0x040 <= offset < 0x040 + 4 * self.channels:
            self.values[_COMPARES + offset - 0x040] = self._steps() % self._span()

    def _match(self, channel: int) -> None:
        super()._match(channel)
        shortcuts = self.values.get(_SHORTS, 0) >> channel
        if shortcuts & 1:
            # The event is at the tick of the match, so what has passed since counts again.
            late = (self._steps() - self._compare(channel)) % self._span()
            self._restart()
            self._origin = self._seen = late
        if shortcuts & 0x100:
            self.start_task(0x004)

    def _goals(self, now: int) -> list[int]:
        shortcuts = [channel for channel in range(self.channels) if self.values.get(_SHORTS, 0) >> channel & 1]
        span = self._span()
        clears = [
            self._compare(channel) + ((now - self._compare(channel)) // span + 1) * span for channel in shortcuts
        ]
        goals = super()._goals(now)
        return goals + clears if goals else []


class RealTimeCounter(Counter):
    """RTC (6.22), 24 bits of the 32,768 Hz clock."""

    channels, clear = 4, 0x008

    def _step(self) -> tuple[int, int]:
        return _CORE_HZ * (self.values.get(0x508, 0) + 1), 32768

    def _span(self) -> int:
        return 1 << 24

    def raise_event(self, offset: int) -> None:
        enabled = self.values.get(_SET, 0) | self.values.get(_ROUTE_SET, 0)
        if enabled >> (offset - _FIRST_EVENT) // 4 & 1:  # no event without EVTEN or INTEN (6.22.5)
            super().raise_event(offset)

    def start_task(self, offset: int) -> None:
        super().start_task(offset)
        if offset == 0x00C:  # TRIGOVRFLW
            self._restart()
            self._origin = self._seen = 0xFFFFF0

    def load(self, offset: int) -> int:
        value = super().load(offset)
        return self._steps() % self._span() if offset == 0x504 else value

    def expire(self) -> None:
        if self._since is not None and self._steps() != self._seen:
            self.raise_event(0x100)  # TICK
        super().expire()

    def _goals(self, now: int) -> list[int]:
        enabled = self.values.get(_SET, 0)
        ticks = [now + 1] if enabled & 1 else []
        overflow = [(now // self._span() + 1) * self._span()] if enabled & 2 else []
        return super()._goals(now) + ticks + overflow


class Noise(Events):
    """RNG (6.19): a value is ready as soon as it is on. Seeded: every run has the same values."""

    def reset(self) -> None:
        super().reset()
        self._noise = random.Random(0)
        self._on = False

    def start_task(self, offset: int) -> None:
        self._on = offset == 0x000
        if self._on:
            self.raise_event(0x100)

    def load(self, offset: int) -> int:
        if offset == 0x508:
            return self._noise.getrandbits(8)
        return 1 if offset == 0x100 and self._on else super().load(offset)


class Thermometer(Events):
    """TEMP (6.29): 25 degrees, or what a debugger wrote to the register, in quarters."""

    def start_task(self, offset: int) -> None:
        if offset == 0x000:
            self.raise_event(0x100)

    def load(self, offset: int) -> int:
        return self.values.get(offset, 100) if offset == 0x508 else super().load(offset)


class Clocks(Events):
    """CLOCK (5.4): both clocks start at once; an instruction stays one tick."""

    def start_task(self, offset: int) -> None:
        event, status, value = _STARTS.get(offset, (0, 0, 0))
        if event:
            self.raise_event(event)
        if status:
            source = self.values.get(0x518, 0) & 3 if offset == 0x008 else 0
            self.values[status] = value | source
            self.values[status - 4] = 1  # xRUN
        elif offset in (0x004, 0x00C):
            self.values[0x40C if offset == 0x004 else 0x418] = 0


class Pins(PlainRegisters):
    """GPIO (6.9): P0 and P1. IN reads outputs; at inputs, the level driven or written to IN, or the pull-up.

    ``ports`` are the offsets of OUT.
    """

    _OUT, _SET, _CLEAR, _IN, _DIR, _DIR_SET, _DIR_CLEAR = range(0x00, 0x1C, 4)
    _CONFIGURATIONS = 0x1FC  # PIN_CNF, from OUT on

    def __init__(self, ports: Collection[int], signals: Signals) -> None:
        self._ports = {start: f"P{number}." for number, start in enumerate(ports)}
        self._levels, self._driven, self._shown = (dict.fromkeys(ports, 0) for _ in range(3))
        self._signals = signals
        for port, name in self._ports.items():
            signals.ports[name] = functools.partial(self._inputs, port), functools.partial(self._drive, port)
        cells = (port + self._CONFIGURATIONS + 4 * pin for port in ports for pin in range(32))
        super().__init__(dict.fromkeys(cells, 2), size=0x1000)  # the input is disconnected (6.9.2)

    def reset(self) -> None:
        super().reset()
        for port in self._ports:
            self._show(port)

    def _place(self, offset: int) -> tuple[int, int]:
        port = max((port for port in self._ports if port <= offset), default=min(self._ports))
        return port, offset - port

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        if self._place(offset & ~3)[1] != self._IN:
            super().write_by_software(offset, size, value)

    def _inputs(self, port: int) -> int:
        outputs, first = self.values.get(port + self._DIR, 0), port + self._CONFIGURATIONS
        raised = sum((self.values.get(first + 4 * pin, 0) >> 2 & 3 == 3) << pin for pin in range(32))
        inputs = self._levels[port] & self._driven[port] | raised & ~self._driven[port]
        return self.values.get(port, 0) & outputs | inputs & ~outputs

    def _drive(self, port: int, number: int, level: bool | None) -> None:
        bit = 1 << number
        self._driven[port] = self._driven[port] & ~bit | bit * (level is not None)
        self._levels[port] = self._levels[port] & ~bit | bit * bool(level)
        self._show(port)

    def _show(self, port: int) -> None:
        before, self._shown[port] = self._shown[port], self._inputs(port)
        self._signals.set_port(self._ports[port], before, self._shown[port])

    def load(self, offset: int) -> int:
        port, inside = self._place(offset)
        if inside == self._IN:
            return self._inputs(port)
        if inside in (self._SET, self._CLEAR):
            return super().load(port)
        return super().load(port + self._DIR if inside in (self._DIR_SET, self._DIR_CLEAR) else offset)

    def store(self, offset: int, value: int, lanes: int) -> None:
        port, inside = self._place(offset)
        target = port if inside in (self._SET, self._CLEAR) else port + self._DIR
        if inside in (self._SET, self._DIR_SET):
            self.values[target] = self.values.get(target, 0) | value
        elif inside in (self._CLEAR, self._DIR_CLEAR):
            self.values[target] = self.values.get(target, 0) & ~value
        elif inside == self._IN:
            self._levels[port], self._driven[port] = value, 0xFFFFFFFF
        else:
            super().store(offset, value, lanes)
            if inside >= self._CONFIGURATIONS and (inside - self._CONFIGURATIONS) // 4 < 32:
                bit = 1 << (inside - self._CONFIGURATIONS) // 4  # DIR of PIN_CNF is that of DIR (6.9.2)
                old = self.values.get(port + self._DIR, 0)
                self.values[port + self._DIR] = old | bit if value & 1 else old & ~bit
        self._show(port)
