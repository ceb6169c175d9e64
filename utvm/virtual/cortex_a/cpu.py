# SPDX-License-Identifier: Apache-2.0
"""A Cortex-A9: instruction set, exceptions, interrupts and Debug state.

Unicorn executes instructions, walks translation tables and implements coprocessor 15. It enters no exceptions and
does not count instructions; see ``core.c``. Sources: ARM DDI 0406C, B1.8 (exceptions) and C11.11.20 (Debug state).
"""

import ctypes
import functools
import struct
from pathlib import Path
from typing import Any

import unicorn
from unicorn import arm_const, unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.virtual.bus import Bus
from utvm.virtual.jtag.core import EXECUTE, STORE, CoreRunner, CountedCore, Pause

THUMB = 1 << 5
"""Bit of CPSR."""

# Exceptions by their vectors (ARM DDI 0406C, B1.8.1); Unicorn has the same numbers.
UNDEFINED, SUPERVISOR_CALL, PREFETCH_ABORT, DATA_ABORT, INTERRUPT = 1, 2, 3, 4, 6
_BREAKPOINT = 7  # Unicorn's

# Fault status (table B3-23).
ALIGNMENT, _DEBUG_EVENT, _EXTERNAL = 0b00001, 0b00010, 0b01000
WRITE = 1 << 11

Register = tuple[int, int, int, int]
"""A register of coprocessor 15: opc1, CRn, CRm, opc2."""
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
def _fault_status_offset() -> int:
    """Offset of the fault status in a saved context of Unicorn, found with two faults; the address follows."""
    code, tables, unmapped = 0x100000, 0x104000, (0x30000004, 0x30000708)
    uc = _new_engine()
    uc.mem_map(code, 0x10000)
    uc.mem_write(code, 0xE5810004.to_bytes(4, "little"))  # STR r0, [r1, #4]
    uc.mem_write(tables + 4, (code | 0xC02).to_bytes(4, "little"))  # a section
    uc.hook_add(unicorn_const.UC_HOOK_INTR, lambda uc, *_: uc.emu_stop())
    for register, value in (((0, 2, 0, 0), tables), ((0, 3, 0, 0), 1), (SCTLR, 0x00C50079)):
        uc.reg_write(arm_const.UC_ARM_REG_CP_REG, _encode(register, value))
    common: set[int] | None = None
    for address in unmapped:
        uc.reg_write(arm_const.UC_ARM_REG_R1, address - 4)
        uc.emu_start(code, code + 4)
        context, pattern = bytes(uc.context_save()), address.to_bytes(8, "little")
        offsets = {offset for offset in range(0, len(context) - 8, 4) if context[offset : offset + 8] == pattern}
        common = offsets if common is None else common & offsets
    if not common or len(common) != 1:
        raise RuntimeError(f"Unicorn {unicorn.__version__} has fault addresses at {common}")
    return common.pop() - 4


def _new_engine() -> Any:
    uc = unicorn.Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_ARM)
    uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_A9)
    return uc


def _encode(register: Register, *value: int) -> tuple[int, ...]:
    opc1, crn, crm, opc2 = register
    return (15, 0, 0, crn, crm, opc1, opc2, *value)


def _register(register: int) -> Any:
    return property(
        lambda core: int(core._uc.reg_read(register)), lambda core, value: core._uc.reg_write(register, value)
    )


class ArmCore(CountedCore):
    """The instruction set of a Cortex-A9.

    ``number`` is the core's number in its cluster; ``fault`` holds exception, status and address of the last
    fault.
    """

    def __init__(self, bus: Bus, number: int = 0) -> None:
        self.fault = (0, 0, 0)
        self._number = number
        self._fault_offset = _fault_status_offset()
        super().__init__(_new_engine(), Path(__file__).with_name("core.c"), bus, 32)

    # Registers

    @property
    def pc(self) -> int:
        """Address of the next instruction."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_PC)) & ~1

    @pc.setter
    def pc(self, value: int) -> None:
        # Without the Thumb bit, Unicorn would leave Thumb state.
        self._uc.reg_write(arm_const.UC_ARM_REG_PC, value & ~1 | bool(self.cpsr & THUMB))

    @property
    def _entry(self) -> int:
        return self.pc | bool(self.cpsr & THUMB)

    cpsr = _register(arm_const.UC_ARM_REG_CPSR)  # a write may change the mode and its banked registers
    spsr = _register(arm_const.UC_ARM_REG_SPSR)
    fpscr = _register(arm_const.UC_ARM_REG_FPSCR)

    def read_r(self, number: int) -> int:
        """Read one of r0 to r14 of the current mode."""
        return int(self._uc.reg_read(_R[number]))

    def write_r(self, number: int, value: int) -> None:
        """Write one of r0 to r14 of the current mode."""
        self._uc.reg_write(_R[number], value & 0xFFFFFFFF)

    def read_d(self, number: int) -> int:
        """Read one of d0 to d31."""
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_D0 + number))

    def write_d(self, number: int, value: int) -> None:
        """Write one of d0 to d31."""
        self._uc.reg_write(arm_const.UC_ARM_REG_D0 + number, value)

    @property
    def has_floats(self) -> bool:
        """True if the floating-point unit is enabled."""
        return bool(self._uc.reg_read(arm_const.UC_ARM_REG_FPEXC) >> 30 & 1)

    def read_cp15(self, register: Register) -> int | None:
        """Read a register of coprocessor 15; None if it does not exist."""
        try:
            value = int(self._uc.reg_read(arm_const.UC_ARM_REG_CP_REG, _encode(register)))
        except unicorn.UcError:
            return None
        return value | self._number if register == _MPIDR else value

    def write_cp15(self, register: Register, value: int) -> bool:
        """Write a register of coprocessor 15. False if it does not exist. Cache and TLB operations do nothing."""
        try:
            self._uc.reg_write(arm_const.UC_ARM_REG_CP_REG, _encode(register, value))
        except unicorn.UcError:
            return register[1] in (7, 8)
        self._uc.ctl(unicorn_const.UC_CTL_TLB_FLUSH, unicorn_const.UC_CTL_IO_WRITE)
        return True

    def physical(self, address: int, access: int) -> int | None:
        """Physical address of a virtual one, or None if the access is not permitted."""
        result = ctypes.c_uint64()
        right = unicorn_const.UC_PROT_WRITE if access == STORE else unicorn_const.UC_PROT_READ
        status = uclib.uc_vmem_translate(self._engine, ctypes.c_uint64(address), right, ctypes.byref(result))
        return None if status else result.value

    def instruction(self) -> bytes:
        """Read the four bytes at PC."""
        address = self.physical(self.pc, EXECUTE)
        return self._bus.read(self.pc if address is None else address, 4)

    # Faults

    def take_exception(self, number: int) -> None:
        status = address = 0
        if number in (PREFETCH_ABORT, DATA_ABORT):
            # Not later: at its end, Unicorn fetches from the end address and stores that fault.
            context = bytes(self._uc.context_save())
            status, address = struct.unpack_from("<II", context, self._fault_offset)
        if not self._faulted:
            self.fault = (number, status, address)
        self.stop_at_fault()

    def set_bus_fault(self, access: int, address: int) -> None:
        if access == EXECUTE:
            self.fault = (PREFETCH_ABORT, _EXTERNAL, address)
        else:
            self.fault = (DATA_ABORT, _EXTERNAL | (WRITE if access == STORE else 0), address)

    def set_invalid_fault(self) -> None:
        self.fault = (UNDEFINED, 0, 0)

    def undo_faulting_instruction(self) -> None:
        number, status, address = self.fault
        if number == _BREAKPOINT:
            number, status, address = PREFETCH_ABORT, _DEBUG_EVENT, self.pc
        self.fault = (number, status, address)
        if number in (DATA_ABORT, UNDEFINED):
            self.pc = self.state.begun
            self.state.count -= 1
        self.state.block_end = 0


HALT_REQUEST, BREAKPOINT, BKPT = 0, 1, 3
"""Reasons of an entry to Debug state (MOE)."""

_NO_INTERRUPTS, _NO_ABORTS = 1 << 7, 1 << 8
_PRESERVED = ~(0x1F | THUMB | 1 << 24 | 0x0600FC00)  # of CPSR: all but mode, T, J, IT
_BOOT_ROM_WAIT = 0xFFFFFF34  # where the boot ROM of a Zynq waits (UG585, 6.1.10)
# Mode, masks and offset of the link register from PC, in Arm and in Thumb state (tables B1-7, B1-8).
_MODES = {
    UNDEFINED: (0x1B, 0, (4, 2)),
    SUPERVISOR_CALL: (0x13, 0, (0, 0)),
    PREFETCH_ABORT: (0x17, _NO_ABORTS, (4, 4)),
    DATA_ABORT: (0x17, _NO_ABORTS, (8, 8)),
    INTERRUPT: (0x12, _NO_ABORTS, (4, 4)),
}


class CortexA9(CoreRunner):
    """A core, ``number`` in its cluster, with its peripherals at ``private``. The caller holds the machine's lock.

    Attributes:
        entry: reason of the last entry to Debug state.
        halts_at_bkpt: BKPT enters Debug state instead of a prefetch abort.
        parked: waits in the boot ROM until a debugger changes PC.
    """

    def __init__(self, bus: Bus, private: int, number: int = 0) -> None:
        super().__init__()
        self.core: ArmCore = ArmCore(bus, number)
        self._private = private
        self.entry = HALT_REQUEST
        self.halts_at_bkpt = False
        self.reset()

    def reset(self) -> None:
        """Reset the core: the boot ROM finds nothing to boot."""
        self.halted = False
        self.parked = self._sleeping = True
        self.core.reset(_BOOT_ROM_WAIT)
        self.core.write_cp15(CBAR, self._private)

    # Debug

    def halt(self, entry: int) -> None:
        """Enter Debug state."""
        if not self.halted:
            self.halted, self.entry, self._sleeping = True, entry, False

    def resume(self) -> None:
        """Leave Debug state."""
        self.halted, self._sleeping = False, self.parked

    # Running

    def handle(self, reason: Pause) -> bool:
        size = 2 if self.core.cpsr & THUMB else 4
        if reason is Pause.TRIGGER:
            self.halt(BREAKPOINT)
        elif reason is Pause.BREAK and self.halts_at_bkpt:
            self.halt(BKPT)
        elif reason is Pause.BREAK:
            self._enter(PREFETCH_ABORT, 0b00010, self.core.pc)
        elif reason is Pause.SLEEP:
            self.sleep(size)
        elif reason is Pause.PASS:
            self.skip_instruction(size)
        elif reason is Pause.UNALIGNED:
            self._refuse_alignment()
        elif reason is Pause.FAULT:
            self._enter(*self.core.fault)
        return reason in (Pause.BREAK, Pause.FAULT)

    def _refuse_alignment(self) -> None:
        word = int.from_bytes(self.core.instruction(), "little")
        if not _holds(word >> 28, self.core.cpsr >> 28):
            self.skip_instruction(4)
            return
        if word >> 26 & 3 == 3 and not self.core.has_floats:
            self._enter(UNDEFINED)
            return
        double = word >> 25 & 7 == 0
        stores = word >> 5 & 1 if double else not word >> 20 & 1
        self._enter(DATA_ABORT, ALIGNMENT | (WRITE if stores else 0), self.core.state.target)

    def _enter(self, number: int, status: int = 0, address: int = 0) -> None:
        inner = self.core
        if number == PREFETCH_ABORT:
            inner.write_cp15(IFSR, status)
            inner.write_cp15(IFAR, address)
        elif number == DATA_ABORT:
            inner.write_cp15(DFSR, status)
            inner.write_cp15(DFAR, address)
        mode, masks, behind = _MODES[number]
        before, link = inner.cpsr, inner.pc
        inner.cpsr = before & _PRESERVED | mode | masks | _NO_INTERRUPTS
        inner.spsr = before
        inner.write_r(14, link + behind[bool(before & THUMB)])
        inner.pc = (inner.read_cp15(VBAR) or 0) + 4 * number

    # Interrupts

    def wakeup_interrupts(self) -> int:
        """1 if the interrupt controller has one. A masked interrupt ends a sleep, too."""
        return 0 if self.parked else self.pending()

    def take_interrupt(self) -> bool:
        if not self.wakeup_interrupts() or self.core.cpsr & _NO_INTERRUPTS:
            return False
        self._enter(INTERRUPT)
        return True


def _holds(condition: int, flags: int) -> bool:
    """Evaluate a condition (table A8-1) for the flags N, Z, C, V in bits 3 to 0."""
    negative, zero, carry, overflow = (bool(flags >> bit & 1) for bit in (3, 2, 1, 0))
    holds = (
        zero,
        carry,
        negative,
        overflow,
        carry and not zero,
        negative == overflow,
        negative == overflow and not zero,
        True,
    )[condition >> 1]
    return holds != bool(condition & 1) or condition >= 14
