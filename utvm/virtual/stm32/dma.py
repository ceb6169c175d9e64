# SPDX-License-Identifier: Apache-2.0
"""DMA controllers: with streams, of the STM32F7 (RM0385, section 8), and with channels, of the STM32L4 (RM0432, 11).

They move items from a peripheral to memory and back, or within memory. An item moves at the tick of the peripheral's
request, in no time; from memory to memory, all of them at the end of the copy. A stream's FIFO only packs. The
addresses of double buffers cannot be changed while the stream is enabled. A peripheral as flow controller is not
modelled: it sets TEIF when the stream is enabled. The DMAMUX selects the requests of channels (RM0432, 12; RM0433,
17), without overrun flags.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from utvm.virtual.bus import BusError, Device, PlainRegisters
from utvm.virtual.wiring import Wiring

_REQUESTS = Path(__file__).with_name("requests.txt")

# Interrupt status (RM0385, 8.5.1 to 8.5.4): a group of flags a stream, four streams a register
TEIF, HTIF, TCIF = 1 << 3, 1 << 4, 1 << 5
_GROUP = 0x3D
_GROUP_SHIFTS = (0, 6, 16, 22)

# SxCR (RM0385, 8.5.5)
_EN, _TEIE, _HTIE, _TCIE, _PFCTRL, _DIR_SHIFT = 1 << 0, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 6
_CIRC, _PINC, _MINC, _PSIZE_SHIFT, _MSIZE_SHIFT, _PL_SHIFT = 1 << 8, 1 << 9, 1 << 10, 11, 13, 16
_DBM, _CT = 1 << 18, 1 << 19
_CHSEL_SHIFT = 25
_CR_MASK = 0x0FEFFFFF
_WRITABLE_WHILE_ENABLED = 0x1F  # EN and the interrupt enables
_TO_MEMORY, _FROM_MEMORY, _WITHIN_MEMORY, _RESERVED = range(4)

# Places of the bits of a channel's CCR (RM0432, 11.6.3) in SxCR, and of its flags (11.6.1). MEM2MEM is bit 1 of DIR.
_CCR_BITS = (0, 4, 3, 2, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 7, 18, 19)
_FLAG_BITS, _ANY = (6, 5, 4, 3), 6

# SxFCR (RM0385, 8.5.10)
_FCR_AFTER_RESET, _FCR_MASK, _DMDIS = 0x21, 0x87, 1 << 2

_MOST_ITEMS = 1 << 18  # at a tick
_COPY_TICKS = 8  # for an item, about as many as a load from flash and a store take

_CR, _NDTR, _PAR, _M0AR, _M1AR, _FCR = range(0, 0x18, 4)


def _spread(value: int, bits: tuple[int, ...]) -> int:
    return sum((value >> bit & 1) << to for bit, to in enumerate(bits))


def _gather(value: int, bits: tuple[int, ...]) -> int:
    return sum((value >> place & 1) << bit for bit, place in enumerate(bits))


class _Stream:
    control_bits, flag_bits = tuple(range(28)), tuple(range(6))

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
        return self.enabled and self.direction >= _WITHIN_MEMORY and self.registers[_NDTR] > 0

    @property
    def item_bytes(self) -> int:
        """Size of an item of the peripheral, which NDTR counts."""
        return 1 << (self.registers[_CR] >> _PSIZE_SHIFT & 3)

    @property
    def memory_bytes(self) -> int:
        """Size of an item in memory; the FIFO packs several."""
        return self.item_bytes

    def ends(self) -> tuple[int, int]:
        """Addresses of the next item: of the peripheral, and in memory."""
        control = self.registers[_CR]
        done = self.reload - self.registers[_NDTR]
        memory = self.registers[_M1AR if control & _CT else _M0AR]
        peripheral = self.registers[_PAR] + done * self.item_bytes * bool(control & _PINC)
        return peripheral & 0xFFFFFFFF, memory + done * self.memory_bytes * bool(control & _MINC) & 0xFFFFFFFF

    def load(self, offset: int) -> int:
        value = self.registers.get(offset, 0)
        return _gather(value, self.control_bits) if offset == _CR else value

    def load_flags(self) -> int:
        return _gather(self.flags | bool(self.flags) << _ANY, self.flag_bits)

    def clear_flags(self, bits: int) -> None:
        cleared = _spread(bits, self.flag_bits)
        self.flags &= ~(_GROUP if cleared >> _ANY else cleared)

    def store(self, offset: int, value: int) -> None:
        if offset == _CR:
            self._store_control(_spread(value, self.control_bits) & _CR_MASK)
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
        if refused or self.item_bytes > 4 or self.registers[_CR] & _PFCTRL or self.direction == _RESERVED:
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
            self._finish()

    def _finish(self) -> None:
        if self.registers[_CR] & _DBM:  # the other buffer is next (RM0385, 8.3.10)
            self.registers[_CR] ^= _CT
        if self.registers[_CR] & (_CIRC | _DBM):
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


class _Channel(_Stream):
    """A channel, with the registers of a stream: both ends have a size, and it stays enabled at the end."""

    control_bits, flag_bits = _CCR_BITS, _FLAG_BITS

    @property
    def memory_bytes(self) -> int:
        return 1 << (self.registers[_CR] >> _MSIZE_SHIFT & 3)

    def _store_control(self, value: int) -> None:
        if self.enabled and value & _EN:
            value = self.registers[_CR] & ~_WRITABLE_WHILE_ENABLED | value & _WRITABLE_WHILE_ENABLED
        elif value & _EN:
            self.reload = self.registers[_NDTR]
        self.registers[_CR] = value

    def _finish(self) -> None:
        super()._finish()
        self.registers[_CR] |= _EN


class DmaController(Device):
    """A controller with streams, one for each line.

    Requests are signals, on newer chips those of DMAMUX. A request by a pulse ends with the next item moved.
    """

    first, stride, kind = 0x10, 0x18, _Stream

    def __init__(self, wiring: Wiring, address: int) -> None:
        self._bus, self._clock, self._lines = wiring.bus, wiring.clock, wiring.lines
        self._requests: dict[tuple[int, int], bool] = {}  # True for a pulse
        self._serving = False
        self.reset()
        for row in _REQUESTS.read_text().splitlines():
            if row.startswith(f"{address:x} "):
                stream, *channels = row.split()[1:]
                for channel, names in enumerate(channels):
                    for name in names.split("/"):
                        wiring.signals.listen(name, functools.partial(self.set_request, int(stream), channel))
        multiplexer, first = f"DMAMUX{1 + (wiring.name == 'BDMA')}", len(self._lines) * (wiring.name == "DMA2")
        for number in range(len(self._lines)):
            wiring.signals.listen(f"{multiplexer}_{first + number}", functools.partial(self.set_request, number, 0))

    def reset(self) -> None:
        self._streams = [self.kind() for _ in self._lines]
        self._due: dict[int, int] = {}  # ticks at which copies within memory end, by stream
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

    def next_event(self) -> int | None:
        return min(self._due.values(), default=None)

    def expire(self) -> None:
        if any(due <= self._clock.now() for due in self._due.values()):
            self._serve()

    def load(self, offset: int) -> int:
        self.expire()
        number, inside = divmod(offset - self.first, self.stride)
        if 0 <= number < len(self._streams):
            return self._streams[number].load(inside)
        return sum(self._streams[number].load_flags() << shift for number, shift in self._group(offset))

    def store(self, offset: int, value: int, lanes: int) -> None:
        if lanes != 0xFFFFFFFF:  # only word accesses are possible (RM0385, 8.2)
            return
        number, inside = divmod(offset - self.first, self.stride)
        if 0 <= number < len(self._streams):
            stream = self._streams[number]
            stream.store(inside, value)
            self._drive_line(number)
            if not stream.copies:
                self._due.pop(number, None)
            elif number not in self._due:
                self._due[number] = self._clock.now() + _COPY_TICKS * stream.load(_NDTR)
            self._clock.reschedule()
            self._serve()
        for number, shift in self._group(offset - self.first // 2):
            self._streams[number].clear_flags(value >> shift)
            self._drive_line(number)

    def _group(self, offset: int) -> list[tuple[int, int]]:
        """Streams of a register of flags, and the places of their flags."""
        return [(offset + index, shift) for index, shift in enumerate(_GROUP_SHIFTS)] if offset in (0, 4) else []

    def _serve(self) -> None:
        """Move items while there are requests. A served peripheral may raise the next one, on any stream."""
        if self._serving:
            return
        self._serving = True
        moved = 0  # A peripheral whose request never ends does not stop time.
        while (number := self._next()) is not None and moved <= _MOST_ITEMS:
            stream, moved = self._streams[number], moved + 1
            for request, pulse in tuple(self._requests.items()):
                if pulse and request[0] == number and stream.serves(request[1]):
                    del self._requests[request]
            try:
                self._move(stream)
            except BusError:
                stream.fail()
            else:
                stream.count_item()
            if not stream.copies:
                self._due.pop(number, None)
            self._drive_line(number)
        self._serving = False

    def _next(self) -> int | None:
        ready = {number for number, channel in self._requests if self._streams[number].serves(channel)}
        ready.update(number for number, due in self._due.items() if due <= self._clock.now())
        return min(ready, key=lambda number: (-self._streams[number].priority, number), default=None)

    def _move(self, stream: _Stream) -> None:
        ends = list(zip(stream.ends(), (stream.item_bytes, stream.memory_bytes), strict=True))
        (source, taken), (target, given) = ends[::-1] if stream.direction & _FROM_MEMORY else ends
        self._bus.write(target, self._bus.read(source, taken)[:given].ljust(given, b"\0"))

    def _drive_line(self, number: int) -> None:
        self._lines[number](self._streams[number].interrupts())


class ChannelController(DmaController):
    """A controller with channels."""

    first, stride, kind = 0x08, 0x14, _Channel

    def _group(self, offset: int) -> list[tuple[int, int]]:
        return [(number, 4 * number) for number in range(len(self._lines))] if offset == 0 else []


_TEXT = Path(__file__).with_name("dmamux.txt")
_GENERATORS, _STATUS = 0x100, 0x120
_REQUEST, _EGE, _SE = 0x7F, 1 << 9, 1 << 16  # of CxCR; RGxCR has GE at the place of SE
_POLARITY_SHIFT, _NUMBER_SHIFT, _SYNC_SHIFT = 17, 19, 24


class Dmamux(PlainRegisters):
    """Multiplexer, request generators and synchronization. A channel's request is the signal ``DMAMUX1_0``..."""

    def __init__(self, after_reset: Mapping[int, int], wiring: Wiring, family: str) -> None:
        self._signals, self._name = wiring.signals, wiring.name
        self._channels = sum(offset < 0x80 for offset in after_reset)
        rows = re.sub(r"\n ", "", _TEXT.read_text()).splitlines()
        lists = [row.split()[3:] for row in rows if row.startswith(f"{family} {wiring.name} ")]
        requests, self._generators, self._synchronization = lists
        self._levels: dict[int, bool | None] = {}  # None for a pulse that no channel has taken
        super().__init__(after_reset)
        for number, name in enumerate(requests, 1):
            self._signals.listen(name, functools.partial(self._request, number))
        for name in {*self._generators, *self._synchronization}:
            self._signals.listen(name, functools.partial(self._trigger, name))

    def reset(self) -> None:
        super().reset()
        self._allowed = [0] * self._channels  # requests that the last synchronization event lets pass
        for channel in range(self._channels):
            self._signals.set(f"{self._name}_{channel}", False)

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        if offset < 4 * self._channels:
            self._pass(offset // 4)

    def _request(self, number: int, level: bool | None) -> None:
        self._levels[number] = level
        for channel in range(self._channels):
            if self.load(4 * channel) & _REQUEST == number:
                self._pass(channel)

    def _pass(self, channel: int) -> None:
        control, name = self.load(4 * channel), f"{self._name}_{channel}"
        number = control & _REQUEST
        level = self._levels.get(number, False)
        if level is None:
            self._levels[number] = False
        if not control & _SE:
            self._signals.set(name, level)
            return
        self._signals.set(name, False)
        while self._allowed[channel] and level is not False:
            self._allowed[channel] -= 1
            self._signals.set(name, None)
            if control & _EGE and not self._allowed[channel]:
                self._signals.set(f"{self._name}_EVT{channel}", None)
            level = self._levels.get(number, False)

    def _trigger(self, source: str, level: bool | None) -> None:
        edges = (3 if level is None else 1 if level else 2) << _POLARITY_SHIFT
        for offset in (*range(_GENERATORS, _STATUS, 4), *range(0, 4 * self._channels, 4)):
            control, generates = self.load(offset), offset >= _GENERATORS
            names = self._generators if generates else self._synchronization
            selection = control & 31 if generates else control >> _SYNC_SHIFT
            if not control & _SE or not control & edges or names[selection & 31 :][:1] != [source]:
                continue
            number = (control >> _NUMBER_SHIFT & 31) + 1
            if generates:
                for _ in range(number):
                    self._request(1 + (offset - _GENERATORS) // 4, None)
            else:
                self._allowed[offset // 4] = number
                self._pass(offset // 4)
