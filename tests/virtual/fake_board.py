# SPDX-License-Identifier: Apache-2.0
"""A fake board, for tests of the layers between a probe's host and the memory."""

from collections import deque

from utvm.virtual.bus import BusError
from utvm.virtual.dap import PortIds

RAM = 0x20000000
IDS = PortIds(0x5BA02477, 0x74770001, 0xE00FD003)  # a Cortex-M7's
RAM_SIZE = 0x4000
DHCSR = 0xE000EDF0
DCRSR = 0xE000EDF4
DCRDR = 0xE000EDF8


class FakeBoard:
    """RAM, a core's register transfer registers, a reset pin and a supply. Everything else is a bus error."""

    def __init__(self, volts: float = 3.3) -> None:
        self.port_ids = IDS
        self.volts = volts
        self.ram = bytearray(RAM_SIZE)
        self.accesses: list[tuple[str, int, int]] = []
        self.registers = {number: 0x1000 + number for number in range(0x80)}
        self.reset_held = False
        self.resets = 0
        self.trace = deque[int]()
        self._transfer = 0

    @property
    def debuggable(self) -> bool:
        return self.volts > 1.7

    def read(self, address: int, size: int) -> bytes:
        self.accesses.append(("read", address, size))
        if address == DHCSR:
            return (1 << 16).to_bytes(4, "little")
        if address == DCRDR:
            return self._transfer.to_bytes(4, "little")
        offset = self._offset(address, size)
        return bytes(self.ram[offset : offset + size])

    def write(self, address: int, data: bytes) -> None:
        self.accesses.append(("write", address, len(data)))
        value = int.from_bytes(data[:4], "little")
        if address == DCRDR:
            self._transfer = value
        elif address == DCRSR and value & 1 << 16:
            self.registers[value & 0x7F] = self._transfer
        elif address == DCRSR:
            self._transfer = self.registers[value & 0x7F]
        else:
            offset = self._offset(address, len(data))
            self.ram[offset : offset + len(data)] = data

    def hold_reset(self) -> None:
        self.reset_held = True

    def release_reset(self) -> None:
        self.resets += self.reset_held
        self.reset_held = False

    def _offset(self, address: int, size: int) -> int:
        if not RAM <= address <= address + size <= RAM + RAM_SIZE:
            raise BusError(address)
        return address - RAM
