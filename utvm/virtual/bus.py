# SPDX-License-Identifier: Apache-2.0
"""The memory map: which address belongs to which memory or peripheral."""

import ctypes
import mmap
from collections.abc import Callable
from enum import Enum, auto
from random import Random

from utvm.virtual.spec import RegionSpec

PAGE = 0x400
"""What addresses and sizes of devices are multiples of."""


class BusError(Exception):
    """An access that nobody answers, or that is refused."""

    def __init__(self, address: int) -> None:
        super().__init__(f"bus error at {address:#010x}")
        self.address = address


class ResetCause(Enum):
    """Why a board is reset: for registers that tell."""

    POWER = auto()
    PIN = auto()
    SOFTWARE = auto()


class Device:
    """Registers on the bus. A subclass thinks in 32-bit words; accesses to parts of one are led back to words.

    Attributes:
        size: bytes of address space, a multiple of :data:`PAGE`.
    """

    size = PAGE

    def load(self, offset: int) -> int:
        """Return the word at an offset that is a multiple of 4. Reserved words read as zero."""
        raise NotImplementedError

    def store(self, offset: int, value: int, lanes: int) -> None:
        """Write to the word at an offset that is a multiple of 4.

        Args:
            value: the bits written, in place; zero where nothing was written.
            lanes: ones where something was written: 0xFFFFFFFF, or less for a byte or halfword.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Take the state after a system reset."""

    def was_reset(self, cause: ResetCause) -> None:
        """Learn why :meth:`reset` was called, right after it."""

    def read(self, offset: int, size: int) -> int:
        """Return 1, 2 or 4 bytes that do not cross a word."""
        lane = 8 * (offset & 3)
        return self.load(offset & ~3) >> lane & (1 << 8 * size) - 1

    def write(self, offset: int, size: int, value: int) -> None:
        """Write 1, 2 or 4 bytes that do not cross a word."""
        lane = 8 * (offset & 3)
        lanes = (1 << 8 * size) - 1 << lane
        self.store(offset & ~3, value << lane & lanes, lanes)

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        """Write from the core. Differs where a register is locked for software but not for a debugger."""
        self.write(offset, size, value)


class SerialDevice(Device):
    """Registers of something with a line to the host."""

    def receive(self, data: bytes) -> None:
        """Put bytes on the line to the board; each takes its time to arrive."""
        raise NotImplementedError


class MemoryBank:
    """A region of memory and its bytes, which live at a fixed address of this process.

    Args:
        region: what it is.
        shared: the memory that this one shows under another address.
    """

    def __init__(self, region: RegionSpec, shared: "MemoryBank | None" = None) -> None:
        self.region = region
        self.start = region.address
        self.end = region.address + region.size
        self.bytes: mmap.mmap = shared.bytes if shared else mmap.mmap(-1, region.size)
        self.host_address = ctypes.addressof(ctypes.c_char.from_buffer(self.bytes))

    def fill(self, value: int) -> None:
        """Set every byte."""
        self.bytes[:] = bytes([value]) * self.region.size

    def lose(self, noise: Random) -> None:
        """Forget everything, as RAM without power: no byte is what it was, and none is zero, which could pass."""
        found = (
            after if after != before else after % 255 + 1
            for before, after in zip(self.bytes[:], noise.choices(range(1, 256), k=self.region.size), strict=True)
        )
        self.bytes[:] = bytes(found)


Program = Callable[[int, int, int], None]


class Bus:
    """Memories and devices by address, as a debug port sees them.

    Attributes:
        memories: all memories, in the order given.
        program: takes a write to flash: address, size in bytes, value.
        on_memory_change: told the first address and the address after a change of memory from outside the core.
    """

    def __init__(self, regions: tuple[RegionSpec, ...]) -> None:
        by_name: dict[str, MemoryBank] = {}
        for region in sorted(regions, key=lambda region: region.alias_of is not None):
            by_name[region.name] = MemoryBank(region, by_name[region.alias_of] if region.alias_of else None)
        self.memories = [by_name[region.name] for region in regions]
        self.devices: list[tuple[int, Device]] = []
        self.program: Program | None = None
        self.on_memory_change: Callable[[int, int], None] = lambda start, end: None

    def add(self, address: int, device: Device) -> None:
        """Put a device at an address."""
        self.devices.append((address, device))

    def is_taken(self, address: int, size: int) -> bool:
        """Whether memory or a device answers somewhere in these bytes."""
        spans = [(memory.start, memory.end) for memory in self.memories]
        spans += [(start, start + device.size) for start, device in self.devices]
        return any(start < address + size and address < end for start, end in spans)

    def memory_at(self, address: int) -> MemoryBank | None:
        """Return the memory that holds an address, or None."""
        for memory in self.memories:
            if memory.start <= address < memory.end:
                return memory
        return None

    def read(self, address: int, size: int) -> bytes:
        """Return bytes. Devices are read in words, or in one access of 1 or 2 bytes."""
        memory = self.memory_at(address)
        if memory is None:
            return self._read_device(address, size)
        offset = address - memory.start
        if address + size > memory.end:
            return memory.bytes[offset:] + self.read(memory.end, address + size - memory.end)
        return memory.bytes[offset : offset + size]

    def write(self, address: int, data: bytes) -> None:
        """Write bytes; what lies in flash goes to the flash controller in words, or in one access of 1 or 2
        bytes.
        """
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
        """Hand a write to a memory that is not RAM to whoever takes it."""
        memory = self.memory_at(address)
        if memory is None or memory.region.kind != "flash" or memory.region.alias_of or self.program is None:
            raise BusError(address)
        self.program(address, size, value)

    def device_at(self, address: int) -> tuple[Device, int]:
        """Return the device that holds an address, and the offset in it."""
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


def _accesses(address: int, size: int) -> list[tuple[int, int]]:
    """Split a block into the aligned accesses a bus master makes: (offset, width)."""
    accesses = []
    offset = 0
    while offset < size:
        width = next(w for w in (4, 2, 1) if (address + offset) % w == 0 and offset + w <= size)
        accesses.append((offset, width))
        offset += width
    return accesses
