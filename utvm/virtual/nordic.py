# SPDX-License-Identifier: Apache-2.0
"""The flash controller of the nRF52 (4.3) and nRF53: pages and words, one key of two bits.

The nRF52 has a register for the page to be erased. On the nRF53, whoever may erase writes ones to its first
word (nRF5340 Product Specification 1.3, NVMC, "Erasing a page in flash").

An operation is over at once, but READY is low for the first look after it, so that software that does not wait is
found out. Partial erasing and the cache's counters are not modelled, and nothing is protected: the registers for
that (ACL, 6.1) are not there. How often a word was written since its page was erased is not counted.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from utvm.virtual.bus import Bus, BusError, Device, MemoryBank, SerialDevice
from utvm.virtual.spec import Peripheral
from utvm.virtual.stm32.clocks import PlainRegisters
from utvm.virtual.wiring import Clock, Wiring

_READY, _READY_NEXT, _CONFIG, _ERASE_PAGE, _ERASE_ALL, _CACHE = 0x400, 0x408, 0x504, 0x508, 0x50C, 0x540
_WRITE, _ERASE = 1, 2
_WORD = 4
_ONES = 0xFFFFFFFF


class Nvmc(Device):
    """READY, READYNEXT, CONFIG, ERASEPAGE, ERASEALL and ICACHECNF; takes all writes to the flash.

    Args:
        memory: the flash; its sectors are its pages.
        changed: told the first address and the address after a change of what the flash holds.
        erases_by_writing: as the nRF53 does.
    """

    size = 0x1000

    def __init__(
        self, memory: MemoryBank, changed: Callable[[int, int], None], *, erases_by_writing: bool
    ) -> None:
        self._memory = memory
        self._changed = changed
        self._erases_by_writing = erases_by_writing
        ends = list(accumulate(memory.region.sectors))
        self._pages = dict(zip([0, *ends[:-1]], memory.region.sectors, strict=True))
        self.reset()

    def reset(self) -> None:
        self._enabled = self._cache = 0
        self._busy = False

    def load(self, offset: int) -> int:
        if offset in (_READY, _READY_NEXT):
            busy, self._busy = self._busy, False
            return int(not busy)
        return {_CONFIG: self._enabled, _CACHE: self._cache}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _CONFIG:
            self._enabled = value & 3
        elif offset == _CACHE and not self._erases_by_writing:  # The nRF53's cache is a peripheral of its own.
            self._cache = value
        elif self._enabled == _ERASE and offset == _ERASE_PAGE and not self._erases_by_writing:
            self._erase_page(value - self._memory.start)
        elif self._enabled == _ERASE and offset == _ERASE_ALL and value & 1:
            self._replace(0, b"\xff" * self._memory.region.size)

    def program(self, address: int, size: int, value: int) -> None:
        """Take a write to the flash, a word (4.3.1)."""
        offset = address - self._memory.start
        if self._erases_by_writing and self._enabled == _ERASE and size == _WORD and value == _ONES:
            self._erase_page(offset)
            return
        if self._enabled != _WRITE or size != _WORD or offset % _WORD:
            raise BusError(address)
        old = int.from_bytes(self._memory.bytes[offset : offset + _WORD], "little")
        self._replace(offset, (old & value).to_bytes(_WORD, "little"))

    def _erase_page(self, start: int) -> None:
        if start in self._pages:
            self._replace(start, b"\xff" * self._pages[start])

    def _replace(self, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        self._busy = True


_HFCLKSTART = 0x000
_HFCLKSTARTED = 0x100


class Registers(PlainRegisters):
    """The 4 KiB of a peripheral that reads back what was written: pins that lead nowhere, an idle watchdog."""

    size = 0x1000


class HighClock(Registers):
    """CLOCK (5.4): the crystal runs as soon as it is started. One instruction stays one tick."""

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _HFCLKSTART and value & 1:
            self.values[_HFCLKSTARTED] = 1
        elif offset >= _HFCLKSTARTED:  # what is below are tasks, which read as zero
            super().store(offset, value, lanes)


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


__all__ = ["MODELS"]


def _nvmc(peripheral: Peripheral, wiring: Wiring) -> Device:
    by_writing = bool(peripheral.settings.get("erase_by_writing"))
    controller = Nvmc(*wiring.flash(peripheral.model), erases_by_writing=by_writing)
    wiring.bus.program = controller.program
    return controller


MODELS: Mapping[str, Callable[[Peripheral, Wiring], Device]] = {
    "nrf-nvmc": _nvmc,
    "nrf-uarte": lambda peripheral, wiring: Uarte(wiring.bus, wiring.clock, wiring.send, wiring.set_line),
    "nrf-clock": lambda peripheral, wiring: HighClock(),
    "nrf-registers": lambda peripheral, wiring: Registers(),
}
