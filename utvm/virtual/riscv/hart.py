# SPDX-License-Identifier: Apache-2.0
"""A RISC-V hart with machine and user mode: instruction set, traps, interrupts and debug mode.

Unicorn executes, with physical memory protection, alignment faults and all CSRs. It enters no traps, has no exact
counters and does not report the address of a fault; see ``hart.c``. Sources: RISC-V Instruction Set Manual, Volume
II, 20211203, chapter 3; RISC-V External Debug Support 0.13.2, table 4.3.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import unicorn
from unicorn import riscv_const, unicorn_const

from utvm.virtual.bus import Bus
from utvm.virtual.engine import NEVER
from utvm.virtual.jtag.core import EXECUTE, LOAD, STORE, TRIGGERS, CoreRunner, CountedCore, Pause

TSELECT, TDATA1, TDATA2, TDATA3, TINFO = range(0x7A0, 0x7A5)
_MCONTROL = 2
_ACTION, _ENTER_DEBUG_MODE = 0xF << 12, 1 << 12
# Bits 0 to 2 of mcontrol: load, store, execute. A debugger sets all modes and expects to read them back.
_ACCESSES = LOAD | STORE | EXECUTE
_MODES = 0x58
_IN_MODE = (1 << 3, 1 << 4, 1 << 5, 1 << 6)  # By privilege mode.


class Triggers:
    """Triggers of type mcontrol that compare an address (RISC-V External Debug Support 0.13.2, chapter 5).

    ``conditions`` are those of :class:`CountedCore`.
    """

    def __init__(self, width: int) -> None:
        self._dmode = 1 << (width - 5)
        self._type = _MCONTROL << (width - 4)
        self.reset()

    def reset(self) -> None:
        self._selected = 0
        self._controls = [0] * TRIGGERS
        self._addresses = [0] * TRIGGERS

    @property
    def conditions(self) -> list[tuple[int, int]]:
        pairs = zip(self._addresses, self._controls, strict=True)
        return [(address, control & _ACCESSES if control & _MODES else 0) for address, control in pairs]

    def halts(self, number: int, mode: int) -> bool | None:
        """True if a trigger enters Debug Mode, False if it raises a breakpoint; None if it is not for a mode."""
        control = self._controls[number]
        return bool(control & _ENTER_DEBUG_MODE) if control & _IN_MODE[mode] else None

    def read(self, number: int) -> int:
        """Read a register."""
        values = {
            TSELECT: self._selected,
            TDATA1: self._type | self._controls[self._selected],
            TDATA2: self._addresses[self._selected],
            TINFO: 1 << _MCONTROL,
        }
        return values.get(number, 0)

    def write(self, number: int, value: int, *, debugger: bool) -> None:
        """Write a register. A program cannot change a debugger's trigger, or take one for a debugger."""
        if number == TSELECT:
            self._selected = value if value < TRIGGERS else self._selected
        elif not debugger and self._controls[self._selected] & self._dmode:
            return
        elif number == TDATA1:
            owner = value & self._dmode if debugger else 0
            action = value & _ACTION if owner else 0
            self._controls[self._selected] = owner | (action & _ENTER_DEBUG_MODE) | value & (_MODES | _ACCESSES)
        elif number == TDATA2:
            self._addresses[self._selected] = value


MISA = 0x301
MSTATUS, MIE, MTVEC, MEPC, MCAUSE, MTVAL, MIP = 0x300, 0x304, 0x305, 0x341, 0x342, 0x343, 0x344
USER, MACHINE = 0, 3
"""Privilege modes."""
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
_FLOAT = (1, 2, 3)  # fflags, frm, fcsr
_FLOAT_ENABLED = 3 << 13  # FS in mstatus

# Exceptions (Volume II, table 3.6).
FETCH_FAULT, ILLEGAL, BREAKPOINT = 1, 2, 3
_LOAD_MISALIGNED, _LOAD_FAULT, _STORE_MISALIGNED, _STORE_FAULT, CALL = 4, 5, 6, 7, 11
_AT_DATA = (_LOAD_MISALIGNED, _LOAD_FAULT, _STORE_MISALIGNED, _STORE_FAULT)

_SCRATCH = 0xFFFFE000  # page for single instructions of the model, mapped only for these
_PAGE = 0x1000
_BOXED = 0xFFFFFFFF << 32


class RiscvCore(CountedCore):
    """The instruction set of an RV32 or RV64 hart; ``fault`` holds cause and mtval of the last fault.

    ``isa``, for example ``rv32imafc``, gives the width and the extensions, those of misa. ``time`` and ``pending``
    return the CSRs time and mip.
    """

    def __init__(self, isa: str, bus: Bus) -> None:
        self.xlen = 64 if isa.startswith("rv64") else 32
        self.float_bits = 64 if "d" in isa[4:] else 32
        self.fault = (0, 0)
        self.time: Callable[[], int] = lambda: 0
        self.pending: Callable[[], int] = lambda: 0
        mode = unicorn_const.UC_MODE_RISCV64 if self.xlen == 64 else unicorn_const.UC_MODE_RISCV32
        uc = unicorn.Uc(unicorn_const.UC_ARCH_RISCV, mode)
        super().__init__(uc, Path(__file__).with_name("hart.c"), bus, self.xlen)
        self._c.utvm_data_address.restype = ctypes.c_uint64
        self.triggers = Triggers(self.xlen)
        self._remove_extensions(sum(1 << ord(letter) - ord("a") for letter in f"{isa[4:]}u"))

    def _remove_extensions(self, present: int) -> None:
        """Leave only the extensions in a mask to Unicorn, whose misa is read-only: there are no others then."""
        misa = int(self._uc.reg_read(riscv_const.UC_RISCV_REG_MISA))
        size = self.xlen // 8
        context = self._uc.context_save()
        state = (ctypes.c_char * context.size).from_address(ctypes.cast(context.context, ctypes.c_void_p).value or 0)
        value = misa & (present | -1 << 26) & self.mask
        state.raw = state.raw.replace(misa.to_bytes(size, "little"), value.to_bytes(size, "little"))
        self._uc.context_restore(context)
        self._at_reset = context

    @property
    def privilege(self) -> int:
        """Current privilege mode: USER or MACHINE."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_PRIV))

    @privilege.setter
    def privilege(self, mode: int) -> None:
        self._uc.reg_write(riscv_const.UC_RISCV_REG_PRIV, mode)

    @contextlib.contextmanager
    def _in_machine_mode(self) -> Iterator[None]:
        if (mode := self.privilege) == MACHINE:
            yield
            return
        self.privilege = MACHINE
        yield
        self.privilege = mode

    def take_exception(self, number: int) -> None:
        if not self._faulted:
            self.fault = (number, 0)
        if number in _AT_DATA:
            self.fault = (number, self._c.utvm_data_address(self._engine, self._state_pointer))
        self.stop_at_fault()

    def set_bus_fault(self, access: int, address: int) -> None:
        cause = FETCH_FAULT if access == EXECUTE else _STORE_FAULT if access == STORE else _LOAD_FAULT
        self.fault = (cause, address)

    def set_invalid_fault(self) -> None:
        self.fault = (ILLEGAL, 0)

    def undo_faulting_instruction(self) -> None:
        cause, value = self.fault
        if cause == FETCH_FAULT:
            self.pc = value
            return
        self.pc = self.state.begun
        self.state.count -= 1
        if cause == ILLEGAL:
            self.fault = (cause, self._instruction())

    @property
    def pc(self) -> int:
        """Address of the next instruction."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_PC)) & self.mask

    @pc.setter
    def pc(self, value: int) -> None:
        self._uc.reg_write(riscv_const.UC_RISCV_REG_PC, value & self.mask)

    def read_x(self, number: int) -> int:
        """Read one of x0 to x31."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_X0 + number)) & self.mask

    def write_x(self, number: int, value: int) -> None:
        """Write one of x0 to x31; x0 stays 0."""
        if number:
            self._uc.reg_write(riscv_const.UC_RISCV_REG_X0 + number, value & self.mask)

    def read_f(self, number: int) -> int:
        """Read one of f0 to f31."""
        return int(self._uc.reg_read(riscv_const.UC_RISCV_REG_F0 + number)) & (1 << self.float_bits) - 1

    def write_f(self, number: int, value: int) -> None:
        """Write one of f0 to f31. They have 64 bits in Unicorn: narrower values are NaN-boxed."""
        boxed = value | _BOXED if self.float_bits == 32 else value
        self._uc.reg_write(riscv_const.UC_RISCV_REG_F0 + number, boxed)

    def read_csr(self, number: int) -> int | None:
        """Read a CSR, as a debugger or in machine mode; None if it does not exist."""
        if number in _NAMED:
            with self._in_machine_mode():
                return int(self._uc.reg_read(_NAMED[number])) & self.mask
        if number == MIP:
            return self.pending()
        if TSELECT <= number <= TINFO:
            return self.triggers.read(number)
        if number in _COUNTERS:
            return self._counter(number) & self.mask
        if number - _UPPER_HALF in _COUNTERS:
            return self._counter(number - _UPPER_HALF) >> 32 if self.xlen == 32 else None
        with self._saved_x(10):
            exists = self._execute(number << 20 | 2 << 12 | 10 << 7 | 0x73)  # csrrs a0, number, zero
            value = self.read_x(10)
        return value if exists else None

    def _counter(self, number: int) -> int:
        return self.time() if number == _TIME else self.state.count

    def write_csr(self, number: int, value: int) -> bool:
        """Write a CSR, as a debugger. False if it does not exist, is read-only or a counter."""
        if number in _NAMED:
            with self._in_machine_mode():
                self._uc.reg_write(_NAMED[number], value & self.mask)
            return True
        if number == MIP:
            return True  # Its bits are the devices'.
        if TSELECT <= number <= TINFO:
            self.write_trigger(number, value, debugger=True)
            return True
        if number in _COUNTERS or number - _UPPER_HALF in _COUNTERS:
            return False
        with self._saved_x(10):
            self.write_x(10, value)
            return self._execute(number << 20 | 10 << 15 | 1 << 12 | 0x73)  # csrrw zero, number, a0

    def write_trigger(self, number: int, value: int, *, debugger: bool) -> None:
        """Write a register of the triggers."""
        self.triggers.write(number, value, debugger=debugger)
        self.set_triggers(self.triggers.conditions)

    @contextlib.contextmanager
    def _saved_x(self, number: int) -> Iterator[None]:
        value = self.read_x(number)
        yield
        self.write_x(number, value)

    def _execute(self, instruction: int) -> bool:
        state = self.state
        saved = (self.pc, state.count, state.stop, state.triggered)
        self._uc.mem_map(_SCRATCH, _PAGE)
        self._uc.mem_write(_SCRATCH, instruction.to_bytes(4, "little"))
        state.deadline, state.stop, state.triggered, self._faulted = NEVER, 0, 0, False
        with self._in_machine_mode():
            status = int(self._uc.reg_read(riscv_const.UC_RISCV_REG_MSTATUS))
            off = instruction >> 20 in _FLOAT and not status & _FLOAT_ENABLED
            if off:  # A debugger sees the registers all the same.
                self._uc.reg_write(riscv_const.UC_RISCV_REG_MSTATUS, status | _FLOAT_ENABLED)
            with contextlib.suppress(unicorn.UcError):
                self._uc.emu_start(_SCRATCH, _SCRATCH + 4)
            if off:
                self._uc.reg_write(riscv_const.UC_RISCV_REG_MSTATUS, status)
        self._uc.mem_unmap(_SCRATCH, _PAGE)
        self.pc, state.count, state.stop, state.triggered = saved
        return not self._faulted

    def _instruction(self) -> int:
        first = int.from_bytes(self._bus.read(self.pc, 2), "little")
        return first | int.from_bytes(self._bus.read(self.pc + 2, 2), "little") << 16 if first & 3 == 3 else first

    def read_counter(self) -> Pause:
        """Execute the read of a counter or mip at PC; FAULT if the hart has none, or not in this mode."""
        instruction = self._instruction()
        value = self.read_csr(instruction >> 20)
        if value is None or instruction >> 28 & 3 > self.privilege:
            self.fault = (ILLEGAL, instruction)
            return Pause.FAULT
        self.state.count += 1
        self.write_x(instruction >> 7 & 31, value)
        self.pc += 4
        return Pause.REQUEST

    def access_trigger(self) -> bool:
        """Execute the access to a trigger's register at PC; False if it is none, or not in machine mode."""
        instruction = self._instruction()
        number, source, function = instruction >> 20, instruction >> 15 & 31, instruction >> 12 & 7
        is_access = instruction & 0x7F == 0x73 and function & 3 and TSELECT <= number <= TINFO
        if not is_access or self.privilege != MACHINE:
            return False
        before = self.triggers.read(number)
        operand = source if function & 4 else self.read_x(source)
        if function & 3 == 1 or source:
            value = {1: operand, 2: before | operand, 3: before & ~operand}[function & 3]
            self.write_trigger(number, value, debugger=False)
        self.write_x(instruction >> 7 & 31, before)
        self.state.count += 1
        self.pc += 4
        return True


EBREAK, TRIGGER, HALT_REQUEST, STEP = 1, 2, 3, 4
"""Causes of a halt."""

_INTERRUPTS_ENABLED = 1 << 3  # MIE in mstatus
_PREVIOUS_SHIFT = 4  # from MIE to MPIE
_MODE_SHIFT = 11  # MPP
_BY_PRIORITY = (11, 3, 7)  # external, software, timer


class Hart(CoreRunner):
    """A hart. The caller holds the machine's lock.

    Attributes:
        cause: cause of the last halt.
        ebreak_halts: privilege modes in which EBREAK halts instead of a trap (dcsr).
        step_interrupts: interrupts are taken during a step (dcsr).
    """

    def __init__(self, isa: str, bus: Bus, start: int) -> None:
        super().__init__()
        self.core: RiscvCore = RiscvCore(isa, bus)
        self.core.pending = self.pending
        self._start = start
        self.cause = HALT_REQUEST
        self.ebreak_halts: frozenset[int] = frozenset()
        self.step_interrupts = False
        self.reset()

    def reset(self) -> None:
        """Reset the hart; a halted one stays halted."""
        self._sleeping = False
        self.core.reset(self._start)

    def halt(self, cause: int) -> None:
        """Enter Debug Mode."""
        if not self.halted:
            self.halted, self.cause, self._sleeping = True, cause, False

    def resume(self) -> None:
        """Leave Debug Mode."""
        self.halted = False

    def step(self) -> None:
        """Execute one instruction, or enter a trap, and halt again."""
        self.halted = False
        goal = self.core.state.count + 1
        if not (self.step_interrupts and self.take_interrupt()):
            while self.core.state.count < goal and not self.halted:
                self.core.state.stop = 0
                if self.handle(self.core.run(goal)):
                    break
        self.halt(STEP)

    def _pass(self) -> bool:
        """Execute the instruction at PC, whatever its triggers."""
        self.core.set_triggers([])
        try:
            return self.handle(self.core.run(self.core.state.count + 1))
        finally:
            self.core.set_triggers(self.core.triggers.conditions)

    def handle(self, reason: Pause) -> bool:
        if reason is Pause.READ_COUNTER:
            reason = self.core.read_counter()
        if reason is Pause.TRIGGER:
            halts = self.core.triggers.halts(self.core.state.fired, self.core.privilege)
            if halts is None:
                return self._pass()
            if halts:
                self.halt(TRIGGER)
            else:
                self._trap(BREAKPOINT, self.core.pc)
            return not halts
        if reason is Pause.FAULT and self.core.fault[0] == ILLEGAL and self.core.access_trigger():
            return False
        if reason is Pause.BREAK and self.core.privilege in self.ebreak_halts:
            self.halt(EBREAK)
        elif reason is Pause.BREAK:
            self._trap(BREAKPOINT, self.core.pc)
        elif reason is Pause.ECALL:
            self._trap(CALL - MACHINE + self.core.privilege)
        elif reason is Pause.FAULT:
            self._trap(*self.core.fault)
        elif reason is Pause.SLEEP:
            self.sleep(4)
        return reason in (Pause.BREAK, Pause.ECALL, Pause.FAULT)

    def _trap(self, cause: int, value: int = 0) -> None:
        mode, self.core.privilege = self.core.privilege, MACHINE
        status = self._csr(MSTATUS)
        enabled = status & _INTERRUPTS_ENABLED
        status &= ~(_INTERRUPTS_ENABLED | _INTERRUPTS_ENABLED << _PREVIOUS_SHIFT | MACHINE << _MODE_SHIFT)
        self.core.write_csr(MSTATUS, status | enabled << _PREVIOUS_SHIFT | mode << _MODE_SHIFT)
        self.core.write_csr(MEPC, self.core.pc)
        self.core.write_csr(MCAUSE, cause)
        self.core.write_csr(MTVAL, value)
        self.core.pc = self._csr(MTVEC) & ~3

    def _csr(self, number: int) -> int:
        value = self.core.read_csr(number)
        assert value is not None
        return value

    def wakeup_interrupts(self) -> int:
        pending = self.pending()
        return pending & self._csr(MIE) if pending else 0

    def take_interrupt(self) -> bool:
        interrupts = self.wakeup_interrupts()
        if not interrupts:
            return False
        if self.core.privilege == MACHINE and not self._csr(MSTATUS) & _INTERRUPTS_ENABLED:
            return False
        number = next(number for number in _BY_PRIORITY if interrupts >> number & 1)
        self._trap(number | 1 << (self.core.xlen - 1))
        return True
