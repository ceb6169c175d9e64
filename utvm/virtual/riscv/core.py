# SPDX-License-Identifier: Apache-2.0
"""The instruction set of a RISC-V hart: Unicorn, told to stop wherever a hart does more than Unicorn knows.

Unicorn executes, with physical memory protection and faults of alignment, and has every CSR; it enters no trap,
has no exact counters and says nothing of the address of a fault. See ``hart.c``.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import unicorn
from unicorn import riscv_const, unicorn_const

from utvm.virtual.bus import Bus
from utvm.virtual.counted import EXECUTE, NEVER, STORE, CountedCore, Pause

MISA = 0x301
MSTATUS, MIE, MTVEC, MEPC, MCAUSE, MTVAL = 0x300, 0x304, 0x305, 0x341, 0x342, 0x343
_NAMED = {
    MSTATUS: riscv_const.UC_RISCV_REG_MSTATUS,
    MIE: riscv_const.UC_RISCV_REG_MIE,
    MTVEC: riscv_const.UC_RISCV_REG_MTVEC,
    MEPC: riscv_const.UC_RISCV_REG_MEPC,
    MCAUSE: riscv_const.UC_RISCV_REG_MCAUSE,
    MTVAL: riscv_const.UC_RISCV_REG_MTVAL,
}
_TIME = 0xC01
_COUNTERS = (0xB00, 0xB02, 0xC00, _TIME, 0xC02)  # mcycle, minstret, cycle, time, instret
_UPPER_HALF = 0x80
_DOUBLE = 1 << 3  # misa: D

# Exceptions (Volume II, table 3.6).
FETCH_FAULT, ILLEGAL, BREAKPOINT = 1, 2, 3
_LOAD_MISALIGNED, _LOAD_FAULT, _STORE_MISALIGNED, _STORE_FAULT, CALL = 4, 5, 6, 7, 11
_AT_DATA = (_LOAD_MISALIGNED, _LOAD_FAULT, _STORE_MISALIGNED, _STORE_FAULT)

_APART = 0xFFFFE000  # where instructions of a debugger's are executed; there only meanwhile
_PAGE = 0x1000
_BOXED = 0xFFFFFFFF << 32


class RiscvCore(CountedCore):
    """An RV32 or RV64 hart with its registers, in machine mode.

    Args:
        isa: ``rv32imafc`` or ``rv64imafdc``: its width, and whether it has D. The other letters are Unicorn's.

    Attributes:
        time: returns what the CSR of that name holds.
        fault: cause and mtval of the fault that it stopped at.
    """

    def __init__(self, isa: str, bus: Bus) -> None:
        self.xlen = 64 if isa.startswith("rv64") else 32
        self.float_bits = 64 if "d" in isa[4:] else 32
        self.fault = (0, 0)
        self.time: Callable[[], int] = lambda: 0
        mode = unicorn_const.UC_MODE_RISCV64 if self.xlen == 64 else unicorn_const.UC_MODE_RISCV32
        uc = unicorn.Uc(unicorn_const.UC_ARCH_RISCV, mode)
        super().__init__(uc, Path(__file__).with_name("hart.c"), bus, self.xlen)
        self._c.utvm_data_address.restype = ctypes.c_uint64

    # What Unicorn has refused

    def raised(self, number: int) -> None:
        """Take an exception by its number, which is the architecture's."""
        if not self._faulted:
            self.fault = (number, 0)
        if number in _AT_DATA:
            self.fault = (number, self._c.utvm_data_address(self._engine, self._state_pointer))
        self.stop_at_fault()

    def refused(self, access: int, address: int) -> None:
        """Nothing is there."""
        cause = FETCH_FAULT if access == EXECUTE else _STORE_FAULT if access == STORE else _LOAD_FAULT
        self.fault = (cause, address)

    def invalid(self) -> None:
        """There is no such instruction."""
        self.fault = (ILLEGAL, 0)

    def enter_fault(self) -> None:
        """Stand at the instruction that faults, which is not counted."""
        cause, value = self.fault
        if cause == FETCH_FAULT:
            self.pc = value
            return
        self.pc = self.state.begun
        self.state.count -= 1
        if cause == ILLEGAL:
            self.fault = (cause, self._instruction())

    # Registers

    @property
    def pc(self) -> int:
        """The address of the next instruction."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_PC)) & self.mask

    @pc.setter
    def pc(self, value: int) -> None:
        self._uc.reg_write(riscv_const.UC_RISCV_REG_PC, value & self.mask)

    def read_x(self, number: int) -> int:
        """Return one of x0 to x31."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_X0 + number)) & self.mask

    def write_x(self, number: int, value: int) -> None:
        """Write one of them; x0 stays 0."""
        if number:
            self._uc.reg_write(riscv_const.UC_RISCV_REG_X0 + number, value & self.mask)

    def read_f(self, number: int) -> int:
        """Return one of f0 to f31, as wide as it is."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_F0 + number)) & (1 << self.float_bits) - 1

    def write_f(self, number: int, value: int) -> None:
        """Write one of them. Unicorn's are 64 bits wide, in which a narrower value is a NaN's payload."""
        boxed = value | _BOXED if self.float_bits == 32 else value
        self._uc.reg_write(riscv_const.UC_RISCV_REG_F0 + number, boxed)

    def read_csr(self, number: int) -> int | None:
        """Return a control and status register; None where there is none of that number."""
        if number in _NAMED:
            return int(self._uc.reg_read(_NAMED[number])) & self.mask
        if number in _COUNTERS:
            return self._counter(number) & self.mask
        if number - _UPPER_HALF in _COUNTERS:
            return self._counter(number - _UPPER_HALF) >> 32 if self.xlen == 32 else None
        with self._kept(10):
            there = self._execute(number << 20 | 2 << 12 | 10 << 7 | 0x73)  # csrrs a0, number, zero
            value = self.read_x(10)
        if number == MISA and self.float_bits == 32:
            value &= ~_DOUBLE
        return value if there else None

    def _counter(self, number: int) -> int:
        return self.time() if number == _TIME else self.state.count

    def write_csr(self, number: int, value: int) -> bool:
        """Write one; return whether it is there and can be written. Counters stay as they are."""
        if number in _NAMED:
            self._uc.reg_write(_NAMED[number], value & self.mask)
            return True
        if number in _COUNTERS or number - _UPPER_HALF in _COUNTERS:
            return False
        with self._kept(10):
            self.write_x(10, value)
            return self._execute(number << 20 | 10 << 15 | 1 << 12 | 0x73)  # csrrw zero, number, a0

    @contextlib.contextmanager
    def _kept(self, number: int) -> Iterator[None]:
        value = self.read_x(number)
        yield
        self.write_x(number, value)

    def _execute(self, instruction: int) -> bool:
        """Execute an instruction that is not the program's, uncounted; return whether it is no fault."""
        state = self.state
        kept = (self.pc, state.count, state.stop, state.triggered)
        self._uc.mem_map(_APART, _PAGE)
        self._uc.mem_write(_APART, instruction.to_bytes(4, "little"))
        state.deadline, state.stop, state.triggered, self._faulted = NEVER, 0, 0, False
        with contextlib.suppress(unicorn.UcError):
            self._uc.emu_start(_APART, _APART + 4)
        self._uc.mem_unmap(_APART, _PAGE)
        self.pc, state.count, state.stop, state.triggered = kept
        return not self._faulted

    def _instruction(self) -> int:
        first = int.from_bytes(self._bus.read(self.pc, 2), "little")
        return first | int.from_bytes(self._bus.read(self.pc + 2, 2), "little") << 16 if first & 3 == 3 else first

    def pass_counter(self) -> Pause:
        """Execute the reading of a counter at PC; FAULT where a hart of this width has none of that number."""
        instruction = self._instruction()
        value = self.read_csr(instruction >> 20)
        if value is None:
            self.fault = (ILLEGAL, instruction)
            return Pause.FAULT
        self.state.count += 1
        self.write_x(instruction >> 7 & 31, value)
        self.pc += 4
        return Pause.ASKED
