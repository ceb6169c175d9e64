# SPDX-License-Identifier: Apache-2.0
"""A debug module for one hart: RISC-V External Debug Support 0.13.2.

It has abstract commands for registers, system bus access for memory, and triggers, but no program buffer. The
caller holds the machine's lock.
"""

from utvm.virtual.bus import Bus, BusError
from utvm.virtual.riscv.hart import HALT_REQUEST, MACHINE, USER, Hart

# Registers of the module (section 3.12).
_DATA0 = 0x04
_DMCONTROL, _DMSTATUS, _ABSTRACTCS, _COMMAND = 0x10, 0x11, 0x16, 0x17
_SBCS, _SBADDRESS0, _SBADDRESS1, _SBDATA0, _SBDATA1 = 0x38, 0x39, 0x3A, 0x3C, 0x3D
_HALTSUM0 = 0x40

# dmcontrol
_ACTIVE, _NDMRESET, _ACKHAVERESET, _HARTRESET = 1 << 0, 1 << 1, 1 << 28, 1 << 29
_RESUMEREQ, _HALTREQ = 1 << 30, 1 << 31
_HARTSEL = 0xFFFFF << 6

# dmstatus: the bits "any" and "all" of the one hart
_VERSION_0_13, _AUTHENTICATED = 2, 1 << 7
_HALTED, _RUNNING, _RESUMEACK, _HAVERESET = 3 << 8, 3 << 10, 3 << 16, 3 << 18

# abstractcs: cmderr
_NOT_SUPPORTED, _EXCEPTION, _NOT_HALTED = 2, 3, 4
# command
_POSTEXEC, _TRANSFER, _WRITE = 1 << 18, 1 << 17, 1 << 16

# sbcs
_SB_VERSION_1 = 1 << 29
_READ_ON_ADDRESS, _AUTOINCREMENT, _READ_ON_DATA = 1 << 20, 1 << 16, 1 << 15
_SB_WRITABLE = 0x1F8000
_SB_ERRORS, _BAD_ADDRESS = 7 << 12, 2 << 12

# Registers of a hart (sections 4.9 and 5.2), by the numbers of abstract commands (3.6.1.1).
_DCSR, _DPC = 0x7B0, 0x7B1
_X0, _F0, _END = 0x1000, 0x1020, 0x1040
_XDEBUGVER, _PRIVILEGE = 4 << 28, 3
_EBREAK = {MACHINE: 1 << 15, USER: 1 << 12}
_STEPIE, _STEP = 1 << 11, 1 << 2
_DCSR_WRITABLE = _EBREAK[MACHINE] | _EBREAK[USER] | _STEPIE | _STEP


class DebugModule:
    """The debug module of a hart; ``reset_requested`` means that the hart and its peripherals must be reset."""

    def __init__(self, hart: Hart, bus: Bus) -> None:
        self._hart = hart
        self._bus = bus
        self._have_reset = True
        self._dcsr = 0
        self.reset_requested = False
        self._deactivate()

    def _deactivate(self) -> None:
        self._control = 0
        self._resume_ack = False
        self._data = [0] * (self._hart.core.xlen // 16)  # two arguments
        self._error = 0
        wide = 8 if self._hart.core.xlen == 64 else 0
        self._sbcs = _SB_VERSION_1 | 2 << 17 | self._hart.core.xlen << 5 | 7 | wide
        self._sb_address = 0
        self._sb_data = [0, 0]

    def read(self, address: int) -> int:
        """Read a register; missing ones read as 0."""
        if _DATA0 <= address < _DATA0 + len(self._data):
            return self._data[address - _DATA0]
        if address == _SBDATA0:
            return self._read_bus_data()
        return {
            _DMCONTROL: self._control & (_ACTIVE | _NDMRESET | _HARTRESET),
            _DMSTATUS: self._status(),
            _ABSTRACTCS: self._error << 8 | len(self._data),
            _SBCS: self._sbcs,
            _SBADDRESS0: self._sb_address & 0xFFFFFFFF,
            _SBADDRESS1: self._sb_address >> 32,
            _SBDATA1: self._sb_data[1],
            _HALTSUM0: int(self._hart.halted),
        }.get(address, 0)

    def write(self, address: int, value: int) -> None:
        if _DATA0 <= address < _DATA0 + len(self._data):
            self._data[address - _DATA0] = value
        elif address == _DMCONTROL:
            self._write_control(value)
        elif address == _ABSTRACTCS:
            self._error &= ~(value >> 8 & 7)
        elif address == _COMMAND and not self._error:
            self._error = self._command(value)
        elif address == _SBCS:
            self._sbcs = self._sbcs & ~(_SB_WRITABLE | value & _SB_ERRORS) | value & _SB_WRITABLE
        elif address == _SBADDRESS0:
            self._sb_address = self._sb_address >> 32 << 32 | value
            if self._sbcs & _READ_ON_ADDRESS:
                self._fetch_bus_data()
        elif address == _SBADDRESS1:
            self._sb_address = self._sb_address & 0xFFFFFFFF | value << 32
        elif address == _SBDATA0:
            self._write_bus_data(value)
        elif address == _SBDATA1:
            self._sb_data[1] = value

    # dmcontrol and dmstatus

    def _status(self) -> int:
        status = _AUTHENTICATED | _VERSION_0_13
        status |= _HALTED if self._hart.halted else _RUNNING
        return status | _RESUMEACK * self._resume_ack | _HAVERESET * self._have_reset

    def _write_control(self, value: int) -> None:
        if not value & _ACTIVE:
            self._deactivate()
            return
        before = self._control
        # There is one hart: hartsel has no bits.
        self._control = value & ~_HARTSEL
        if value & _ACKHAVERESET:
            self._have_reset = False
        in_reset = value & (_NDMRESET | _HARTRESET)
        if in_reset and not before & (_NDMRESET | _HARTRESET):
            self.reset_requested = self._have_reset = True
            self._hart.halt(HALT_REQUEST)
        elif not in_reset and before & (_NDMRESET | _HARTRESET) and not value & _HALTREQ:
            self._hart.resume()
        if value & _HALTREQ:
            self._hart.halt(HALT_REQUEST)
        elif value & _RESUMEREQ and self._hart.halted and not in_reset:
            self._resume()

    def _resume(self) -> None:
        if self._dcsr & _STEP:
            self._hart.step()
        else:
            self._hart.resume()
        self._resume_ack = True

    def _command(self, command: int) -> int:
        if command >> 24 or command & _POSTEXEC:
            return _NOT_SUPPORTED
        if not self._hart.halted:
            return _NOT_HALTED
        return self._transfer(command, command & 0xFFFF, command >> 20 & 7) if command & _TRANSFER else 0

    def _transfer(self, command: int, number: int, size: int) -> int:
        width = self._hart.core.float_bits if _F0 <= number < _END else self._hart.core.xlen
        if size not in (2, 3) or 8 << size > width:
            return _NOT_SUPPORTED
        if command & _WRITE:
            value = self._data[0] | (self._data[1] << 32 if size == 3 else 0)
            return 0 if self._write_register(number, value) else _EXCEPTION
        result = self._read_register(number)
        if result is None:
            return _EXCEPTION
        self._data[0] = result & 0xFFFFFFFF
        if size == 3:
            self._data[1] = result >> 32
        return 0

    def _read_register(self, number: int) -> int | None:
        core = self._hart.core
        if _X0 <= number < _F0:
            return core.read_x(number - _X0)
        if _F0 <= number < _END:
            return core.read_f(number - _F0)
        if number == _DCSR:
            return _XDEBUGVER | self._dcsr | self._hart.cause << 6 | core.privilege
        if number == _DPC:
            return core.pc
        return core.read_csr(number) if number < _X0 else None

    def _write_register(self, number: int, value: int) -> bool:
        core = self._hart.core
        if _X0 <= number < _F0:
            core.write_x(number - _X0, value)
        elif _F0 <= number < _END:
            core.write_f(number - _F0, value)
        elif number == _DCSR:
            self._dcsr = value & _DCSR_WRITABLE
            self._hart.ebreak_halts = frozenset(mode for mode, bit in _EBREAK.items() if value & bit)
            self._hart.step_interrupts = bool(value & _STEPIE)
            if value & _PRIVILEGE in _EBREAK:
                core.privilege = value & _PRIVILEGE
        elif number == _DPC:
            core.pc = value & ~1
        else:
            return number < _X0 and core.write_csr(number, value)
        return True

    def _fetch_bus_data(self) -> None:
        size = 1 << (self._sbcs >> 17 & 7)
        try:
            value = int.from_bytes(self._bus.read(self._sb_address, size), "little")
        except BusError:
            self._sbcs |= _BAD_ADDRESS
            return
        self._sb_data = [value & 0xFFFFFFFF, value >> 32]
        self._advance(size)

    def _read_bus_data(self) -> int:
        value = self._sb_data[0]
        if self._sbcs & _READ_ON_DATA:
            self._fetch_bus_data()
        return value

    def _write_bus_data(self, value: int) -> None:
        size = 1 << (self._sbcs >> 17 & 7)
        data = (value | self._sb_data[1] << 32).to_bytes(8, "little")[:size]
        try:
            self._bus.write(self._sb_address, data)
        except BusError:
            self._sbcs |= _BAD_ADDRESS
            return
        self._advance(size)

    def _advance(self, size: int) -> None:
        if self._sbcs & _AUTOINCREMENT:
            self._sb_address += size
