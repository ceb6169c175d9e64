# SPDX-License-Identifier: Apache-2.0
"""The UART of the nRF52 (6.33), whose registers a program reads and writes byte by byte: not the UARTE with DMA.

A character takes ten bit times each way at the speed in BAUDRATE, counted in the core's 64 MHz. Six bytes wait in
front of RXD; a seventh is lost, as the flag OVERRUN says. Flow control, parity and suspending are not modelled.
"""

from collections import deque
from collections.abc import Callable

from utvm.virtual.bus import SerialDevice
from utvm.virtual.cortex_m.clock import Clock

_START_RX, _STOP_RX, _START_TX, _STOP_TX = 0x000, 0x004, 0x008, 0x00C
_RX_READY, _TX_READY, _ERROR, _RX_TIMEOUT = 0x108, 0x11C, 0x124, 0x144
_SET, _CLEAR = 0x304, 0x308
_ERROR_SOURCE, _ENABLE, _RXD, _TXD, _BAUD_RATE = 0x480, 0x500, 0x518, 0x51C, 0x524
_EVENTS = (_RX_READY, _TX_READY, _ERROR, _RX_TIMEOUT)
_ENABLED = 4
_OVERRUN = 1
_FIFO = 6
_BITS_A_CHARACTER = 10
# BAUDRATE is the speed in 2**32nds of the peripheral's 16 MHz; the core's clock is four times as fast.
_TICKS = _BITS_A_CHARACTER * 4 << 32
_BAUD_RATE_AT_RESET = 0x04000000


class Uart(SerialDevice):
    """One UART and the line it is on.

    Args:
        send: receives each byte sent, when it begins to.
        set_line: drives the interrupt line.
    """

    size = 0x1000

    def __init__(self, clock: Clock, send: Callable[[bytes], None], set_line: Callable[[bool], None]) -> None:
        self._clock = clock
        self._send = send
        self._set_line = set_line
        self._on_the_line: deque[int] = deque()
        self.reset()

    def reset(self) -> None:
        self._registers = {_BAUD_RATE: _BAUD_RATE_AT_RESET}
        self._events = dict.fromkeys(_EVENTS, 0)
        self._enabled_interrupts = self._errors = 0
        self._receiving = self._sending = False
        self._received: deque[int] = deque()
        self._shown = False  # whether the first of them is in RXD, and was told
        self._sent_at: int | None = None
        self._arrives_at: int | None = None
        self._on_the_line.clear()
        self._drive_line()

    def receive(self, data: bytes) -> None:
        self.expire()
        self._on_the_line.extend(data)
        self._await_byte(self._clock.now())
        self._clock.timers_changed()

    def load(self, offset: int) -> int:
        self.expire()
        if offset in self._events:
            return self._events[offset]
        if offset == _RXD:
            return self._take()
        known = {_SET: self._enabled_interrupts, _CLEAR: self._enabled_interrupts, _ERROR_SOURCE: self._errors}
        return (self._registers | known).get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset in (_START_RX, _STOP_RX):
            self._receiving = offset == _START_RX and self._is_enabled()
            self._await_byte(self._clock.now())
        elif offset in (_START_TX, _STOP_TX):
            self._sending = offset == _START_TX and self._is_enabled()
        elif offset == _TXD:
            self._transmit(value & 0xFF)
        elif offset in self._events:
            self._events[offset] = value & 1
        elif offset == _SET:
            self._enabled_interrupts |= value
        elif offset == _CLEAR:
            self._enabled_interrupts &= ~value
        elif offset == _ERROR_SOURCE:
            self._errors &= ~value
        else:
            self._registers[offset] = self._registers.get(offset, 0) & ~lanes | value
        self._drive_line()
        self._clock.timers_changed()

    def next_event(self) -> int | None:
        """Return the tick at which the next character ends, either way."""
        return min((tick for tick in (self._sent_at, self._arrives_at) if tick is not None), default=None)

    def expire(self) -> None:
        """End the characters that are due."""
        now = self._clock.now()
        if self._sent_at is not None and self._sent_at <= now:
            self._sent_at = None
            self._events[_TX_READY] = 1
        while self._arrives_at is not None and self._arrives_at <= now:
            start, self._arrives_at = self._arrives_at, None
            byte = self._on_the_line.popleft()
            if len(self._received) < _FIFO:
                self._received.append(byte)
                self._show()
            else:
                self._errors |= _OVERRUN
                self._events[_ERROR] = 1
            self._await_byte(start)
        self._drive_line()

    def _is_enabled(self) -> bool:
        return self._registers.get(_ENABLE, 0) & 0xF == _ENABLED

    def _character_ticks(self) -> int:
        return _TICKS // max(1, self._registers[_BAUD_RATE])

    def _transmit(self, byte: int) -> None:
        """Send a byte; one that is written before the last one has gone is lost."""
        if self._sending and self._sent_at is None:
            self._sent_at = self._clock.now() + self._character_ticks()
            self._send(bytes([byte]))

    def _await_byte(self, start: int) -> None:
        if self._on_the_line and self._arrives_at is None and self._receiving:
            self._arrives_at = start + self._character_ticks()

    def _show(self) -> None:
        if self._received and not self._shown:
            self._shown = True
            self._events[_RX_READY] = 1

    def _take(self) -> int:
        """Return what RXD holds, which makes room for the next."""
        if not self._shown:
            return 0
        self._shown = False
        byte = self._received.popleft()
        self._show()
        self._drive_line()
        return byte

    def _drive_line(self) -> None:
        # An event's bit in INTEN is its place among the events (6.33.8).
        asked = (1 << (offset - 0x100) // 4 for offset, happened in self._events.items() if happened)
        self._set_line(any(bit & self._enabled_interrupts for bit in asked))
