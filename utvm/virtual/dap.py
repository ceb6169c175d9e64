# SPDX-License-Identifier: Apache-2.0
"""Debug port and access ports of a virtual board: ADIv5, ARM IHI 0031.

What a debug probe's wires reach. The debug port (DP) is powered up, selects an access port and keeps sticky
errors; an access port (AP) reads and writes memory. A core's debug registers are in such memory, so nothing here
knows about a core.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from utvm.virtual.bus import BusError

# DP registers, by address and bank (IHI 0031, section B2.2)
DP_DPIDR = 0x0
DP_ABORT = 0x0
DP_CTRL_STAT = 0x4
DP_SELECT = 0x8
DP_RDBUFF = 0xC

_BANK_CTRL_STAT = 0
_BANK_DLCR = 1
_BANK_TARGETID = 2
_BANK_DLPIDR = 3

# CTRL/STAT
STICKYERR = 1 << 5
CDBGPWRUPREQ = 1 << 28
CSYSPWRUPREQ = 1 << 30
_REQUEST_TO_ACKNOWLEDGE = 1  # each acknowledge bit stands right above its request bit
_CTRL_WRITABLE = 0x54FFFF01  # requests, TRNCNT, MASKLANE, TRNMODE, ORUNDETECT

# ABORT
STKERRCLR = 1 << 2

# AP registers
AP_CSW = 0x00
AP_TAR = 0x04
AP_DRW = 0x0C
AP_BD0 = 0x10
AP_BD3 = 0x1C
AP_BASE = 0xF8
AP_IDR = 0xFC

# CSW
CSW_SIZE = 0x7
CSW_ADDRESS_INCREMENT = 0x30
CSW_INCREMENT_SINGLE = 0x10
CSW_DEVICE_ENABLED = 1 << 6
_CSW_WRITABLE = 0x7F000037  # Prot, AddrInc, Size

_TAR_WRAP = 0x400  # auto-increment is only promised within 1 KiB (IHI 0031, section C2.2.2)


JTAG_ABORT, JTAG_DPACC, JTAG_APACC, JTAG_IDCODE = 0x8, 0xA, 0xB, 0xE
"""Instructions of a JTAG-DP, of 4 bits (IHI 0031, table B3-1)."""
JTAG_REGISTER_BITS = 35
_DONE = 0b010


@dataclass(frozen=True)
class FurtherPort:
    """An access port beside AP 0: its IDR and BASE, and the ``size`` bytes from ``start`` on that it reaches.

    They are those that AP 0 has from ``shows`` on.
    """

    identification: int
    base: int
    start: int = 0
    size: int = 0
    shows: int = 0


@dataclass(frozen=True)
class PortIds:
    """What a debug port says that it is: DPIDR, and of AP 0 IDR and BASE, a ROM table's address with its flags.

    ``others`` are further access ports, a chip's own, by number: their registers, which never change; ``further``
    are those that reach memory. ``wrap`` is after how many bytes AP 0's address wraps when it is incremented.
    """

    identification: int
    access_port: int
    base: int
    others: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    wrap: int = _TAR_WRAP
    further: Mapping[int, FurtherPort] = field(default_factory=dict)


class DebugMemory(Protocol):
    """The memory an access port masters: a :class:`utvm.virtual.machine.BoardModel`, or a stand-in."""

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes, or raise :class:`BusError`."""

    def write(self, address: int, data: bytes) -> None:
        """Write bytes, or raise :class:`BusError`."""


class AccessPort(Protocol):
    """An access port, as the debug port sees it."""

    def power_on(self) -> None:
        """Take the state after power-on."""

    def read(self, register: int) -> int:
        """Return a register; raises BusError where that takes an access to memory, and it is refused."""

    def write(self, register: int, value: int) -> None:
        """Write a register; raises as :meth:`read`."""


class FixedAccessPort:
    """An access port whose registers never change."""

    def __init__(self, registers: Mapping[int, int]) -> None:
        self._registers = registers

    def power_on(self) -> None:
        """Take the state after power-on."""

    def read(self, register: int) -> int:
        """Return a register, zero where it has none."""
        return self._registers.get(register, 0)

    def write(self, register: int, value: int) -> None:
        """Ignore it."""


class _Window:
    """What a further access port reaches of the memory."""

    def __init__(self, memory: DebugMemory, port: FurtherPort) -> None:
        self._memory = memory
        self._port = port

    def read(self, address: int, size: int) -> bytes:
        return self._memory.read(self._shown(address, size), size)

    def write(self, address: int, data: bytes) -> None:
        self._memory.write(self._shown(address, len(data)), data)

    def _shown(self, address: int, size: int) -> int:
        offset = address - self._port.start
        if not 0 <= offset <= self._port.size - size:
            raise BusError(address)
        return self._port.shows + offset


class MemoryAccessPort:
    """An AHB-AP: 8, 16 and 32-bit accesses, single auto-increment, no packed transfers."""

    def __init__(self, memory: DebugMemory, *, identification: int, base: int, wrap: int = _TAR_WRAP) -> None:
        self._wrap = wrap
        self._memory = memory
        self._identification = identification
        self._base = base
        self.power_on()

    def power_on(self) -> None:
        """Take the state after power-on."""
        self._control = 0x03000042
        self._address = 0

    def read(self, register: int) -> int:
        """Return an AP register."""
        if register == AP_DRW:
            value = self._load(self._address, 1 << (self._control & CSW_SIZE))
            self._increment()
            return value
        if AP_BD0 <= register <= AP_BD3:
            return self._load(self._banked(register), 4)
        fixed = {
            AP_CSW: self._control | CSW_DEVICE_ENABLED,
            AP_TAR: self._address,
            AP_BASE: self._base,
            AP_IDR: self._identification,
        }
        return fixed.get(register, 0)

    def write(self, register: int, value: int) -> None:
        """Write an AP register."""
        if register == AP_CSW:
            self._set_control(value)
        elif register == AP_TAR:
            self._address = value
        elif register == AP_DRW:
            self._store(self._address, 1 << (self._control & CSW_SIZE), value)
            self._increment()
        elif AP_BD0 <= register <= AP_BD3:
            self._store(self._banked(register), 4, value)

    def read_block(self, address: int, size: int, width: int) -> bytes:
        """Return ``size`` bytes read by accesses of ``width`` bytes: what TAR and a row of DRW reads give."""
        self._address = address
        if width == 4:
            data = self._memory.read(address, size)
        else:
            data = b"".join(self._memory.read(address + offset, width) for offset in range(0, size, width))
        self._pass(size)
        return data

    def write_block(self, address: int, data: bytes, width: int) -> None:
        """Write bytes by accesses of ``width`` bytes: what TAR and a row of DRW writes do."""
        self._address = address
        if width == 4:
            self._memory.write(address, data)
        else:
            for offset in range(0, len(data), width):
                self._memory.write(address + offset, data[offset : offset + width])
        self._pass(len(data))

    def _pass(self, size: int) -> None:
        if size:
            last, following = self._address + size - 1, self._address + size
            self._address = last & ~(self._wrap - 1) | following & (self._wrap - 1)

    def _set_control(self, value: int) -> None:
        self._control = value & _CSW_WRITABLE
        if self._control & CSW_SIZE > 2:  # 64-bit and wider accesses are not implemented: read back as words
            self._control = self._control & ~CSW_SIZE | 2
        if self._control & CSW_ADDRESS_INCREMENT != CSW_INCREMENT_SINGLE:
            self._control &= ~CSW_ADDRESS_INCREMENT

    def _banked(self, register: int) -> int:
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
    """A debug port with its access ports: what SW-DP and JTAG-DP share.

    Reads of an access port are posted: :meth:`read_ap` gives the result of the read before it, and RDBUFF the
    last one (IHI 0031, section B4.2). A bus error sets STICKYERR; from then on accesses to the access port do
    nothing until that is cleared.

    Args:
        identification: DPIDR.
        ports: the access ports, by their number.
    """

    def __init__(self, identification: int, ports: Mapping[int, AccessPort]) -> None:
        self.identification = identification
        self._ports = ports
        self.power_on()

    def power_on(self) -> None:
        """Take the state after power-on: nothing is powered up or selected, no error stands."""
        for port in self._ports.values():
            port.power_on()
        self._control = 0
        self._select = 0
        self._posted = 0

    @property
    def powered(self) -> bool:
        """Whether the debug domain is powered up, without which no access port answers."""
        return bool(self._control & CDBGPWRUPREQ)

    @property
    def failed(self) -> bool:
        """Whether a sticky error stands."""
        return bool(self._control & STICKYERR)

    def read(self, register: int) -> int:
        """Return a DP register (0x0, 0x4, 0x8 or 0xC); SELECT.DPBANKSEL picks what 0x4 is."""
        if register == DP_DPIDR:
            return self.identification
        if register == DP_CTRL_STAT:
            return self._read_banked(self._select & 0xF)
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
        """Read a register of the selected access port and return the result of the read before it."""
        before = self._posted
        if self._ap_answers():
            port = self._ports.get(self._select >> 24)
            try:
                self._posted = port.read(self._select & 0xF0 | register) if port else 0
            except BusError:
                self.fail()
        return before

    def write_ap(self, register: int, value: int) -> None:
        """Write a register of the selected access port. An access port that is not there ignores it."""
        port = self._ports.get(self._select >> 24)
        if self._ap_answers() and port:
            try:
                port.write(self._select & 0xF0 | register, value)
            except BusError:
                self.fail()

    def fail(self) -> None:
        """Set the sticky error flag, as a refused transaction does."""
        self._control |= STICKYERR

    def _ap_answers(self) -> bool:
        if not self.powered:
            self.fail()
        return not self.failed

    def _read_banked(self, bank: int) -> int:
        if bank == _BANK_CTRL_STAT:
            requests = self._control & (CDBGPWRUPREQ | CSYSPWRUPREQ)
            return self._control | requests << _REQUEST_TO_ACKNOWLEDGE
        if bank == _BANK_DLCR:
            return 0x40  # bit 6 reads as one; turnaround of one cycle
        if bank == _BANK_TARGETID:
            return 1  # bit 0 reads as one; names no designer and no part
        if bank == _BANK_DLPIDR:
            return 1  # SWD protocol version 2
        return 0


class SwDebugPort(ArmDebugPort):
    """A SW-DP, version 2, with its access ports.

    Args:
        memory: what AP 0 masters.
        ids: what it says that it is.

    Attributes:
        ap: AP 0.
        memory_ports: those that reach memory, by number.
    """

    def __init__(self, memory: DebugMemory, ids: PortIds) -> None:
        self.ap = MemoryAccessPort(memory, identification=ids.access_port, base=ids.base, wrap=ids.wrap)
        self.memory_ports = {0: self.ap} | {
            number: MemoryAccessPort(_Window(memory, port), identification=port.identification, base=port.base)
            for number, port in ids.further.items()
        }
        others = {number: FixedAccessPort(registers) for number, registers in ids.others.items()}
        super().__init__(ids.identification, {**others, **self.memory_ports})


class JtagDebugPort(ArmDebugPort):
    """A JTAG-DP, version 0: two registers of 35 bits, of which a scan takes a request and shows the last result.

    Its sticky errors are cleared by writing ones to CTRL/STAT (IHI 0031, B2.2.2 and B3.2).
    """

    def __init__(self, ports: Mapping[int, AccessPort]) -> None:
        self._result = 0
        super().__init__(0, ports)

    def capture(self, instruction: int) -> int:
        """Return what a scan shows: the result of the request before, which is done."""
        del instruction
        return self._result << 3 | _DONE

    def update(self, instruction: int, value: int) -> None:
        """Take a request: whether it reads, bits 3:2 of the register, the data."""
        reads, register, data = value & 1, value << 1 & 0xC, value >> 3 & 0xFFFFFFFF
        if instruction == JTAG_APACC and reads:
            self.read_ap(register)
            self._result = self._posted
        elif instruction == JTAG_APACC:
            self.write_ap(register, data)
        elif instruction == JTAG_DPACC and reads:
            # RDBUFF has nothing of its own: what is read with it is the result before.
            self._result = 0 if register == DP_RDBUFF else self.read(register)
        elif instruction == JTAG_DPACC and register != DP_DPIDR:
            if register == DP_CTRL_STAT and data & STICKYERR:
                self._control &= ~STICKYERR
            self.write(register, data)

    def read(self, register: int) -> int:
        """Return a DP register."""
        return self._select if register == DP_SELECT else super().read(register)
