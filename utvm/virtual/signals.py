# SPDX-License-Identifier: Apache-2.0
"""The wires of a virtual board by name: pins, channels of timers, triggers, requests of DMA."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from utvm.virtual.bus import Device

WINDOW = 0xF1000000
"""Address of :class:`SignalWindow`, at which no chip has anything."""
NAME_BYTES, STATE, COUNT, EDGES, EDGE_BYTES = 16, 0x10, 0x14, 0x20, 16
MOST_EDGES = (0x1000 - EDGES) // EDGE_BYTES
UNKNOWN = 2  # in STATE: no level yet; written, it ends the driving of an input

Listener = Callable[[bool | None], None]


class Port(Protocol):
    """Pins that read as a level and can be driven from outside."""

    def pin_level(self, number: int) -> bool: ...

    def drive_pin(self, number: int, level: bool | None) -> None: ...


class Signals:
    """Levels by name, listeners, and the last edges.

    ``clock`` returns the ticks so far; ``on_watch`` is called when edges are to be recorded.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0, on_watch: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_watch = on_watch
        self._levels: dict[str, bool] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self.edges: dict[str, deque[tuple[int, bool]]] = {}
        self.totals: dict[str, int] = {}
        self.ports: dict[str, Port] = {}

    def listen(self, name: str, listener: Listener) -> None:
        """Call ``listener`` at changes of a level, and with None at a pulse."""
        self._listeners.setdefault(name, []).append(listener)

    def watches(self, name: str) -> bool:
        """True if edges of this signal are recorded."""
        return name in self.edges

    def watch(self, name: str) -> None:
        """Record the edges of a signal from now on."""
        if name not in self.edges:
            self.edges[name] = deque(maxlen=MOST_EDGES)
            self._on_watch()

    def set(self, name: str, level: bool | None) -> None:
        """Set a level; None is a pulse."""
        if level is not None:
            if self._levels.get(name) is level:
                return
            self._levels[name] = level
            if name in self.edges:
                self.edges[name].append((self._clock(), level))
                self.totals[name] = self.totals.get(name, 0) + 1
        for listener in self._listeners.get(name, ()):
            listener(level)

    def set_port(self, prefix: str, before: int, after: int) -> None:
        """Set the levels of a port's pins that have changed."""
        for number in range((before ^ after).bit_length()):
            if (before ^ after) >> number & 1:
                self.watch(f"{prefix}{number}")
                self.set(f"{prefix}{number}", bool(after >> number & 1))

    def _pin(self, name: str) -> tuple[Port, int] | None:
        prefix = name.rstrip("0123456789")
        return (self.ports[prefix], int(name[len(prefix) :])) if prefix in self.ports and prefix != name else None

    def level(self, name: str) -> int:
        """0, 1 or UNKNOWN."""
        pin = self._pin(name)
        return int(pin[0].pin_level(pin[1])) if pin else int(self._levels.get(name, UNKNOWN))

    def drive(self, name: str, level: bool | None) -> None:
        """Drive an input from outside, or end that with None."""
        pin = self._pin(name)
        if pin:
            pin[0].drive_pin(pin[1], level)
        elif level is not None:
            self.set(name, level)


class SignalWindow(Device):
    """A signal for the debugger alone: a name selects it, STATE is its level; then its last edges.

    An edge is its tick (8 bytes) and the new level (8 bytes). COUNT is the number of all edges; a
    write forgets them.
    """

    size = 0x1000

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._letters = bytearray(NAME_BYTES)

    @property
    def _name(self) -> str:
        return self._letters.rstrip(b"\0").decode("ascii", "replace")

    def load(self, offset: int) -> int:
        if offset < STATE:
            return int.from_bytes(self._letters[offset : offset + 4], "little")
        if offset in (STATE, COUNT):
            return self._signals.level(self._name) if offset == STATE else self._signals.totals.get(self._name, 0)
        index, part = divmod(offset - EDGES, EDGE_BYTES)
        edges = self._signals.edges.get(self._name, ())
        if not 0 <= index < len(edges):
            return 0
        count, level = edges[index]
        return (count & 0xFFFFFFFF, count >> 32, int(level), 0)[part // 4]

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset < STATE:
            self._letters[offset : offset + 4] = value.to_bytes(4, "little")
            if offset == NAME_BYTES - 4:
                self._signals.watch(self._name)
        elif offset == STATE:
            self._signals.drive(self._name, None if value == UNKNOWN else bool(value & 1))
        elif offset == COUNT:
            self._signals.edges[self._name].clear()
            self._signals.totals[self._name] = 0
