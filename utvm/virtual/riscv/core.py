# SPDX-License-Identifier: Apache-2.0
"""The instruction set of a RISC-V hart: Unicorn, told to stop wherever a hart does more than Unicorn knows.

Unicorn executes, with physical memory protection and faults of alignment, and has every CSR; it enters no trap,
has no exact counters and says nothing of the address of a fault. See ``hart.c``.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import unicorn
from unicorn import riscv_const, unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.compiled import load_compiled

MEMORIES = 16
TRIGGERS = 8
NEVER = 2**64 - 1
LOAD, STORE, EXECUTE = 1, 2, 4
"""What a trigger matches."""

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

_UNTIL = 0xFFFFFFFE  # where Unicorn ends by itself: nothing is there
_APART = 0xFFFFE000  # where instructions of a debugger's are executed; there only meanwhile
_PAGE = 0x1000
_BOXED = 0xFFFFFFFF << 32


class HartStop(IntEnum):
    """Why the hart stopped before an instruction; FAULT: at it."""

    NONE = 0
    ASKED = 1
    TRIGGER = 2
    SLEEP = 3
    READ_COUNTER = 4
    EBREAK = 5
    ECALL = 6
    FAULT = 7


class _Memory(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("start", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Trigger(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("accesses", ctypes.c_uint32), ("unused", ctypes.c_uint32))


class HartState(ctypes.Structure):
    """``hart_t`` of ``hart.c``, field by field."""

    _fields_ = (
        ("emulation_stop", ctypes.c_void_p),
        ("register_read", ctypes.c_void_p),
        ("memory_count", ctypes.c_uint64),
        ("memories", _Memory * MEMORIES),
        ("triggers", _Trigger * TRIGGERS),
        ("count", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("begun", ctypes.c_uint64),
        ("xlen", ctypes.c_uint64),
        ("stop", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("masks_matter", ctypes.c_uint32),
        ("triggered", ctypes.c_uint32),
    )

    memory_count: int
    memories: "ctypes.Array[Any]"
    triggers: "ctypes.Array[Any]"
    count: int
    deadline: int
    begun: int
    xlen: int
    stop: int
    reason: int
    masks_matter: int
    triggered: int


class RiscvCore:
    """An RV32 or RV64 hart with its registers, in machine mode.

    Args:
        isa: ``rv32imafc`` or ``rv64imafdc``: its width, and whether it has D. The other letters are Unicorn's.

    Attributes:
        state: what it shares with the C part: counts, deadline, triggers.
        time: returns what the CSR of that name holds.
        fault: cause and mtval of the fault that it stopped at.

    Raises:
        ToolchainError: the C part cannot be compiled.
        ConfigError: there are more regions of memory than it keeps track of.
    """

    def __init__(self, isa: str, bus: Bus) -> None:
        self.xlen = 64 if isa.startswith("rv64") else 32
        self.mask = (1 << self.xlen) - 1
        self.float_bits = 64 if "d" in isa[4:] else 32
        self.fault = (0, 0)
        self.time: Callable[[], int] = lambda: 0
        self._bus = bus
        self._faulted = False
        self._c = load_compiled(Path(__file__).with_name("hart.c"))
        self._c.utvm_data_address.restype = ctypes.c_uint64
        self._uc = unicorn.Uc(
            unicorn_const.UC_ARCH_RISCV,
            unicorn_const.UC_MODE_RISCV64 if self.xlen == 64 else unicorn_const.UC_MODE_RISCV32,
        )
        self.state = HartState(xlen=self.xlen)
        self._state_pointer = ctypes.byref(self.state)
        self._stale: list[tuple[int, int]] = []
        self._map_memory()
        self._add_hooks()
        self._at_reset = self._uc.context_save()
        bus.on_memory_change = self._forget_code

    def _map_memory(self) -> None:
        """Let instructions reach the memories.

        Raises:
            ConfigError: the board's file has more than the model of the core keeps track of.
        """
        if len(self._bus.memories) > MEMORIES:
            raise ConfigError(
                f"{len(self._bus.memories)} regions of memory are more than the {MEMORIES} supported"
            )
        self.state.memory_count = len(self._bus.memories)
        for slot, memory in zip(self.state.memories, self._bus.memories, strict=False):
            slot.bytes, slot.start, slot.size = memory.host_address, memory.start, memory.region.size
            self._uc.mem_map_ptr(memory.start, memory.region.size, unicorn_const.UC_PROT_ALL, memory.host_address)

    def _add_hooks(self) -> None:
        self.state.emulation_stop = ctypes.cast(uclib.uc_emu_stop, ctypes.c_void_p).value
        self.state.register_read = ctypes.cast(uclib.uc_reg_read, ctypes.c_void_p).value
        status = uclib.uc_hook_add(
            self._engine,
            ctypes.byref(ctypes.c_size_t()),
            unicorn_const.UC_HOOK_CODE,
            ctypes.cast(self._c.utvm_before_instruction, ctypes.c_void_p),
            self._state_pointer,
            ctypes.c_uint64(1),
            ctypes.c_uint64(0),
        )
        if status:
            raise unicorn.UcError(status)
        self._uc.hook_add(unicorn_const.UC_HOOK_INTR, self._on_exception)
        self._uc.hook_add(unicorn_const.UC_HOOK_MEM_INVALID, self._on_refused)

    def map_device(self, address: int, device: Device) -> None:
        """Let instructions reach a device of the bus."""
        self._uc.mmio_map(address, device.size, self._load, (address, device), self._store, (address, device))

    @property
    def _engine(self) -> Any:
        return self._uc._uch

    def _forget_code(self, start: int, end: int) -> None:
        """Drop what was translated from memory that has changed, before the next instruction."""
        if self._stale and self._stale[-1][1] == start:
            start = self._stale.pop()[0]
        self._stale.append((start, end))

    # What Unicorn calls

    def _load(self, _uc: Any, offset: int, size: int, place: tuple[int, Device]) -> int:
        # Eight bytes are two words.
        parts = (offset, offset + 4) if size == 8 else (offset,)
        try:
            words = [place[1].read(part, min(size, 4)) for part in parts]
        except BusError:
            self._refuse(_LOAD_FAULT, place[0] + offset)
            return 0
        return sum(word << 32 * index for index, word in enumerate(words))

    def _store(self, _uc: Any, offset: int, size: int, value: int, place: tuple[int, Device]) -> None:
        try:
            place[1].write(offset, min(size, 4), value & (1 << 8 * min(size, 4)) - 1)
            if size == 8:
                place[1].write(offset + 4, 4, value >> 32)
        except BusError:
            self._refuse(_STORE_FAULT, place[0] + offset)

    def _on_exception(self, uc: Any, number: int, _data: object) -> None:
        self._refuse(number, 0)
        if number in _AT_DATA:
            self.fault = (number, self._c.utvm_data_address(self._engine, self._state_pointer))

    def _on_refused(self, _uc: Any, access: int, address: int, *_more: Any) -> bool:
        fetched = access in (unicorn_const.UC_MEM_FETCH_UNMAPPED, unicorn_const.UC_MEM_FETCH_PROT)
        written = access in (unicorn_const.UC_MEM_WRITE_UNMAPPED, unicorn_const.UC_MEM_WRITE_PROT)
        self._refuse(FETCH_FAULT if fetched else _STORE_FAULT if written else _LOAD_FAULT, address & self.mask)
        return False

    def _refuse(self, cause: int, value: int) -> None:
        if not self._faulted:
            self._faulted = True
            self.fault = (cause, value)
        self._uc.emu_stop()

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

    # Execution

    def reset(self, start: int) -> None:
        """Forget what registers hold, and begin at an address."""
        self._uc.context_restore(self._at_reset)
        self.pc = start

    def run(self, deadline: int) -> HartStop:
        """Execute until ``state.count`` reaches a deadline, somebody sets ``state.stop``, or more is needed.

        Whoever calls clears ``state.stop`` before. PC is at the instruction that is next, or that faults.
        """
        state = self.state
        state.deadline, state.reason, self._faulted = deadline, HartStop.NONE, False
        # Unicorn cannot drop translations while it executes.
        for start, end in self._stale:
            self._uc.ctl_remove_cache(start, end)
        self._stale.clear()
        try:
            self._uc.emu_start(self.pc, _UNTIL)
        except unicorn.UcError:
            self._refuse(ILLEGAL, 0)
        if self._faulted:
            return self._stop_at_fault()
        return HartStop(state.reason) if state.reason else HartStop.ASKED

    def _stop_at_fault(self) -> HartStop:
        """Stand at the instruction that faults, which is not counted."""
        cause, value = self.fault
        if cause == FETCH_FAULT:
            self.pc = value
            return HartStop.FAULT
        self.pc = self.state.begun
        self.state.count -= 1
        if cause == ILLEGAL:
            self.fault = (cause, self._instruction())
        return HartStop.FAULT

    def _instruction(self) -> int:
        first = int.from_bytes(self._bus.read(self.pc, 2), "little")
        return first | int.from_bytes(self._bus.read(self.pc + 2, 2), "little") << 16 if first & 3 == 3 else first

    def pass_counter(self) -> HartStop:
        """Execute the reading of a counter at PC; FAULT where a hart of this width has none of that number."""
        instruction = self._instruction()
        value = self.read_csr(instruction >> 20)
        if value is None:
            self.fault = (ILLEGAL, instruction)
            return HartStop.FAULT
        self.state.count += 1
        self.write_x(instruction >> 7 & 31, value)
        self.pc += 4
        return HartStop.ASKED

    def set_triggers(self, wanted: list[tuple[int, int]]) -> None:
        """Stop before what accesses these addresses: pairs of address and LOAD, STORE, EXECUTE."""
        self.state.triggered = 0
        for index, slot in enumerate(self.state.triggers):
            slot.address, slot.accesses = wanted[index] if index < len(wanted) else (0, 0)
            self.state.triggered |= slot.accesses
