# SPDX-License-Identifier: Apache-2.0
"""Signals of a virtual board by name: pins, timer channels, triggers, DMA requests."""

from collections import deque
from collections.abc import Callable

from utvm.virtual.bus import Device

WINDOW = 0xF1000000
"""Address of the signals for a debugger; no chip uses it."""
NAME_BYTES, STATE, COUNT, REPLY, SENT, EDGES, EDGE_BYTES, WIRE = 16, 0x10, 0x14, 0x18, 0x1C, 0x20, 16, 0x1000
MOST_EDGES = (0x1000 - EDGES) // EDGE_BYTES
UNKNOWN, ABSENT = 2, 3  # STATE: no level yet, or no such signal; writing UNKNOWN releases an input.


class Signals(Device):
    """Levels by name, listeners, and the last edges.

    ``clock`` returns the ticks so far; ``on_watch`` is called when recording of a signal begins. A listener
    gets a level, or None for a pulse.

    A debugger sees registers: a name selects a signal, STATE is its level, COUNT the number of its edges (a write
    clears them), followed by its last edges, each a tick and the new level (8 bytes each). A byte written to REPLY
    is one of the device behind a master; SENT counts those it got, at WIRE (a write forgets them).

    Attributes:
        wires: bytes that scripted devices will send and have got, by name.
        ports: functions that read a port and drive one of its pins, by prefix of the pin names.
    """

    size = 0x2000

    def __init__(self, clock: Callable[[], int] = lambda: 0, on_watch: Callable[[], None] = lambda: None) -> None:
        self._clock, self._on_watch = clock, on_watch
        self._levels: dict[str, bool] = {}
        self.listeners: dict[str, list[Callable[[bool | None], None]]] = {}
        self._totals: dict[str, int] = {}
        self._letters = bytearray(NAME_BYTES)
        self.edges: dict[str, deque[tuple[int, bool]]] = {}
        self.wires: dict[str, tuple[deque[int], bytearray]] = {}
        self.ports: dict[str, tuple[Callable[[], int], Callable[[int, bool | None], None]]] = {}

    def listen(self, name: str, listener: Callable[[bool | None], None]) -> None:
        self.listeners.setdefault(name, []).append(listener)

    def send(self, wire: str, value: int) -> None:
        """Send a byte to a scripted device, if there is one."""
        if wire in self.wires:
            self.wires[wire][1].append(value & 0xFF)

    def receive(self, wire: str) -> int:
        """The next byte of a scripted device, ones without any."""
        return self.wires[wire][0].popleft() if wire in self.wires and self.wires[wire][0] else 0xFF

    def watch(self, name: str) -> None:
        """Record the edges of a signal from now on."""
        if name not in self.edges:
            self.edges[name] = deque(maxlen=MOST_EDGES)
            self._on_watch()

    def set(self, name: str, level: bool | None) -> None:
        """Set a level, or signal a pulse with None."""
        if level is not None:
            if self._levels.get(name) is level:
                return
            self._levels[name] = level
            if name in self.edges:
                self.edges[name].append((self._clock(), level))
                self._totals[name] = self._totals.get(name, 0) + 1
        for listener in self.listeners.get(name, ()):
            listener(level)

    def set_port(self, prefix: str, before: int, after: int) -> None:
        """Set the levels of a port's pins that have changed."""
        for number in range((before ^ after).bit_length()):
            if (before ^ after) >> number & 1:
                self.watch(f"{prefix}{number}")
                self.set(f"{prefix}{number}", bool(after >> number & 1))

    def level(self, name: str) -> int:
        """Return 0, 1, UNKNOWN or ABSENT."""
        prefix = name.rstrip("0123456789")
        if prefix in self.ports and prefix != name:
            return self.ports[prefix][0]() >> int(name[len(prefix) :]) & 1
        return int(self._levels.get(name, UNKNOWN if name.partition(".")[0] in self.listeners else ABSENT))

    def drive(self, name: str, level: bool | None) -> None:
        """Drive an input from outside; None releases it."""
        prefix = name.rstrip("0123456789")
        if prefix in self.ports and prefix != name:
            self.ports[prefix][1](int(name[len(prefix) :]), level)
        elif level is not None:
            self.set(name, level)

    def load(self, offset: int) -> int:
        name = self._letters.rstrip(b"\0").decode("ascii", "replace")
        if offset in (STATE, COUNT):
            return self.level(name) if offset == STATE else self._totals.get(name, 0)
        if offset == SENT or offset >= WIRE:
            sent = self.wires[name][1] if name in self.wires else b""
            return len(sent) if offset == SENT else int.from_bytes(sent[offset - WIRE :][:4], "little")
        index, part = divmod(offset - EDGES, EDGE_BYTES)
        edges = self.edges.get(name, ())
        tick, level = edges[index] if 0 <= index < len(edges) else (0, False)
        return (tick & 0xFFFFFFFF, tick >> 32, int(level), 0)[part // 4]

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset < NAME_BYTES:
            self._letters[offset : offset + 4] = value.to_bytes(4, "little")
        name = self._letters.rstrip(b"\0").decode("ascii", "replace")
        if offset in (REPLY, SENT):
            replies, sent = self.wires.setdefault(name, (deque(), bytearray()))
            replies.extend([value & 0xFF] * (offset == REPLY))
            del sent[: len(sent) * (offset == SENT)]
            return
        self.watch(name)
        if offset == STATE:
            self.drive(name, None if value == UNKNOWN else bool(value & 1))
        elif offset == COUNT:
            self.edges[name].clear()
            self._totals[name] = 0
