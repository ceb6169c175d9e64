# SPDX-License-Identifier: Apache-2.0
"""Pins of a virtual board for suites, and scripted devices behind its serial masters."""

from typing import NamedTuple

from utvm import errors
from utvm.virtual import signals
from utvm.virtual.wiring import TargetMemory


class Edge(NamedTuple):
    """A change of a pin; ``tick`` is its time in ticks of the core clock, asleep or not."""

    tick: int
    level: bool


class Pin:
    """A pin (``PD12``, ``P0.13``) or a timer's channel (``TIM3_CH1``); its edges are recorded from then on.
    Also the device behind an SPI master (``SPI1``), or at an address of an I2C bus (``I2C1.50``).

    Raises BoardError if the board has no such signal.
    """

    def __init__(self, board: TargetMemory, name: str) -> None:
        self._board, self._name = board, name.encode().ljust(signals.NAME_BYTES, b"\0")
        if len(self._name) > signals.NAME_BYTES or self._read(signals.STATE) == signals.ABSENT:
            raise errors.BoardError(f"there is no pin {name!r}", "pins are PD12, P0.13, TIM3_CH1 and so on")

    def _read(self, offset: int, size: int = 4) -> int:
        self._board.write_memory(signals.WINDOW, self._name)
        return int.from_bytes(self._board.read_memory(signals.WINDOW + offset, size), "little")

    def _write(self, offset: int, value: int) -> None:
        self._board.write_memory(signals.WINDOW, self._name)
        self._board.write_memory(signals.WINDOW + offset, value.to_bytes(4, "little"))

    @property
    def level(self) -> bool | None:
        """Present level; None if the signal has none yet."""
        return {0: False, 1: True}.get(self._read(signals.STATE))

    def drive(self, level: bool | None) -> None:
        """Drive an input from outside; None releases it."""
        self._write(signals.STATE, signals.UNKNOWN if level is None else int(level))

    def edges(self) -> list[Edge]:
        """Return the last edges, at most 254, oldest first."""
        count, bits = min(self._read(signals.COUNT), signals.MOST_EDGES), 8 * signals.EDGE_BYTES
        data = self._read(signals.EDGES, count * signals.EDGE_BYTES) if count else 0
        rows = (data >> at for at in range(0, count * bits, bits))
        return [Edge(row & (1 << 64) - 1, bool(row >> 64 & 1)) for row in rows]

    def clear(self) -> None:
        """Discard the recorded edges."""
        self._write(signals.COUNT, 0)

    def reply(self, data: bytes) -> None:
        """Add bytes that the device behind a master will send; without any, it sends ones."""
        for byte in data:
            self._write(signals.REPLY, byte)

    def sent(self) -> bytes:
        """Return the bytes received since the last call. From the first call on, the device answers its master."""
        size = self._read(signals.SENT)
        data = self._read(signals.WIRE, size + 3 & ~3).to_bytes(size + 3, "little")[:size] if size else b""
        self._write(signals.SENT, 0)
        return data
