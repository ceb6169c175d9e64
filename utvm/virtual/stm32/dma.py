# SPDX-License-Identifier: Apache-2.0
"""A DMA controller of the STM32F7 (RM0385, section 8): from a peripheral to memory and back, or within memory.

An item moves at the tick of the peripheral's request, in no time; from memory to memory, all of them at once. The
FIFO only packs. Modes that are not modelled set TEIF when the stream is enabled: double buffers, and a peripheral
as flow controller.
"""

import functools
from pathlib import Path

from utvm.virtual.bus import BusError, Device
from utvm.virtual.wiring import Wiring

STREAMS = 8
_REQUESTS = Path(__file__).with_name("requests.txt")

# Interrupt status (RM0385, 8.5.1 to 8.5.4): a group of flags a stream, four streams a register
TEIF, HTIF, TCIF = 1 << 3, 1 << 4, 1 << 5
_GROUP = 0x3D
_GROUP_SHIFTS = (0, 6, 16, 22)

# SxCR (RM0385, 8.5.5)
_EN, _TEIE, _HTIE, _TCIE, _PFCTRL, _DIR_SHIFT = 1 << 0, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 6
_CIRC, _PINC, _MINC, _PSIZE_SHIFT, _PL_SHIFT, _DBM = 1 << 8, 1 << 9, 1 << 10, 11, 16, 1 << 18
_CHSEL_SHIFT = 25
_CR_MASK = 0x0FEFFFFF
_WRITABLE_WHILE_ENABLED = 0x1F  # EN and the interrupt enables
_NOT_MODELLED = _PFCTRL | _DBM
_TO_MEMORY, _FROM_MEMORY, _WITHIN_MEMORY, _RESERVED = range(4)

# SxFCR (RM0385, 8.5.10)
_FCR_AFTER_RESET, _FCR_MASK, _DMDIS = 0x21, 0x87, 1 << 2

_FIRST_STREAM, _STREAM_BYTES = 0x10, 0x18
_CR, _NDTR, _PAR, _M0AR, _M1AR, _FCR = range(0, _STREAM_BYTES, 4)


class _Stream:
    def __init__(self) -> None:
        self.registers = {_CR: 0, _NDTR: 0, _PAR: 0, _M0AR: 0, _M1AR: 0, _FCR: _FCR_AFTER_RESET}
        self.flags = 0
        self.programmed = 0  # last value written to NDTR; EN reloads it after the end of a transfer
        self.reload = 0  # number of items of the current transfer

    @property
    def enabled(self) -> bool:
        return bool(self.registers[_CR] & _EN)

    @property
    def priority(self) -> int:
        return self.registers[_CR] >> _PL_SHIFT & 3

    def serves(self, channel: int) -> bool:
        """True if a request of a channel moves an item: not if NDTR is 0 (RM0385, 8.5.6)."""
        return self.enabled and self.registers[_NDTR] > 0 and self.registers[_CR] >> _CHSEL_SHIFT == channel

    @property
    def direction(self) -> int:
        return self.registers[_CR] >> _DIR_SHIFT & 3

    @property
    def copies(self) -> bool:
        """True if it moves within memory, without requests."""
        return self.enabled and self.direction == _WITHIN_MEMORY and self.registers[_NDTR] > 0

    @property
    def item_bytes(self) -> int:
        """Size of an item of the peripheral, which NDTR counts."""
        return 1 << (self.registers[_CR] >> _PSIZE_SHIFT & 3)

    def address(self, register: int, increment: int) -> int:
        """Address of the next item, from PAR or M0AR."""
        done = self.reload - self.registers[_NDTR] if self.registers[_CR] & increment else 0
        return self.registers[register] + done * self.item_bytes & 0xFFFFFFFF

    def store(self, offset: int, value: int) -> None:
        if offset == _CR:
            self._store_control(value & _CR_MASK)
        elif offset == _FCR:
            writable = _FCR_MASK & ~(3 | _DMDIS) if self.enabled else _FCR_MASK
            self.registers[_FCR] = self.registers[_FCR] & ~writable | value & writable
        elif not self.enabled:  # the others cannot be written while the stream is enabled (RM0385, 8.5.6 to 8.5.9)
            if offset == _NDTR:
                value &= 0xFFFF
                self.programmed = value
            self.registers[offset] = value

    def _store_control(self, value: int) -> None:
        if self.enabled:
            fixed = self.registers[_CR] & ~_WRITABLE_WHILE_ENABLED
            self.registers[_CR] = fixed | value & _WRITABLE_WHILE_ENABLED
            if not value & _EN:
                self.flags |= TCIF  # also if the transfer is aborted (RM0385, 8.3.14)
        else:
            self.registers[_CR] = value & ~_EN
            if value & _EN:
                self._enable()

    def _enable(self) -> None:
        if self.flags:  # they must be cleared before (RM0385, 8.3.17)
            return
        # Within memory, direct and circular mode are not allowed (RM0385, 8.3.6).
        direct, circular = not self.registers[_FCR] & _DMDIS, self.registers[_CR] & _CIRC
        refused = self.direction == _WITHIN_MEMORY and (direct or circular)
        if refused or self.item_bytes > 4 or self.registers[_CR] & _NOT_MODELLED or self.direction == _RESERVED:
            self.flags |= TEIF
            return
        self.registers[_CR] |= _EN
        if self.registers[_NDTR] == 0:
            self.registers[_NDTR] = self.programmed
        self.reload = self.registers[_NDTR]

    def count_item(self) -> None:
        """Count a moved item."""
        remaining = self.registers[_NDTR] = self.registers[_NDTR] - 1
        if remaining == self.reload // 2:
            self.flags |= HTIF
        if remaining == 0:
            self.flags |= TCIF
            if self.registers[_CR] & _CIRC:
                self.registers[_NDTR] = self.reload
            else:
                self.registers[_CR] &= ~_EN

    def fail(self) -> None:
        """Stop after a bus error (RM0385, 8.3.18)."""
        self.flags |= TEIF
        self.registers[_CR] &= ~_EN

    def interrupts(self) -> bool:
        enables = ((TEIF, _TEIE), (HTIF, _HTIE), (TCIF, _TCIE))
        return any(self.flags & flag and self.registers[_CR] & enable for flag, enable in enables)


class DmaController(Device):
    """A controller with eight streams.

    Requests are signals. A request by a pulse ends with the next item moved.
    """

    def __init__(self, wiring: Wiring, address: int) -> None:
        self._bus, self._lines = wiring.bus, wiring.lines
        self._requests: dict[tuple[int, int], bool] = {}  # True for a pulse
        self._serving = False
        self.reset()
        for row in _REQUESTS.read_text().splitlines():
            if row.startswith(f"{address:x} "):
                stream, *channels = row.split()[1:]
                for channel, names in enumerate(channels):
                    for name in names.split("/"):
                        wiring.signals.listen(name, functools.partial(self.set_request, int(stream), channel))

    def reset(self) -> None:
        self._streams = [_Stream() for _ in range(STREAMS)]
        for set_line in self._lines:
            set_line(False)

    def set_request(self, stream: int, channel: int, level: bool | None) -> None:
        """Set or clear a peripheral's request, which stays set until served; None is a pulse."""
        request = stream, channel
        if level is False:
            self._requests.pop(request, None)
        elif request not in self._requests:
            self._requests[request] = level is None
            self._serve()

    def load(self, offset: int) -> int:
        number, inside = divmod(offset - _FIRST_STREAM, _STREAM_BYTES)
        if 0 <= number < STREAMS:
            return self._streams[number].registers[inside]
        if offset in (0x00, 0x04):
            return sum(self._streams[number].flags << shift for number, shift in _group(offset))
        return 0

    def store(self, offset: int, value: int, lanes: int) -> None:
        if lanes != 0xFFFFFFFF:  # only word accesses are possible (RM0385, 8.2)
            return
        number, inside = divmod(offset - _FIRST_STREAM, _STREAM_BYTES)
        if 0 <= number < STREAMS:
            self._streams[number].store(inside, value)
            self._drive_line(number)
            self._serve()
        elif offset in (0x08, 0x0C):
            for number, shift in _group(offset - 0x08):
                self._streams[number].flags &= ~(value >> shift & _GROUP)
                self._drive_line(number)

    def _serve(self) -> None:
        """Move items while there are requests. A served peripheral may raise the next one, on any stream."""
        if self._serving:
            return
        self._serving = True
        while (number := self._next()) is not None:
            stream = self._streams[number]
            for request, pulse in tuple(self._requests.items()):
                if pulse and request[0] == number and stream.serves(request[1]):
                    del self._requests[request]
            try:
                self._move(stream)
            except BusError:
                stream.fail()
            else:
                stream.count_item()
            self._drive_line(number)
        self._serving = False

    def _next(self) -> int | None:
        ready = {number for number, channel in self._requests if self._streams[number].serves(channel)}
        ready.update(number for number, stream in enumerate(self._streams) if stream.copies)
        return min(ready, key=lambda number: (-self._streams[number].priority, number), default=None)

    def _move(self, stream: _Stream) -> None:
        ends = stream.address(_PAR, _PINC), stream.address(_M0AR, _MINC)
        source, target = ends[::-1] if stream.direction == _FROM_MEMORY else ends
        self._bus.write(target, self._bus.read(source, stream.item_bytes))

    def _drive_line(self, number: int) -> None:
        self._lines[number](self._streams[number].interrupts())


def _group(offset: int) -> list[tuple[int, int]]:
    return [(offset + index, shift) for index, shift in enumerate(_GROUP_SHIFTS)]
