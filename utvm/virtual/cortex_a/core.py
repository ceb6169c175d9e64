# SPDX-License-Identifier: Apache-2.0
"""The instruction set of a Cortex-A9: Unicorn, with memory management, told to stop wherever a core does more.

Unicorn executes, walks translation tables and keeps coprocessor 15; it enters no exception, and does not count.
See ``core.c``.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any

import unicorn
from unicorn import arm_const, unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.virtual.bus import Bus
from utvm.virtual.counted import EXECUTE, STORE, CountedCore

THUMB = 1 << 5
"""Of CPSR."""

# Exceptions by their vectors (ARM DDI 0406C, B1.8.1), which are Unicorn's numbers, too.
UNDEFINED, SUPERVISOR_CALL, PREFETCH_ABORT, DATA_ABORT, INTERRUPT = 1, 2, 3, 4, 6
_BREAKPOINT = 7  # Unicorn's

# Fault status (table B3-23).
ALIGNMENT, _DEBUG_EVENT, _EXTERNAL = 0b00001, 0b00010, 0b01000
WRITE = 1 << 11

Register = tuple[int, int, int, int]
"""Of coprocessor 15: opc1, CRn, CRm, opc2."""
SCTLR: Register = (0, 1, 0, 0)
DFSR, IFSR, DFAR, IFAR = (0, 5, 0, 0), (0, 5, 0, 1), (0, 6, 0, 0), (0, 6, 0, 2)
VBAR, CBAR = (0, 12, 0, 0), (4, 15, 0, 0)
_MPIDR: Register = (0, 0, 0, 5)
_R = (
    *range(arm_const.UC_ARM_REG_R0, arm_const.UC_ARM_REG_R12 + 1),
    arm_const.UC_ARM_REG_SP,
    arm_const.UC_ARM_REG_LR,
    arm_const.UC_ARM_REG_PC,
)


@functools.cache
def _place_of_faults() -> int:
    """Return where Unicorn keeps the status of a fault, before its address: found by making two of them."""
    code, tables, nowhere = 0x100000, 0x104000, (0x30000004, 0x30000708)
    uc = _new_engine()
    uc.mem_map(code, 0x10000)
    uc.mem_write(code, 0xE5810004.to_bytes(4, "little"))  # STR r0, [r1, #4]
    uc.mem_write(tables + 4, (code | 0xC02).to_bytes(4, "little"))  # a section
    uc.hook_add(unicorn_const.UC_HOOK_INTR, lambda uc, *_: uc.emu_stop())
    for register, value in (((0, 2, 0, 0), tables), ((0, 3, 0, 0), 1), (SCTLR, 0x00C50079)):
        uc.reg_write(arm_const.UC_ARM_REG_CP_REG, _coded(register, value))
    found = None
    for address in nowhere:
        uc.reg_write(arm_const.UC_ARM_REG_R1, address - 4)
        uc.emu_start(code, code + 4)
        kept, wanted = bytes(uc.context_save()), address.to_bytes(8, "little")
        places = {at for at in range(0, len(kept) - 8, 4) if kept[at : at + 8] == wanted}
        found = places if found is None else found & places
    if not found or len(found) != 1:
        raise RuntimeError(f"Unicorn {unicorn.__version__} has faults at {found}")
    return found.pop() - 4


def _new_engine() -> Any:
    uc = unicorn.Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_ARM)
    uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_A9)
    return uc


def _coded(register: Register, *value: int) -> tuple[int, ...]:
    opc1, crn, crm, opc2 = register
    return (15, 0, 0, crn, crm, opc1, opc2, *value)


class ArmCore(CountedCore):
    """A Cortex-A9 with its registers.

    Args:
        number: which core it is of its cluster, as a debugger reads it.

    Attributes:
        fault: the exception that it stopped at, its status and its address.
    """

    def __init__(self, bus: Bus, number: int = 0) -> None:
        self.fault = (0, 0, 0)
        self._number = number
        self._fault_at = _place_of_faults()
        super().__init__(_new_engine(), Path(__file__).with_name("core.c"), bus, 32)

    # Registers

    @property
    def pc(self) -> int:
        """The address of the next instruction."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_PC)) & ~1

    @pc.setter
    def pc(self, value: int) -> None:
        # Written without the mark of Thumb code, Unicorn would leave that.
        self._uc.reg_write(arm_const.UC_ARM_REG_PC, value & ~1 | bool(self.cpsr & THUMB))

    @property
    def _entry(self) -> int:
        return self.pc | bool(self.cpsr & THUMB)

    @property
    def cpsr(self) -> int:
        """The program status; to write it is to change the mode and its registers."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_CPSR))

    @cpsr.setter
    def cpsr(self, value: int) -> None:
        self._uc.reg_write(arm_const.UC_ARM_REG_CPSR, value)

    @property
    def spsr(self) -> int:
        """The saved program status of the mode."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_SPSR))

    @spsr.setter
    def spsr(self, value: int) -> None:
        self._uc.reg_write(arm_const.UC_ARM_REG_SPSR, value)

    def read_r(self, number: int) -> int:
        """Return one of r0 to r14, as the mode has it."""
        return int(self._uc.reg_read(_R[number]))

    def write_r(self, number: int, value: int) -> None:
        """Write one of them."""
        self._uc.reg_write(_R[number], value & 0xFFFFFFFF)

    def read_d(self, number: int) -> int:
        """Return one of d0 to d31."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_D0 + number))

    def write_d(self, number: int, value: int) -> None:
        """Write one of them."""
        self._uc.reg_write(arm_const.UC_ARM_REG_D0 + number, value)

    @property
    def fpscr(self) -> int:
        """The status of the floating-point unit."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_FPSCR))

    @fpscr.setter
    def fpscr(self, value: int) -> None:
        self._uc.reg_write(arm_const.UC_ARM_REG_FPSCR, value)

    @property
    def has_floats(self) -> bool:
        """Whether the floating-point unit is on."""
        return bool(self._uc.reg_read(arm_const.UC_ARM_REG_FPEXC) >> 30 & 1)

    def read_cp15(self, register: Register) -> int | None:
        """Return a register of coprocessor 15; None where there is none."""
        try:
            value = int(self._uc.reg_read(arm_const.UC_ARM_REG_CP_REG, _coded(register)))
        except unicorn.UcError:
            return None
        return value | self._number if register == _MPIDR else value

    def write_cp15(self, register: Register, value: int) -> bool:
        """Write one; return whether it is there. What is an operation, on a cache for instance, does nothing."""
        try:
            self._uc.reg_write(arm_const.UC_ARM_REG_CP_REG, _coded(register, value))
        except unicorn.UcError:
            return register[1] in (7, 8)
        self._uc.ctl(unicorn_const.UC_CTL_TLB_FLUSH, unicorn_const.UC_CTL_IO_WRITE)
        return True

    def physical(self, address: int, access: int) -> int | None:
        """Return where an address leads to, as memory management has it; None where nowhere."""
        found = ctypes.c_uint64()
        right = unicorn_const.UC_PROT_WRITE if access == STORE else unicorn_const.UC_PROT_READ
        status = uclib.uc_vmem_translate(self._engine, ctypes.c_uint64(address), right, ctypes.byref(found))
        return None if status else found.value

    def instruction(self) -> bytes:
        """Return the four bytes at PC, which is in memory."""
        place = self.physical(self.pc, EXECUTE)
        return self._bus.read(self.pc if place is None else place, 4)

    # What Unicorn has refused

    def raised(self, number: int) -> None:
        """Take an exception."""
        status = address = 0
        if number in (PREFETCH_ABORT, DATA_ABORT):
            # Now: when Unicorn ends, it looks for code where it was to end, and keeps that as a fault.
            kept = bytes(self._uc.context_save())[self._fault_at :]
            status, address = (int.from_bytes(kept[at : at + 4], "little") for at in (0, 4))
        if not self._faulted:
            self.fault = (number, status, address)
        self.stop_at_fault()

    def refused(self, access: int, address: int) -> None:
        """Nothing is there: the bus says so at once."""
        if access == EXECUTE:
            self.fault = (PREFETCH_ABORT, _EXTERNAL, address)
        else:
            self.fault = (DATA_ABORT, _EXTERNAL | (WRITE if access == STORE else 0), address)

    def invalid(self) -> None:
        """There is no such instruction, or it may not be."""
        self.fault = (UNDEFINED, 0, 0)

    def enter_fault(self) -> None:
        """Stand at the instruction that faults, which is not counted; a call is, and is behind it."""
        number, status, address = self.fault
        if number == _BREAKPOINT:
            number, status, address = PREFETCH_ABORT, _DEBUG_EVENT, self.pc
        self.fault = (number, status, address)
        if number in (DATA_ABORT, UNDEFINED):
            self.pc = self.state.begun
            self.state.count -= 1
        self.state.block_end = 0
