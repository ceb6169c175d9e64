# SPDX-License-Identifier: Apache-2.0
"""Debug port and access ports of a virtual board: ADIv5, ARM IHI 0031.

The debug port (DP) is powered up, selects an access port and stores sticky errors; an access port (AP) reads and
writes memory. A core's debug registers are in that memory, so this module knows no core.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from utvm.virtual.bus import BusError

# DP registers, by address and bank (IHI 0031, section B2.2)
DP_DPIDR, DP_ABORT, DP_CTRL_STAT, DP_SELECT, DP_RDBUFF = 0x0, 0x0, 0x4, 0x8, 0xC

_BANK_CTRL_STAT, _BANK_DLCR, _BANK_TARGETID, _BANK_DLPIDR = 0, 1, 2, 3

# CTRL/STAT
STICKYERR, CDBGPWRUPREQ, CSYSPWRUPREQ = 1 << 5, 1 << 28, 1 << 30
_REQUEST_TO_ACKNOWLEDGE = 1  # shift from a request bit to its acknowledge bit
_CTRL_WRITABLE = 0x54FFFF01  # requests, TRNCNT, MASKLANE, TRNMODE, ORUNDETECT

# ABORT
STKERRCLR = 1 << 2

# AP registers
AP_CSW, AP_TAR, AP_DRW, AP_BD0, AP_BD3, AP_BASE, AP_IDR = 0x00, 0x04, 0x0C, 0x10, 0x1C, 0xF8, 0xFC

_CTRL_AP, _ERASEALL, _APPROTECTSTATUS = 0x02880000, 0x04, 0x0C

# CSW
CSW_SIZE, CSW_ADDRESS_INCREMENT, CSW_INCREMENT_SINGLE, CSW_DEVICE_ENABLED = 0x7, 0x30, 0x10, 1 << 6
_CSW_WRITABLE = 0x7F000037  # Prot, AddrInc, Size

_TAR_WRAP = 0x400  # auto-increment is guaranteed only within 1 KiB (IHI 0031, section C2.2.2)


JTAG_ABORT, JTAG_DPACC, JTAG_APACC, JTAG_IDCODE = 0x8, 0xA, 0xB, 0xE
"""Instructions of a JTAG-DP, of 4 bits (IHI 0031, table B3-1)."""
JTAG_REGISTER_BITS = 35
_DONE = 0b010


@dataclass(frozen=True)
class FurtherPort:
    """A memory access port besides AP 0; ``size`` bytes from ``start`` show those of AP 0 from ``shows``."""

    identification: int
    base: int
    start: int = 0
    size: int = 0
    shows: int = 0


@dataclass(frozen=True)
class PortIds:
    """Identification of a debug port and its access ports.

    Attributes:
        identification: DPIDR.
        access_port: IDR of AP 0.
        base: BASE of AP 0: the address of a ROM table, with flags.
        others: constant registers of further access ports without memory, by number.
        wrap: size in bytes of the block in which AP 0's address is incremented.
        further: further access ports with memory, by number.
    """

    identification: int
    access_port: int
    base: int
    others: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    wrap: int = _TAR_WRAP
    further: Mapping[int, FurtherPort] = field(default_factory=dict)


class DebugMemory(Protocol):
    """The memory of an access port. Refused accesses raise :class:`BusError`."""

    def read(self, address: int, size: int) -> bytes: ...

    def write(self, address: int, data: bytes) -> None: ...


class AccessPort:
    """An access port with constant registers; those for memory access raise :class:`BusError` if it is refused.

    CTRL-AP of the nRF52 has effects (nRF52840 Product Specification 1.7, 4.8.2): ERASEALL and APPROTECTSTATUS.
    """

    def __init__(self, registers: Mapping[int, int], memory: object = None) -> None:
        self._registers = registers
        self._recovered = memory if registers.get(AP_IDR) == _CTRL_AP else None

    def power_on(self) -> None:
        """Reset the registers."""

    def read(self, register: int) -> int:
        if register == _APPROTECTSTATUS and self._recovered:
            return int(not getattr(self._recovered, "protected", False))
        return self._registers.get(register, 0)

    def write(self, register: int, value: int) -> None:
        if register == _ERASEALL and value & 1 and self._recovered:
            getattr(self._recovered, "erase_all", int)()


class _Window:
    def __init__(self, memory: DebugMemory, port: FurtherPort) -> None:
        self._memory = memory
        self._port = port

    def read(self, address: int, size: int) -> bytes:
        return self._memory.read(self._translate(address, size), size)

    def write(self, address: int, data: bytes) -> None:
        self._memory.write(self._translate(address, len(data)), data)

    def _translate(self, address: int, size: int) -> int:
        offset = address - self._port.start
        if not 0 <= offset <= self._port.size - size:
            raise BusError(address)
        return self._port.shows + offset


class MemoryAccessPort(AccessPort):
    """An AHB-AP: 8, 16 and 32-bit accesses, single auto-increment, no packed transfers."""

    def __init__(self, memory: DebugMemory, *, identification: int, base: int, wrap: int = _TAR_WRAP) -> None:
        self._wrap = wrap
        self._memory = memory
        self._identification = identification
        self._base = base
        self.power_on()

    def power_on(self) -> None:
        self._control = 0x03000042
        self._address = 0

    def read(self, register: int) -> int:
        if register == AP_DRW:
            value = self._load(self._address, 1 << (self._control & CSW_SIZE))
            self._increment()
            return value
        if AP_BD0 <= register <= AP_BD3:
            return self._load(self._bank_address(register), 4)
        fixed = {
            AP_CSW: self._control | CSW_DEVICE_ENABLED,
            AP_TAR: self._address,
            AP_BASE: self._base,
            AP_IDR: self._identification,
        }
        return fixed.get(register, 0)

    def write(self, register: int, value: int) -> None:
        if register == AP_CSW:
            self._set_control(value)
        elif register == AP_TAR:
            self._address = value
        elif register == AP_DRW:
            self._store(self._address, 1 << (self._control & CSW_SIZE), value)
            self._increment()
        elif AP_BD0 <= register <= AP_BD3:
            self._store(self._bank_address(register), 4, value)

    def read_block(self, address: int, size: int, width: int) -> bytes:
        """Read a block by accesses of ``width`` bytes, as with TAR and repeated reads of DRW."""
        self._address = address
        if width == 4:
            data = self._memory.read(address, size)
        else:
            data = b"".join(self._memory.read(address + offset, width) for offset in range(0, size, width))
        self._advance(size)
        return data

    def write_block(self, address: int, data: bytes, width: int) -> None:
        """Write a block by accesses of ``width`` bytes, as with TAR and repeated writes of DRW."""
        self._address = address
        if width == 4:
            self._memory.write(address, data)
        else:
            for offset in range(0, len(data), width):
                self._memory.write(address + offset, data[offset : offset + width])
        self._advance(len(data))

    def _advance(self, size: int) -> None:
        if size:
            last, following = self._address + size - 1, self._address + size
            self._address = last & ~(self._wrap - 1) | following & (self._wrap - 1)

    def _set_control(self, value: int) -> None:
        self._control = value & _CSW_WRITABLE
        if self._control & CSW_SIZE > 2:  # 64-bit and wider accesses are not implemented: read back as words
            self._control = self._control & ~CSW_SIZE | 2
        if self._control & CSW_ADDRESS_INCREMENT != CSW_INCREMENT_SINGLE:
            self._control &= ~CSW_ADDRESS_INCREMENT

    def _bank_address(self, register: int) -> int:
        return self._address & ~0xF | register & 0xC

    def _load(self, address: int, width: int) -> int:
        if address % width:
            raise BusError(address)
        lane = 8 * (address & 3)
        return int.from_bytes(self._memory.read(address, width), "little") << lane & 0xFFFFFFFF

    def _store(self, address: int, width: int, value: int) -> None:
        if address % width:
            raise BusError(address)
        lane = 8 * (address & 3)
        self._memory.write(address, (value >> lane & (1 << 8 * width) - 1).to_bytes(width, "little"))

    def _increment(self) -> None:
        if self._control & CSW_ADDRESS_INCREMENT:
            following = self._address + (1 << (self._control & CSW_SIZE))
            self._address = self._address & ~(self._wrap - 1) | following & (self._wrap - 1)


class ArmDebugPort:
    """A debug port with access ports by number: the common part of SW-DP and JTAG-DP.

    Reads of an access port are posted: :meth:`read_ap` returns the result of the previous read, RDBUFF that of the
    last one (IHI 0031, section B4.2). After a bus error, which sets STICKYERR, access ports do not respond until
    it is cleared.
    """

    def __init__(self, identification: int, ports: Mapping[int, AccessPort]) -> None:
        self.identification = identification
        self._ports = ports
        self.power_on()

    def power_on(self) -> None:
        for port in self._ports.values():
            port.power_on()
        self._control = 0
        self._select = 0
        self._posted = 0

    @property
    def powered(self) -> bool:
        """True if the debug domain is powered up, as access ports require."""
        return bool(self._control & CDBGPWRUPREQ)

    @property
    def failed(self) -> bool:
        """True if the sticky error flag is set."""
        return bool(self._control & STICKYERR)

    def read(self, register: int) -> int:
        """Read a DP register (0x0, 0x4, 0x8 or 0xC); SELECT.DPBANKSEL selects the bank of 0x4."""
        if register == DP_DPIDR:
            return self.identification
        if register == DP_CTRL_STAT:
            return self._read_bank(self._select & 0xF)
        return self._posted  # RDBUFF and RESEND

    def write(self, register: int, value: int) -> None:
        """Write a DP register."""
        if register == DP_ABORT:
            if value & STKERRCLR:
                self._control &= ~STICKYERR
        elif register == DP_CTRL_STAT:
            if self._select & 0xF == _BANK_CTRL_STAT:
                self._control = value & _CTRL_WRITABLE | self._control & STICKYERR
        elif register == DP_SELECT:
            self._select = value

    def read_ap(self, register: int) -> int:
        """Read a register of the selected access port; return the result of the previous read."""
        before = self._posted
        if self._is_ap_accessible():
            port = self._ports.get(self._select >> 24)
            try:
                self._posted = port.read(self._select & 0xF0 | register) if port else 0
            except BusError:
                self.fail()
        return before

    def write_ap(self, register: int, value: int) -> None:
        """Write a register of the selected access port, if it exists."""
        port = self._ports.get(self._select >> 24)
        if self._is_ap_accessible() and port:
            try:
                port.write(self._select & 0xF0 | register, value)
            except BusError:
                self.fail()

    def fail(self) -> None:
        """Set the sticky error flag."""
        self._control |= STICKYERR

    def _is_ap_accessible(self) -> bool:
        if not self.powered:
            self.fail()
        return not self.failed

    def _read_bank(self, bank: int) -> int:
        if bank == _BANK_CTRL_STAT:
            requests = self._control & (CDBGPWRUPREQ | CSYSPWRUPREQ)
            return self._control | requests << _REQUEST_TO_ACKNOWLEDGE
        return {
            _BANK_DLCR: 0x40,  # bit 6 reads as one; turnaround of one cycle
            _BANK_TARGETID: 1,  # bit 0 reads as one; no designer, no part
            _BANK_DLPIDR: 1,  # SWD protocol version 2
        }.get(bank, 0)


class SwDebugPort(ArmDebugPort):
    """A SW-DP, version 2. ``ap`` is AP 0, ``memory_ports`` all access ports with memory, by number."""

    def __init__(self, memory: DebugMemory, ids: PortIds) -> None:
        self.ap = MemoryAccessPort(memory, identification=ids.access_port, base=ids.base, wrap=ids.wrap)
        self.memory_ports = {0: self.ap} | {
            number: MemoryAccessPort(_Window(memory, port), identification=port.identification, base=port.base)
            for number, port in ids.further.items()
        }
        others = {number: AccessPort(registers, memory) for number, registers in ids.others.items()}
        super().__init__(ids.identification, {**others, **self.memory_ports})


class JtagDebugPort(ArmDebugPort):
    """A JTAG-DP, version 0. A 35-bit scan transfers a request and the previous result.

    Sticky errors are cleared by writing ones to CTRL/STAT (IHI 0031, B2.2.2 and B3.2).
    """

    def __init__(self, ports: Mapping[int, AccessPort]) -> None:
        self._result = 0
        super().__init__(0, ports)

    def capture(self, instruction: int) -> int:
        """Return the result of the previous request, which is always complete."""
        del instruction
        return self._result << 3 | _DONE

    def update(self, instruction: int, value: int) -> None:
        """Execute a request: read flag, bits 3:2 of the register, data."""
        reads, register, data = value & 1, value << 1 & 0xC, value >> 3 & 0xFFFFFFFF
        if instruction == JTAG_APACC and reads:
            self.read_ap(register)
            self._result = self._posted
        elif instruction == JTAG_APACC:
            self.write_ap(register, data)
        elif instruction == JTAG_DPACC and reads:
            # RDBUFF has no value of its own: a host reads it for the previous result.
            self._result = 0 if register == DP_RDBUFF else self.read(register)
        elif instruction == JTAG_DPACC and register != DP_DPIDR:
            if register == DP_CTRL_STAT and data & STICKYERR:
                self._control &= ~STICKYERR
            self.write(register, data)

    def read(self, register: int) -> int:
        return self._select if register == DP_SELECT else super().read(register)


_SLEEP_ERROR = 0.0002  # seconds


def wait_until(deadline: float) -> None:
    """Wait until a time of the monotonic clock, to a few microseconds; sleep() alone is 50 to 100 late."""
    remaining = deadline - time.monotonic()
    if remaining > _SLEEP_ERROR:
        time.sleep(remaining - _SLEEP_ERROR)
    while time.monotonic() < deadline:
        pass
