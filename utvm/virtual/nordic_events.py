# SPDX-License-Identifier: Apache-2.0
"""Peripherals of Nordic's nRF52 and nRF53 with tasks and events: TIMER, RTC, PPI, GPIOTE, and the pins.

Sections are those of the nRF52840 Product Specification 1.7. An event takes no time to reach a task: by PPI (the
nRF52), or by PUBLISH and SUBSCRIBE (the nRF53, nRF5340 Product Specification 1.3, DPPI).
"""

import functools
from collections.abc import Collection

from utvm.virtual.bus import PlainRegisters
from utvm.virtual.signals import Signals
from utvm.virtual.wiring import Wiring

_FIRST_EVENT = 0x100
EVENTS = range(_FIRST_EVENT, 0x180, 4)
_PLUG = 0x80  # from a task to its SUBSCRIBE, and from an event to its PUBLISH
_ENABLED = 1 << 31  # in SUBSCRIBE and PUBLISH
_SHORTS, _SET, _CLEAR, _ROUTE_SET, _ROUTE_CLEAR = 0x200, 0x304, 0x308, 0x344, 0x348
_COMPARE_EVENTS, _COMPARES = 0x140, 0x540
_CORE_HZ = 64_000_000
_ACTIONS = "LOW", "TOGGLE", "HIGH"


class Events(PlainRegisters):
    """A peripheral with tasks below 0x100 and events above (6.1.6). The bit of an event is its index."""

    def __init__(self, wiring: Wiring, address: int) -> None:
        self._clock, self._set_line = wiring.clock, wiring.set_line
        self._signals, self._address, self._subscribed = wiring.signals, address, set[tuple[int, int]]()
        super().__init__(size=0x1000)

    def start_task(self, offset: int) -> None:
        """Do a task."""

    def expire(self) -> None:
        """Handle all events up to the current tick."""

    def raise_event(self, offset: int) -> None:
        self.values[offset] = 1
        self._signals.set(f"@{self._address + offset:x}", None)
        if (plug := self.values.get(offset + _PLUG, 0)) & _ENABLED:
            self._signals.set(f"DPPI{plug & 0xFF}", None)
        self._drive_line()

    def _is_heard(self, offset: int) -> bool:
        """True if an event starts a task."""
        plug = self.values.get(offset + _PLUG, 0)
        return bool(plug & _ENABLED) or f"@{self._address + offset:x}" in self._signals.listeners

    def _take(self, offset: int, plug: int, level: bool | None) -> None:
        if self.values.get(offset) == plug:
            Events.store(self, offset - _PLUG, 1, 1)

    def load(self, offset: int) -> int:
        self.expire()
        return super().load({_CLEAR: _SET, _ROUTE_CLEAR: _ROUTE_SET}.get(offset, offset))

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset in (_SET, _ROUTE_SET):
            self.values[offset] = self.values.get(offset, 0) | value
        elif offset in (_CLEAR, _ROUTE_CLEAR):
            self.values[offset - 4] = self.values.get(offset - 4, 0) & ~value
        elif offset >= _PLUG:
            super().store(offset, value, lanes)
            if offset < _FIRST_EVENT and value & _ENABLED and (offset, value) not in self._subscribed:
                self._subscribed.add((offset, value))
                self._signals.listen(f"TASK{value & 0xFF}", functools.partial(self._take, offset, value))
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

    def _goals(self, now: int) -> list[int]:
        """Steps of the next events that interrupt."""
        enabled, span = self.values.get(_SET, 0), self._span()
        channels = (
            channel
            for channel in range(self.channels)
            if enabled >> 16 + channel & 1 or self._is_heard(_COMPARE_EVENTS + 4 * channel)
        )
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
        clears = [self._compare(channel) + ((now - self._compare(channel)) // span + 1) * span for channel in shortcuts]
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


class PinEvents(Events):
    """GPIOTE (6.10): pins as events and tasks, and PORT, an event of a pin that has the level of its SENSE."""

    _CONFIG, _PORT = 0x510, 0x17C

    def __init__(self, wiring: Wiring, address: int) -> None:
        super().__init__(wiring, address)
        for name in (f"P{pin // 32}.{pin % 32}" for pin in range(48)):
            wiring.signals.listen(name, functools.partial(self._take_edge, name))
        wiring.signals.listen("P_SENSE", lambda level: self.raise_event(self._PORT))

    def _channels(self, mode: int) -> list[tuple[int, int, str]]:
        """Offset, configuration and pin of the channels with a mode: 1 is an event, 3 a task."""
        words = ((4 * number, self.values.get(self._CONFIG + 4 * number, 0)) for number in range(8))
        return [(at, word, f"P{word >> 13 & 1}.{word >> 8 & 31}") for at, word in words if word & 3 == mode]

    def _take_edge(self, name: str, level: bool | None) -> None:
        for at, config, pin in self._channels(1):
            if pin == name and config >> 16 & (1 if level else 2):
                self.raise_event(_FIRST_EVENT + at)

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        for pin in (pin for at, _, pin in self._channels(3) if offset == self._CONFIG + at):
            self._signals.set(f"{pin}_{_ACTIONS[-(value >> 20 & 1)]}", None)

    def start_task(self, offset: int) -> None:
        for at, config, pin in self._channels(3):  # OUT by polarity, SET, CLR
            action = {at: _ACTIONS[(config >> 16) % 4 - 2], at + 0x30: "HIGH", at + 0x60: "LOW"}.get(offset)
            if action and (offset != at or config >> 16 & 3):
                self._signals.set(f"{pin}_{action}", None)


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
            for pin in range(32):
                for action in _ACTIONS:
                    take = functools.partial(self._take_over, port, 1 << pin, action)
                    signals.listen(f"{name}{pin}_{action}", take)
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

    def _take_over(self, port: int, bit: int, action: str, level: bool | None) -> None:
        """Drive a pin as GPIOTE does."""
        self.values[port + self._DIR] = self.values.get(port + self._DIR, 0) | bit
        old = self.values.get(port, 0)
        self.values[port] = {"LOW": old & ~bit, "HIGH": old | bit, "TOGGLE": old ^ bit}[action]
        self._show(port)

    def _drive(self, port: int, number: int, level: bool | None) -> None:
        bit = 1 << number
        self._driven[port] = self._driven[port] & ~bit | bit * (level is not None)
        self._levels[port] = self._levels[port] & ~bit | bit * bool(level)
        self._show(port)

    def _show(self, port: int) -> None:
        before, self._shown[port] = self._shown[port], self._inputs(port)
        self._signals.set_port(self._ports[port], before, self._shown[port])
        now, first = self._shown[port], port + self._CONFIGURATIONS
        changed = (pin for pin in range(32) if (before ^ now) >> pin & 1)
        if any(self.values.get(first + 4 * pin, 0) >> 16 & 3 == (2 if now >> pin & 1 else 3) for pin in changed):
            self._signals.set("P_SENSE", None)

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
