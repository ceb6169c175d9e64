# SPDX-License-Identifier: Apache-2.0
"""The registers of a Cortex-M core in Unicorn."""

import ctypes
from typing import Any

from unicorn import arm_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.virtual.bus import Bus
from utvm.virtual.cortex_m import faults
from utvm.virtual.engine import Engine

THUMB = 1 << 24
_PRIVILEGED_HANDLER = THUMB | faults.HARD_FAULT

R0 = arm_const.UC_ARM_REG_R0
R12 = arm_const.UC_ARM_REG_R12
SP = arm_const.UC_ARM_REG_SP
LR = arm_const.UC_ARM_REG_LR
PC = arm_const.UC_ARM_REG_PC
XPSR = arm_const.UC_ARM_REG_XPSR
MSP = arm_const.UC_ARM_REG_MSP
PSP = arm_const.UC_ARM_REG_PSP
CONTROL = arm_const.UC_ARM_REG_CONTROL
PRIMASK = arm_const.UC_ARM_REG_PRIMASK
BASEPRI = arm_const.UC_ARM_REG_BASEPRI
FAULTMASK = arm_const.UC_ARM_REG_FAULTMASK
FPSCR = arm_const.UC_ARM_REG_FPSCR
S0 = arm_const.UC_ARM_REG_S0

# CONTROL
UNPRIVILEGED, PROCESS_STACK, FLOAT_ACTIVE, _CONTROL_MASK = 1 << 0, 1 << 1, 1 << 2, 0x7
_SECURE_FLOAT_ACTIVE = 1 << 3  # of Armv8-M; Unicorn expects it to be set with FLOAT_ACTIVE

# Registers by DCRSR selector
_SELECT_PC, _SELECT_XPSR, _SELECT_MSP, _SELECT_PSP, _SELECT_CONTROL_AND_MASKS = 15, 16, 17, 18, 20
_SELECTED = {number: R0 + number for number in range(13)} | {13: SP, 14: LR, 15: PC, 33: FPSCR}
_SELECTED |= {64 + number: S0 + number for number in range(32)}


class RegisterFile(Engine):
    """A Unicorn engine of a Cortex-M with access to its registers."""

    def __init__(self, uc: Any, bus: Bus, state: Any) -> None:
        super().__init__(uc, bus, state, read_only=True)
        self._word = ctypes.c_uint32()
        self._word_pointer = ctypes.byref(self._word)
        self._batches: dict[tuple[int, ...], tuple[Any, Any, Any, int]] = {}

    def read(self, register: int) -> int:
        """Read a register in the current mode."""
        uclib.uc_reg_read(self._engine, register, self._word_pointer)
        return self._word.value

    def write(self, register: int, value: int) -> None:
        """Write a register in the current mode; for CONTROL use :meth:`write_control`."""
        self._word.value = value
        uclib.uc_reg_write(self._engine, register, self._word_pointer)

    def _batch(self, registers: tuple[int, ...]) -> tuple[Any, Any, Any, int]:
        if registers not in self._batches:
            count = len(registers)
            values = (ctypes.c_uint32 * count)()
            places = (ctypes.c_void_p * count)(
                *range(ctypes.addressof(values), ctypes.addressof(values) + 4 * count, 4)
            )
            self._batches[registers] = (ctypes.c_int * count)(*registers), values, places, count
        return self._batches[registers]

    def read_all(self, registers: tuple[int, ...]) -> list[int]:
        """Read registers in the current mode, faster than one by one."""
        numbers, values, places, count = self._batch(registers)
        uclib.uc_reg_read_batch(self._engine, numbers, places, count)
        return list(values)

    def write_all(self, registers: tuple[int, ...], words: list[int]) -> None:
        """Write registers in the current mode, in this order."""
        numbers, values, places, count = self._batch(registers)
        values[:] = words
        uclib.uc_reg_write_batch(self._engine, numbers, places, count)

    def write_pc(self, address: int) -> None:
        """Write PC and keep the Thumb bit, which Unicorn takes from the value."""
        self.write(PC, address & ~1 | self.read(XPSR) >> 24 & 1)

    def read_privileged(self, *registers: int) -> list[int]:
        """Read registers as privileged code."""
        status = self.read(XPSR)
        self.write(XPSR, _PRIVILEGED_HANDLER)
        values = self.read_all(registers)
        self.write(XPSR, status)
        return values

    def write_privileged(self, register: int, value: int) -> None:
        """Write a register as privileged code."""
        self.write_all((XPSR, register, XPSR), [_PRIVILEGED_HANDLER, value, self.read(XPSR)])

    def read_control(self) -> int:
        return self.read(CONTROL) & _CONTROL_MASK

    @property
    def unprivileged(self) -> bool:
        """True if the core is in unprivileged mode."""
        control, status = self.read_all((CONTROL, XPSR))
        return bool(control & UNPRIVILEGED) and not status & 0x1FF

    def write_control(self, value: int) -> None:
        """Write CONTROL twice: Unicorn accepts nPRIV in Handler mode and SPSEL in Thread mode."""
        full = value | (_SECURE_FLOAT_ACTIVE if value & FLOAT_ACTIVE else 0)
        words = [_PRIVILEGED_HANDLER, value & ~UNPRIVILEGED, THUMB, full, self.read(XPSR)]
        self.write_all((XPSR, CONTROL, XPSR, CONTROL, XPSR), words)

    def reset_registers(self) -> None:
        """Reset all registers but PC, SP and the Thumb bit, which come from the vector table."""
        self.write(XPSR, _PRIVILEGED_HANDLER)
        for register in (*range(R0, R12 + 1), PRIMASK, BASEPRI, FAULTMASK, FPSCR, MSP, PSP):
            self.write(register, 0)
        self.write(LR, 0xFFFFFFFF)
        self.write_control(0)
        self.write(XPSR, THUMB)

    def read_selected(self, selector: int) -> int:
        """Read the register of a DCRSR selector (ARM DDI 0403E, C1.6.3); reserved ones read as zero."""
        if selector == _SELECT_XPSR:
            return self.read(XPSR)
        if selector == _SELECT_CONTROL_AND_MASKS:
            primask, basepri, faultmask = self.read_privileged(PRIMASK, BASEPRI, FAULTMASK)
            return self.read_control() << 24 | faultmask << 16 | basepri << 8 | primask
        if selector in (_SELECT_MSP, _SELECT_PSP):
            return self.read_privileged(MSP if selector == _SELECT_MSP else PSP)[0]
        register = _SELECTED.get(selector)
        return self.read(register) if register is not None else 0

    def write_selected(self, selector: int, value: int) -> None:
        """Write the register of a DCRSR selector; reserved ones are ignored."""
        if selector == _SELECT_XPSR:
            self.write(XPSR, value)
        elif selector == _SELECT_CONTROL_AND_MASKS:
            self.write_privileged(PRIMASK, value & 1)
            self.write_privileged(BASEPRI, value >> 8 & 0xF0)
            self.write_privileged(FAULTMASK, value >> 16 & 1)
            self.write_control(value >> 24 & _CONTROL_MASK)
        elif selector in (_SELECT_MSP, _SELECT_PSP):
            self.write_privileged(MSP if selector == _SELECT_MSP else PSP, value & ~3)
        elif selector == _SELECT_PC:
            self.write_pc(value)
        elif selector in _SELECTED:
            self.write(_SELECTED[selector], value & ~3 if _SELECTED[selector] == SP else value)
