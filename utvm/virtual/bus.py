# SPDX-License-Identifier: Apache-2.0
"""The bus of a virtual board: memories and devices by address."""

import ctypes
import mmap
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from random import Random

from utvm.virtual.spec import RegionSpec

PAGE = 0x400
"""Addresses and sizes of devices are multiples of this."""


class BusError(Exception):
    """An access to an address without memory or device, or one that is refused."""

    def __init__(self, address: int) -> None:
        super().__init__(f"bus error at {address:#010x}")
        self.address = address


class ResetCause(Enum):
    """Cause of a reset, for registers with reset flags."""

    POWER = auto()
    PIN = auto()
    SOFTWARE = auto()
    WATCHDOG = auto()
    WINDOW_WATCHDOG = auto()


class Device:
    """Registers on the bus. Subclasses implement 32-bit accesses; bytes and halfwords are parts of these words.

    ``size`` is a multiple of :data:`PAGE`, in bytes. Loads that poll are at most ``loop`` instructions apart.
    """

    size, loop = PAGE, 48

    def load(self, offset: int) -> int:
        """Read the word at an offset. Reserved words read as zero."""
        raise NotImplementedError

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write to the word at an offset: bits at their position in the word.

        ``lanes`` is the mask of the bits written: 0xFFFFFFFF, or a part for a byte or halfword.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Reset the registers, as a system reset does."""

    def was_reset(self, cause: ResetCause) -> None:
        """Receive the cause, right after :meth:`reset`."""

    def touch(self, offset: int) -> None:
        """Receive the offset of an access by the core, before it."""

    def read(self, offset: int, size: int) -> int:
        """Read 1, 2 or 4 bytes within a word."""
        lane = 8 * (offset & 3)
        return self.load(offset & ~3) >> lane & (1 << 8 * size) - 1

    def write(self, offset: int, size: int, value: int) -> None:
        """Write 1, 2 or 4 bytes within a word."""
        lane = 8 * (offset & 3)
        lanes = (1 << 8 * size) - 1 << lane
        self.store(offset & ~3, value << lane & lanes, lanes)

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        """Write from the core; differs for registers with a software lock."""
        self.write(offset, size, value)


class PlainRegisters(Device):
    """Registers that store their value, like those of a GPIO port with unconnected pins.

    ``after_reset`` are values by offset, else zero; ``read_only`` are offsets that ignore writes.
    """

    def __init__(
        self, after_reset: Mapping[int, int] | None = None, read_only: Collection[int] = (), size: int = PAGE
    ) -> None:
        self._after_reset = dict(after_reset or {})
        self._read_only = read_only
        self.size = size
        self.reset()

    def reset(self) -> None:
        self.values = dict(self._after_reset)

    def load(self, offset: int) -> int:
        return self.values.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset not in self._read_only:
            self.values[offset] = self.values.get(offset, 0) & ~lanes | value


class MemoryBank:
    """A region of memory at a fixed address of this process; ``shared`` is the memory that it mirrors."""

    def __init__(self, region: RegionSpec, shared: "MemoryBank | None" = None) -> None:
        self.region = region
        self.start = region.address
        self.end = region.address + region.size
        self.bytes: mmap.mmap = shared.bytes if shared else mmap.mmap(-1, region.size)
        self.host_address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))

    def fill(self, value: int) -> None:
        self.bytes[:] = bytes([value]) * self.region.size

    def lose(self, noise: Random) -> None:
        """Change every byte to a random one other than zero, as RAM without power loses its contents."""
        changed = (
            after if after != before else after % 255 + 1
            for before, after in zip(self.bytes[:], noise.choices(range(1, 256), k=self.region.size), strict=True)
        )
        self.bytes[:] = bytes(changed)


Program = Callable[[int, int, int], None]


class Bus:
    """Memories and devices by address, as a debug port sees them.

    ``program`` handles a write to flash: address, size in bytes, value. ``on_memory_change`` is called with start
    and end address when memory is changed from outside the core. ``programmable`` are names of further memories
    that the flash controller writes.
    """

    def __init__(self, regions: tuple[RegionSpec, ...]) -> None:
        by_name: dict[str, MemoryBank] = {}
        for region in sorted(regions, key=lambda region: region.alias_of is not None):
            by_name[region.name] = MemoryBank(region, by_name[region.alias_of] if region.alias_of else None)
        self.memories = [by_name[region.name] for region in regions]
        self.devices: list[tuple[int, Device]] = []
        self.clocks: Device | None = None  # Cached clock controller; see stm32.clocks.
        self.program: Program | None = None
        self.programmable: set[str] = set()
        self.on_memory_change: Callable[[int, int], None] = lambda start, end: None

    def add(self, address: int, device: Device) -> None:
        self.devices.append((address, device))

    def overlaps(self, address: int, size: int) -> bool:
        """True if memory or a device overlaps these bytes."""
        spans = [(memory.start, memory.end) for memory in self.memories]
        spans += [(start, start + device.size) for start, device in self.devices]
        return any(start < address + size and address < end for start, end in spans)

    def memory_at(self, address: int) -> MemoryBank | None:
        """The memory at an address, or None."""
        return next((memory for memory in self.memories if memory.start <= address < memory.end), None)

    def read(self, address: int, size: int) -> bytes:
        """Read bytes; devices by words, or by one access of 1 or 2 bytes."""
        memory = self.memory_at(address)
        if memory is None:
            return self._read_device(address, size)
        offset = address - memory.start
        if address + size > memory.end:
            return memory.bytes[offset:] + self.read(memory.end, address + size - memory.end)
        return memory.bytes[offset : offset + size]

    def write(self, address: int, data: bytes) -> None:
        """Write bytes; to devices and the flash controller by words, or by one access of 1 or 2 bytes."""
        memory = self.memory_at(address)
        if memory is None or memory.region.kind != "ram":
            for offset, width in _accesses(address, len(data)):
                self._write_one(address + offset, width, int.from_bytes(data[offset : offset + width], "little"))
            return
        offset = address - memory.start
        inside = data[: memory.end - address]
        memory.bytes[offset : offset + len(inside)] = inside
        self.on_memory_change(address, address + len(inside))
        if len(inside) < len(data):
            self.write(memory.end, data[len(inside) :])

    def program_flash(self, address: int, size: int, value: int) -> None:
        """Pass a write to memory other than RAM to the flash controller."""
        memory = self.memory_at(address)
        if memory is None or memory.region.alias_of or self.program is None:
            raise BusError(address)
        if memory.region.kind != "flash" and memory.region.name not in self.programmable:
            raise BusError(address)
        self.program(address, size, value)

    def device_at(self, address: int) -> tuple[Device, int]:
        """The device at an address, and the offset in it."""
        for start, device in self.devices:
            if start <= address < start + device.size:
                return device, address - start
        raise BusError(address)

    def _read_device(self, address: int, size: int) -> bytes:
        parts = []
        for offset, width in _accesses(address, size):
            device, inside = self.device_at(address + offset)
            parts.append(device.read(inside, width).to_bytes(width, "little"))
        return b"".join(parts)

    def _write_one(self, address: int, size: int, value: int) -> None:
        if self.memory_at(address):
            self.program_flash(address, size, value)
        else:
            device, inside = self.device_at(address)
            device.write(inside, size, value)


class BitBand(Device):
    """The alias in which a bit of the megabyte at ``base`` is a word (ARM 100166, 3.7)."""

    size = 0x2000000

    def __init__(self, bus: Bus, base: int) -> None:
        self._bus = bus
        self._base = base

    def load(self, offset: int) -> int:
        word, bit = self._base + (offset >> 7 << 2), offset >> 2 & 31
        return int.from_bytes(self._bus.read(word, 4), "little") >> bit & 1

    def store(self, offset: int, value: int, lanes: int) -> None:
        word, bit = self._base + (offset >> 7 << 2), offset >> 2 & 31
        old = int.from_bytes(self._bus.read(word, 4), "little")
        self._bus.write(word, (old & ~(1 << bit) | (value & 1) << bit).to_bytes(4, "little"))


def _accesses(address: int, size: int) -> list[tuple[int, int]]:
    """Split a block into aligned accesses: (offset, width)."""
    accesses = []
    offset = 0
    while offset < size:
        width = next(w for w in (4, 2, 1) if (address + offset) % w == 0 and offset + w <= size)
        accesses.append((offset, width))
        offset += width
    return accesses
