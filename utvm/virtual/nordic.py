# SPDX-License-Identifier: Apache-2.0
"""Peripherals of Nordic's nRF52 and nRF53: NVMC, UARTE, CLOCK.

Sections are those of the nRF52840 Product Specification 1.7; the nRF5340's has the same registers in chapters of
the same names, except where noted.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from utvm.virtual import bus, nordic_events, rules, spec
from utvm.virtual.wiring import DeviceFactory, SerialDevice, Wiring

_REGISTER_BYTES = 0x1000  # of a peripheral

_READY, _READY_NEXT, _CONFIG, _ERASE_PAGE, _ERASE_ALL, _CACHE = 0x400, 0x408, 0x504, 0x508, 0x50C, 0x540
_ERASE_SETTINGS = 0x514
_WRITE, _ERASE = 1, 2
_APPROTECT = 0x208  # in UICR: 0 in the low byte protects from the next reset on (4.8.2)
_WORD = 4
_ONES = 0xFFFFFFFF


class Nvmc(bus.Device):
    """The flash controller (4.3): READY, READYNEXT, CONFIG, ERASEPAGE, ERASEALL and ICACHECNF.

    The nRF52 has a register for the page to erase. The nRF53 erases a page at a write of ones to its first word
    (nRF5340 Product Specification 1.3, NVMC, "Erasing a page in flash"). The sectors of ``memory`` are its pages;
    ``changed`` is called with start and end address of a change.

    An operation completes at once, but READY is 0 in the first read after it, which exposes software that does not
    wait. Partial erase, the cache's counters, protection (ACL, 6.1) and the limit of writes per word are not
    modelled.
    """

    size = _REGISTER_BYTES

    def __init__(
        self,
        memory: bus.MemoryBank,
        changed: Callable[[int, int], None],
        *,
        erases_by_writing: bool,
        settings: bus.MemoryBank | None = None,
    ) -> None:
        self._memory = memory
        self._settings = settings  # UICR
        self._changed = changed
        self._erases_by_writing = erases_by_writing
        ends = list(accumulate(memory.region.sectors))
        self._pages = dict(zip([0, *ends[:-1]], memory.region.sectors, strict=True))
        self.reset()

    def reset(self) -> None:
        self._mode = self._cache = 0
        self._busy = False
        settings = None if self._erases_by_writing else self._settings
        self.protected = bool(settings and settings.bytes[_APPROTECT] == 0)

    def load(self, offset: int) -> int:
        if offset in (_READY, _READY_NEXT):
            busy, self._busy = self._busy, False
            return int(not busy)
        return {_CONFIG: self._mode, _CACHE: self._cache}.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _CONFIG:
            self._mode = value & 3
        elif offset == _CACHE and not self._erases_by_writing:  # the nRF53's cache is another peripheral
            self._cache = value
        elif self._mode == _ERASE and offset == _ERASE_PAGE and not self._erases_by_writing:
            self._erase_page(value - self._memory.start)
        elif self._mode == _ERASE and offset == _ERASE_ALL and value & 1:
            self.erase_all()
        elif self._mode == _ERASE and offset == _ERASE_SETTINGS and value & 1:
            self._erase_settings()

    def erase_all(self) -> None:
        """Erase the flash and UICR; the debugger has access again."""
        self._replace(0, b"\xff" * self._memory.region.size)
        self._erase_settings()
        self.protected = False

    def _erase_settings(self) -> None:
        if self._settings and not self._erases_by_writing:
            self._settings.fill(0xFF)
            self._changed_settings()

    def _changed_settings(self) -> None:
        if self._settings:
            self._changed(self._settings.start, self._settings.end)
            self._busy = True

    def program(self, address: int, size: int, value: int) -> None:
        """Program a word (4.3.1), also of UICR (4.3.5)."""
        settings = self._settings
        if settings and settings.start <= address < settings.end and self._mode == _WRITE and size == _WORD:
            at = address - settings.start
            old = int.from_bytes(settings.bytes[at : at + _WORD], "little")
            settings.bytes[at : at + _WORD] = (old & value).to_bytes(_WORD, "little")
            self._changed_settings()
            return
        offset = address - self._memory.start
        if self._erases_by_writing and self._mode == _ERASE and size == _WORD and value == _ONES:
            self._erase_page(offset)
            return
        if self._mode != _WRITE or size != _WORD or offset % _WORD:
            raise bus.BusError(address)
        old = int.from_bytes(self._memory.bytes[offset : offset + _WORD], "little")
        self._replace(offset, (old & value).to_bytes(_WORD, "little"))

    def _erase_page(self, start: int) -> None:
        if start in self._pages:
            self._replace(start, b"\xff" * self._pages[start])

    def _replace(self, offset: int, data: bytes) -> None:
        self._memory.bytes[offset : offset + len(data)] = data
        self._changed(self._memory.start + offset, self._memory.start + offset + len(data))
        self._busy = True


_START_RX, _STOP_RX, _START_TX, _STOP_TX = range(0x000, 0x010, 4)
_RX_READY, _END_RX, _TX_READY, _END_TX, _ERROR = 0x108, 0x110, 0x11C, 0x120, 0x124
_RX_TIMEOUT, _RX_STARTED, _TX_STARTED, _TX_STOPPED = 0x144, 0x14C, 0x150, 0x158
_SHORTS, _INTERRUPTS, _SET = 0x200, 0x300, 0x304
_ERROR_SOURCE, _BAUD_RATE = 0x480, 0x524
_RX_BUFFER, _TX_BUFFER = 0x534, 0x544  # PTR; MAXCNT and AMOUNT follow
_ENDRX_STARTRX, _ENDRX_STOPRX = 1 << 5, 1 << 6  # of SHORTS
_ENABLED, _ENABLED_UART = 8, 4
_RXD, _TXD = 0x518, 0x51C
_OVERRUN = 1
_FIFO_BYTES = 5
_BITS_PER_CHARACTER = 10
# BAUDRATE is the speed in 2**-32 of the peripheral's 16 MHz; the core's clock is four times as fast.
_TICKS = _BITS_PER_CHARACTER * 4 << 32
_BAUD_RATE_AT_RESET = 0x04000000


@dataclass
class _Transfer:
    """A buffer in RAM, and the number of bytes transferred."""

    address: int
    size: int
    done: int = 0


class Uarte(SerialDevice, rules.RuledEvents):
    """A UARTE (6.34): a UART with DMA from and to RAM; by ENABLE also one without (6.33), or another master.

    A character takes ten bit times of BAUDRATE, in ticks of the core's 64 MHz. Five bytes wait for a buffer, as in
    Nordic's driver (UARTE_HW_RX_FIFO_SIZE); a sixth is lost and sets OVERRUN. A buffer outside RAM is a bus fault
    at the store that starts it. FLUSHRX, flow control and parity are not modelled.
    """

    size = _REGISTER_BYTES

    def __init__(self, wiring: Wiring, address: int) -> None:
        self._bus, self._send, self._incoming = wiring.bus, wiring.send, deque()
        rules.RuledEvents.__init__(self, "nrf-serial", wiring, wiring, address)

    def reset(self) -> None:
        SerialDevice.reset(self)
        self._rx_started = False
        self._rx_transfer: _Transfer | None = None
        self._tx_transfer: _Transfer | None = None
        self._buffer: deque[int] = deque()
        rules.RuledEvents.reset(self)

    def load(self, offset: int) -> int:
        value = super().load(_SET if offset == _INTERRUPTS else offset)
        if offset == _RXD and self._get("KIND") == _ENABLED_UART:
            value = self._buffer.popleft() if self._buffer else value
            if self._buffer:
                self.raise_event(_RX_READY)
        return value

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _INTERRUPTS:
            self.values[_SET] = 0
        elif offset == _ERROR_SOURCE:
            value = self.values.get(offset, 0) & ~value
        elif offset == _TXD and self._get("KIND") == _ENABLED_UART:
            self._send_byte(bytes([value & 0xFF]), self._clock.now())
        super().store(_SET if offset == _INTERRUPTS else offset, value, lanes)

    def expire(self) -> None:
        SerialDevice.expire(self)
        self._drive_line()

    def start_task(self, task: int) -> None:
        if self._get("KIND") == _ENABLED_UART:
            self._rx_started = task == _START_RX or (self._rx_started and task != _STOP_RX)
            self._await_byte(self._clock.now())
        elif self._get("KIND") != _ENABLED:
            super().start_task(task)
        elif task == _START_TX:
            self._tx_transfer = self._transfer(_TX_BUFFER)
            self.raise_event(_TX_STARTED)
            if self._sent_at is None:
                self._transmit(self._clock.now())
        elif task == _STOP_TX:
            self._tx_transfer = None
            self.raise_event(_TX_STOPPED)
        elif task == _START_RX:
            self._start_receiving()
            self._drain_fifo()
            self._await_byte(self._clock.now())
        elif task == _STOP_RX:
            self._stop_receiving()

    def _transfer(self, register: int) -> _Transfer:
        address, size = self.values.get(register, 0), self.values.get(register + 4, 0) & 0xFFFF
        ends = (self._bus.memory_at(end) for end in (address, address + max(size, 1) - 1))
        if any(memory is None or memory.region.kind != "ram" for memory in ends):
            raise bus.BusError(address)
        return _Transfer(address, size)

    def _character_ticks(self) -> int:
        return _TICKS // max(1, self.values[_BAUD_RATE])

    def _is_receiving(self) -> bool:
        return self._rx_started

    def _finish_sending(self, now: int) -> None:
        self.raise_event(_TX_READY)
        self._transmit(now)

    def _transmit(self, start: int) -> None:
        transfer = self._tx_transfer
        if transfer is None:
            return
        if transfer.done == transfer.size:
            self._tx_transfer = None
            self.values[_TX_BUFFER + 8] = transfer.done
            self.raise_event(_END_TX)
            return
        self._send_byte(self._bus.read(transfer.address + transfer.done, 1), start)
        transfer.done += 1

    def _handle_byte(self, byte: int, now: int) -> None:
        if len(self._buffer) < _FIFO_BYTES:
            self._buffer.append(byte)
            self._drain_fifo()
            if self._get("KIND") == _ENABLED_UART:
                self.raise_event(_RX_READY)
        else:
            self.values[_ERROR_SOURCE] = self.values.get(_ERROR_SOURCE, 0) | _OVERRUN
            self.raise_event(_ERROR)

    def _start_receiving(self) -> None:
        self._rx_transfer = self._transfer(_RX_BUFFER)
        self._rx_started = True
        self.raise_event(_RX_STARTED)

    def _stop_receiving(self) -> None:
        if self._rx_transfer:
            self._end_receiving(self._rx_transfer)
        self._rx_started = False
        self._arrives_at = None
        self.raise_event(_RX_TIMEOUT)

    def _drain_fifo(self) -> None:
        while self._buffer and self._rx_transfer:
            transfer = self._rx_transfer
            self._bus.write(transfer.address + transfer.done, bytes([self._buffer.popleft()]))
            transfer.done += 1
            self.raise_event(_RX_READY)
            if transfer.done == transfer.size:
                self._end_receiving(transfer)
                if self.values.get(_SHORTS, 0) & _ENDRX_STARTRX:
                    self._start_receiving()
                elif self.values.get(_SHORTS, 0) & _ENDRX_STOPRX:
                    self._stop_receiving()

    def _end_receiving(self, transfer: _Transfer) -> None:
        self._rx_transfer = None
        self.values[_RX_BUFFER + 8] = transfer.done
        self.raise_event(_END_RX)


def _nvmc(peripheral: spec.Peripheral, wiring: Wiring) -> bus.Device:
    erases_by_writing = bool(peripheral.settings.get("erase_by_writing"))
    flash, changed = wiring.flash(peripheral.model)
    settings = next((memory for memory in wiring.bus.memories if memory.region.name == "uicr"), None)
    controller = Nvmc(flash, changed, erases_by_writing=erases_by_writing, settings=settings)
    wiring.bus.programmable = {"uicr"}
    wiring.bus.program = controller.program
    return controller


MODELS: Mapping[str, DeviceFactory] = {
    "nrf-nvmc": _nvmc,
    "nrf-uarte": lambda p, wiring: Uarte(wiring, p.address),
    "nrf-timer": lambda p, wiring: nordic_events.TimerCounter(wiring, p.address),
    "nrf-rtc": lambda p, wiring: nordic_events.RealTimeCounter(wiring, p.address),
    "nrf-gpiote": lambda p, wiring: nordic_events.PinEvents(wiring, p.address),
    "nrf-pins": lambda peripheral, wiring: nordic_events.Pins(peripheral.settings.values(), wiring.signals),
    "nrf-registers": lambda peripheral, wiring: bus.PlainRegisters(size=_REGISTER_BYTES),
}
