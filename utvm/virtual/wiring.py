# SPDX-License-Identifier: Apache-2.0
"""The connections of a peripheral on its board: bus, clock, interrupt lines, console.

:class:`ExternalModel` is a device beside an emulator that lacks it on its bus.
"""

import pkgutil
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, cast, runtime_checkable

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, Device, MemoryBank, ResetCause
from utvm.virtual.signals import Signals
from utvm.virtual.spec import Peripheral


class Clock(Protocol):
    """Virtual time in ticks of the core clock. An instruction is one tick; sleep skips to the next event."""

    def now(self) -> int:
        """Ticks since the model was created. Never decreases."""

    def reschedule(self) -> None:
        """Recompute the next event: a timer has moved it."""


@runtime_checkable
class Timer(Protocol):
    """A device with an event at a known tick."""

    def next_event(self) -> int | None:
        """Tick of the next event, or None."""

    def expire(self) -> None:
        """Handle all events up to the current tick."""


class SerialDevice(Device):
    """A UART. Characters take time on the line, in both directions; ``send`` gets each byte when its time begins."""

    def __init__(self, clock: Clock, send: Callable[[bytes], None], set_line: Callable[[bool], None]) -> None:
        self._clock = clock
        self._send = send
        self._set_line = set_line
        self._incoming: deque[int] = deque()
        self.reset()

    def reset(self) -> None:
        self._sent_at: int | None = None  # end of the character that is being sent
        self._arrives_at: int | None = None  # end of the character that is being received
        self._incoming.clear()

    def _character_ticks(self) -> int:
        raise NotImplementedError

    def _is_receiving(self) -> bool:
        raise NotImplementedError

    def _finish_sending(self, now: int) -> None:
        raise NotImplementedError

    def _handle_byte(self, byte: int, now: int) -> None:
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        """Put bytes on the line to the board."""
        self.expire()
        self._incoming.extend(data)
        self._await_byte(self._clock.now())
        self._clock.reschedule()

    def next_event(self) -> int | None:
        sent, arrival = self._sent_at, self._arrives_at
        return sent if arrival is None else arrival if sent is None else min(sent, arrival)

    def expire(self) -> None:
        now = self._clock.now()
        while self._sent_at is not None and self._sent_at <= now:
            end, self._sent_at = self._sent_at, None
            self._finish_sending(end)
        while self._arrives_at is not None and self._arrives_at <= now:
            end, self._arrives_at = self._arrives_at, None
            self._handle_byte(self._incoming.popleft(), end)
            self._await_byte(end)

    def _send_byte(self, data: bytes, start: int) -> None:
        self._sent_at = start + self._character_ticks()
        self._send(data)

    def _await_byte(self, start: int) -> None:
        if self._incoming and self._arrives_at is None and self._is_receiving():
            self._arrives_at = start + self._character_ticks()


@dataclass(frozen=True)
class Wiring:
    """The connections of a peripheral.

    Attributes:
        set_line: drives its interrupt line.
        lines: drive its interrupt lines, if it has several.
        send: receives console output.
        request_reset: resets the chip before the next instruction.
        logic: returns the name of the bitstream in the programmable logic, or an empty string.
        signals: signals of the board, by name.
        name: name of the peripheral; empty if unknown.
    """

    bus: Bus
    clock: Clock
    set_line: Callable[[bool], None]
    lines: tuple[Callable[[bool], None], ...]
    send: Callable[[bytes], None]
    request_reset: Callable[[ResetCause], None] = lambda cause: None
    logic: Callable[[], str] = lambda: "part of the chip"
    signals: Signals = field(default_factory=Signals)
    name: str = ""

    def flash(self, controller: str) -> tuple[MemoryBank, Callable[[int, int], None]]:
        """The flash, and a callback for changes of its contents (start and end address)."""
        flashes = [m for m in self.bus.memories if m.region.kind == "flash" and not m.region.alias_of]
        if len(flashes) != 1 or not flashes[0].region.sectors:
            raise ConfigError(f"{controller} needs exactly one flash region with sectors")
        flash = flashes[0]
        aliases = [m for m in self.bus.memories if m.region.alias_of == flash.region.name]

        def report_change(start: int, end: int) -> None:
            for memory in (flash, *aliases):
                self.bus.on_memory_change(start - flash.start + memory.start, end - flash.start + memory.start)

        return flash, report_change


DeviceFactory = Callable[[Peripheral, Wiring], Device]


def after_reset(peripheral: Peripheral) -> dict[int, int]:
    """Register values from settings such as ``at0x04``, by offset."""
    with ConfigError.on(ValueError, f"{peripheral.model} has settings like at0x04, registers after a reset"):
        return {int(name.removeprefix("at"), 16): value for name, value in peripheral.settings.items()}


def find_model(board: str, model: str, known: Collection[str]) -> DeviceFactory:
    """Find the factory of a peripheral model given as ``MODULE:NAME``."""
    try:
        if ":" in model:
            return cast(DeviceFactory, pkgutil.resolve_name(model))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{board}: no model named {model!r}: {error}", "install the package that contains it"
        ) from error
    hint = f"models: {', '.join(sorted(known))}; or give MODULE:NAME"
    raise ConfigError(f"{board}: no model named {model!r}", hint)


class TargetMemory(Protocol):
    """The memory of a board at the addresses that its core uses."""

    def read_memory(self, address: int, size: int) -> bytes: ...

    def write_memory(self, address: int, data: bytes) -> None: ...


class ExternalModel(Protocol):
    """A device model beside an emulator; it works while the core is stopped at the driver function ``symbol``."""

    symbol: str

    def program(self, bitstream: str) -> None:
        """Load a bitstream by its name into the logic; an empty name clears it."""

    def serve(self, board: TargetMemory) -> None:
        """Do the work that the driver requested; the core is stopped at :attr:`symbol`."""
