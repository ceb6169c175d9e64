# SPDX-License-Identifier: Apache-2.0
"""The UARTE of the nRF52 (6.34) and nRF53: a serial line whose bytes go from and to RAM without the core.

A character takes ten bit times each way at the speed in BAUDRATE, counted in the core's 64 MHz. Five bytes wait
for a buffer, as Nordic's own driver has it (UARTE_HW_RX_FIFO_SIZE); a sixth is lost, as the flag OVERRUN says. A
buffer that is not in RAM is a bus fault at the store that starts with it. FLUSHRX, flow control and parity are not
modelled, and neither is the nRF52's UART without DMA, at the same address.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from utvm.virtual.bus import Bus, BusError, SerialDevice
from utvm.virtual.wiring import Clock

_START_RX, _STOP_RX, _START_TX, _STOP_TX = 0x000, 0x004, 0x008, 0x00C
_RX_READY, _END_RX, _TX_READY, _END_TX, _ERROR = 0x108, 0x110, 0x11C, 0x120, 0x124
_RX_TIMEOUT, _RX_STARTED, _TX_STARTED, _TX_STOPPED = 0x144, 0x14C, 0x150, 0x158
_SHORTS, _INTERRUPTS, _SET, _CLEAR = 0x200, 0x300, 0x304, 0x308
_ERROR_SOURCE, _ENABLE, _BAUD_RATE = 0x480, 0x500, 0x524
_RX_BUFFER, _TX_BUFFER = 0x534, 0x544  # PTR; MAXCNT and AMOUNT follow it
_EVENTS = (
    *(_RX_READY, _END_RX, _TX_READY, _END_TX, _ERROR),
    *(_RX_TIMEOUT, _RX_STARTED, _TX_STARTED, _TX_STOPPED),
)
_ENDED_STARTS, _ENDED_STOPS = 1 << 5, 1 << 6  # of SHORTS
_ENABLED = 8
_OVERRUN = 1
_FIFO = 5
_BITS_A_CHARACTER = 10
# BAUDRATE is the speed in 2**32nds of the peripheral's 16 MHz; the core's clock is four times as fast.
_TICKS = _BITS_A_CHARACTER * 4 << 32
_BAUD_RATE_AT_RESET = 0x04000000


@dataclass
class _Transfer:
    """A buffer under way: where it lies, its size, and how much of it is done."""

    address: int
    size: int
    done: int = 0


class Uarte(SerialDevice):
    """One UARTE and the line it is on.

    Args:
        bus: where its buffers are.
        send: receives each byte sent, when it begins to.
        set_line: drives the interrupt line.
    """

    size = 0x1000

    def __init__(
        self, bus: Bus, clock: Clock, send: Callable[[bytes], None], set_line: Callable[[bool], None]
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._send = send
        self._set_line = set_line
        self._on_the_line: deque[int] = deque()
        self.reset()

    def reset(self) -> None:
        self._registers = {_BAUD_RATE: _BAUD_RATE_AT_RESET}
        self._events = dict.fromkeys(_EVENTS, 0)
        self._enabled_interrupts = self._errors = 0
        self._listens = False
        self._receiving: _Transfer | None = None
        self._sending: _Transfer | None = None
        self._received: deque[int] = deque()
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
        if offset in (_INTERRUPTS, _SET, _CLEAR):
            return self._enabled_interrupts
        return self._errors if offset == _ERROR_SOURCE else self._registers.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self.expire()
        if offset in (_START_RX, _STOP_RX, _START_TX, _STOP_TX):
            self._do(offset)
        elif offset in self._events:
            self._events[offset] = value & 1
        elif offset == _INTERRUPTS:
            self._enabled_interrupts = value
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
        while self._sent_at is not None and self._sent_at <= now:
            start, self._sent_at = self._sent_at, None
            self._events[_TX_READY] = 1
            self._transmit(start)
        while self._arrives_at is not None and self._arrives_at <= now:
            start, self._arrives_at = self._arrives_at, None
            byte = self._on_the_line.popleft()
            if len(self._received) < _FIFO:
                self._received.append(byte)
                self._fill()
            else:
                self._errors |= _OVERRUN
                self._events[_ERROR] = 1
            self._await_byte(start)
        self._drive_line()

    def _do(self, task: int) -> None:
        """Start or stop one of the two directions; nothing where the whole is off."""
        if self._registers.get(_ENABLE, 0) & 0xF != _ENABLED:
            return
        if task == _START_TX:
            self._sending = self._buffer(_TX_BUFFER)
            self._events[_TX_STARTED] = 1
            if self._sent_at is None:
                self._transmit(self._clock.now())
        elif task == _STOP_TX:
            self._sending = None
            self._events[_TX_STOPPED] = 1
        elif task == _START_RX:
            self._begin_to_receive()
            self._fill()
            self._await_byte(self._clock.now())
        else:
            self._stop_receiving()

    def _buffer(self, register: int) -> _Transfer:
        """Return the buffer that PTR and MAXCNT name; raises BusError where it is not in RAM."""
        address, size = self._registers.get(register, 0), self._registers.get(register + 4, 0) & 0xFFFF
        memory = self._bus.memory_at(address)
        if memory is None or memory.region.kind != "ram" or address + size > memory.end:
            raise BusError(address)
        return _Transfer(address, size)

    def _character_ticks(self) -> int:
        return _TICKS // max(1, self._registers[_BAUD_RATE])

    def _transmit(self, start: int) -> None:
        """Begin with the next byte of the buffer, or end with that."""
        buffer = self._sending
        if buffer is None:
            return
        if buffer.done == buffer.size:
            self._sending = None
            self._registers[_TX_BUFFER + 8] = buffer.done
            self._events[_END_TX] = 1
            return
        self._send(self._bus.read(buffer.address + buffer.done, 1))
        buffer.done += 1
        self._sent_at = start + self._character_ticks()

    def _await_byte(self, start: int) -> None:
        if self._on_the_line and self._arrives_at is None and self._listens:
            self._arrives_at = start + self._character_ticks()

    def _begin_to_receive(self) -> None:
        self._receiving = self._buffer(_RX_BUFFER)
        self._listens = True
        self._events[_RX_STARTED] = 1

    def _stop_receiving(self) -> None:
        if self._receiving:
            self._end_of_buffer(self._receiving)
        self._listens = False
        self._arrives_at = None
        self._events[_RX_TIMEOUT] = 1

    def _fill(self) -> None:
        """Move what has arrived into the buffer, as far as there is one."""
        while self._received and self._receiving:
            buffer = self._receiving
            self._bus.write(buffer.address + buffer.done, bytes([self._received.popleft()]))
            buffer.done += 1
            self._events[_RX_READY] = 1
            if buffer.done == buffer.size:
                self._end_of_buffer(buffer)
                if self._registers.get(_SHORTS, 0) & _ENDED_STARTS:
                    self._begin_to_receive()
                elif self._registers.get(_SHORTS, 0) & _ENDED_STOPS:
                    self._stop_receiving()

    def _end_of_buffer(self, buffer: _Transfer) -> None:
        self._receiving = None
        self._registers[_RX_BUFFER + 8] = buffer.done
        self._events[_END_RX] = 1

    def _drive_line(self) -> None:
        # An event's bit in INTEN is its place among the events (6.34.9).
        asked = (1 << (offset - 0x100) // 4 for offset, happened in self._events.items() if happened)
        self._set_line(any(bit & self._enabled_interrupts for bit in asked))
