# SPDX-License-Identifier: Apache-2.0
"""The instruction set of a Cortex-M, executed by Unicorn.

:class:`Core` stops wherever the architecture does more than Unicorn. It reports the reason, with the registers as
the architecture defines them there: a faulting instruction is undone, and PC is its address.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from pathlib import Path
from typing import Any, cast

import unicorn
from unicorn import arm_const, unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.cortex_m import faults
from utvm.virtual.cortex_m.faults import Fault
from utvm.virtual.cortex_m.mpu import ENABLE, FILTERS_CODE, FILTERS_DATA, RIGHT_EXECUTE, MpuState
from utvm.virtual.cortex_m.registers import FPSCR, LR, PC, R0, S0, SP, THUMB, XPSR, RegisterFile
from utvm.virtual.engine import MEMORIES, NEVER
from utvm.virtual.native import fields, load_library

BREAKPOINTS = 12  # six comparators with two halves of a word each
WATCHPOINTS = 4
_STORES = 32
WATCH_READ, WATCH_WRITE = 1, 2
_MEGABYTES = 4096


class Reason(IntEnum):
    """Reason for a stop before an instruction, ``enum stop`` of ``counter.c``."""

    NONE = 0
    REQUEST = 1
    BREAKPOINT = 2
    SLEEP = 3
    NO_COPROCESSOR = 4
    DIVIDE = 5
    UNALIGNED = 6
    READ_CONTROL = 7
    SPIN = 8
    FLOAT = 9
    ACCESS = 10
    EXECUTE = 11
    EXCLUSIVE = 12


class _Memory(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), *fields(ctypes.c_uint32, "start size"))


class _Watchpoint(ctypes.Structure):
    _fields_ = fields(ctypes.c_uint32, "first last access")


class _Store(ctypes.Structure):
    _fields_ = (*fields(ctypes.c_uint32, "address size"), ("bytes", ctypes.c_uint8 * 8))


class CoreState(ctypes.Structure):
    """``core_t`` of ``core.h``."""

    _fields_ = (
        *fields(ctypes.c_void_p, "emulation_stop register_read register_write"),
        ("memory_count", ctypes.c_uint32),
        ("memories", _Memory * MEMORIES),
        *fields(ctypes.c_uint64, "count deadline"),
        *fields(ctypes.c_uint32, "stop pass_address masks_matter trap_division trap_unaligned"),
        *fields(ctypes.c_uint32, "float_enabled float_access float_lazy event"),
        ("limits", ctypes.c_uint32 * 2),
        ("breakpoint_count", ctypes.c_uint32),
        ("breakpoints", ctypes.c_uint32 * BREAKPOINTS),
        *fields(ctypes.c_uint32, "checked code_memory"),
        ("watchpoints", _Watchpoint * WATCHPOINTS),
        *fields(ctypes.c_uint32, "reason begun watch_hits undo undo_reason"),
        ("undo_count", ctypes.c_uint64),
        ("undo_address", ctypes.c_uint32),
        ("saved", ctypes.c_uint32 * 16),
        ("saved_float", ctypes.c_uint32 * 33),
        ("store_count", ctypes.c_uint32),
        ("stores", _Store * _STORES),
        ("conditional", ctypes.c_uint32 * 7),
        ("cycles", ctypes.c_void_p),
        ("exclusive", ctypes.c_uint32),
        ("unprivileged", ctypes.c_uint64),
        ("mpu", MpuState),
        ("kinds", ctypes.c_void_p * _MEGABYTES),
    )


def load_counter() -> ctypes.CDLL:
    """Load the C files as a shared library."""
    names = ("mpu", "trace", "opcodes", "counter", "cycles", "loads")
    return load_library(*(Path(__file__).with_name(f"{name}.c") for name in names))


# Exceptions by their numbers in Unicorn's interrupt hook.
_SVC, _PREFETCH_ABORT, _BKPT, _EXCEPTION_RETURN, _NO_COPROCESSOR, _STACK_LIMIT = 2, 3, 7, 8, 17, 19

# Address at which Unicorn ends. It is execute-never, so there is no code.
_END = 0xDFFFFFF0

_POLLS = 3  # Rounds after which a loop counts as polling.
_LOOP_LOADS = 6  # Most loads in a polling loop.
_COUNTER_STEP = 0x7FFF  # A larger difference between two polls is not a running counter.
_DWT = 0xE0001000  # Polling CYCCNT does not advance time.

_PRIVATE_PERIPHERALS, _EXCEPTION_RETURNS = 0xE0000000, 0xF0000000


class StopKind(Enum):
    """Reason for which the core stopped."""

    REQUEST = auto()  # at the deadline, or requested
    BREAKPOINT = auto()  # before the instruction
    SLEEP = auto()  # before WFI or WFE
    SPIN = auto()  # before a branch to itself
    FLOAT = auto()  # before the first floating-point instruction of a context
    SUPERVISOR_CALL = auto()  # after SVC
    BKPT = auto()  # at BKPT
    EXCEPTION_RETURN = auto()  # after a branch to EXC_RETURN, which is in PC
    FAULT = auto()  # at the instruction


@dataclass(frozen=True)
class CoreStop:
    """A stop of the core, with the fault if that is the reason."""

    kind: StopKind
    fault: Fault | None = None


_STOPS = {Reason[kind.name]: CoreStop(kind) for kind in StopKind if kind.name in Reason.__members__}
_REQUESTED = _STOPS[Reason.REQUEST]
_FAULTS = {
    Reason.NO_COPROCESSOR: faults.usage_fault(faults.NOCP),
    Reason.DIVIDE: faults.usage_fault(faults.DIVBYZERO),
    Reason.UNALIGNED: faults.usage_fault(faults.UNALIGNED),
    Reason.EXECUTE: Fault(faults.MEM_MANAGE, faults.IACCVIOL),
}
_INTERRUPT_STOPS = {_SVC: StopKind.SUPERVISOR_CALL, _BKPT: StopKind.BKPT, _EXCEPTION_RETURN: StopKind.EXCEPTION_RETURN}
_INTERRUPT_FAULTS = {_NO_COPROCESSOR: faults.NOCP, _STACK_LIMIT: faults.STKOF}


def _usage_stop(status: int) -> CoreStop:
    return CoreStop(StopKind.FAULT, faults.usage_fault(status))


def _data_stop(address: int) -> CoreStop:
    return CoreStop(StopKind.FAULT, faults.data_fault(address))


class Core(RegisterFile):
    """The instruction set of an Armv7-M or Armv8-M core; ``model`` is Unicorn's number of the core.

    ``clock`` returns the time, in ticks; ``on_poll`` is called at a load that polls, with its device and the tick
    of the first one.
    """

    def __init__(self, bus: Bus, model: int) -> None:
        self.counter = load_counter()
        # Not UC_MODE_MCLASS, with which Unicorn uses its Cortex-M33 for any core.
        uc = unicorn.Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_THUMB)
        uc.ctl_set_cpu_model(model)
        super().__init__(uc, bus, CoreState())
        self.state.register_write = ctypes.cast(uclib.uc_reg_write, ctypes.c_void_p).value
        self._unlimited = uc.context_save()
        self._stop: CoreStop | None = None
        self._began_at = 0
        self._repairs: list[tuple[int, bytes]] = []
        self._polled_since = self._polled_at = 0
        # Rounds and last value, by instruction and address.
        self._polled: dict[tuple[int, int], tuple[int, int | None]] = {}
        self.clock: Callable[[], int] = lambda: 0
        self.on_poll: Callable[[Device, int], None] = lambda device, since: None
        self.open_registers: frozenset[int] = frozenset()  # private ones that unprivileged code may access
        self._data_hooks: list[Any] = []
        self._add_hooks()
        self.set_breakpoints([])
        bus.on_memory_change = self.forget_code

    @property
    def count(self) -> int:
        return cast(int, self.state.count)

    def close(self) -> None:
        """Free the memory of the C part."""
        self.counter.utvm_release(self._state_pointer)

    def reset_registers(self) -> None:
        if any(self.state.limits):
            self._uc.context_restore(self._unlimited)  # the only way to reset the stack limits
            self.state.limits[:] = [0, 0]
        super().reset_registers()

    # Execution

    def run(self, deadline: int = NEVER) -> CoreStop:
        """Execute until :attr:`count` reaches the deadline, ``state.stop`` is set, or Unicorn cannot continue.

        The caller clears ``state.stop`` first.
        """
        state = self.state
        state.deadline = deadline
        self._began_at = state.count
        self._stop = None
        self._drop_stale_code()
        pc = self.read(PC)
        thumb = self.read(XPSR) >> 24 & 1
        self.counter.utvm_resume(self._engine, self._state_pointer, pc)
        try:
            self._uc.emu_start(pc | thumb, _END)
        except unicorn.UcError as error:
            if self._stop is None:
                self._stop = self._stop_by_error(error)
        if self._repairs:
            self._repair_flash()
        if state.undo:
            return self._undo_instruction()
        return self._stop or self._stop_by_counter()

    def take_watch_hits(self) -> int:
        """Bit mask of the watchpoints hit since the last call."""
        hits = cast(int, self.state.watch_hits)
        self.state.watch_hits = 0
        return hits

    def step(self) -> CoreStop:
        """Execute one instruction, even if a stop is requested meanwhile."""
        before = self.count
        while True:
            self.state.stop = 0
            stop = self.run(before + 1)
            if stop.kind is not StopKind.REQUEST or self.count > before:
                return stop

    def pass_sleep(self) -> None:
        """Let the WFI or WFE at PC execute next without a stop."""
        self.state.pass_address = self.read(PC)

    def forget_code(self, start: int, end: int) -> None:
        """Drop translations of changed memory before the next instruction."""
        if self.counter.utvm_forget(self._state_pointer, start & ~1, end - (start & ~1)):
            self._stale.append((start, end))
            self.state.stop = 1

    def model_cycles(self, state: int) -> None:
        """Count cycles in a ``cycles_t`` at this address of the process."""
        self.state.cycles = state

    def set_breakpoints(self, addresses: list[int]) -> None:
        """Stop before the instructions at these addresses."""
        self.state.checked = bool(self.state.mpu.control & ENABLE and self.state.mpu.used & FILTERS_CODE)
        count = len(addresses[:BREAKPOINTS])
        self.counter.utvm_set_breakpoints(self._state_pointer, count, (ctypes.c_uint32 * count)(*addresses[:count]))

    def permits(self, address: int, size: int, rights: int) -> bool:
        """True if the enabled memory protection unit grants rights, bits as in ``mpu.h``."""
        return bool(self.counter.utvm_permits(ctypes.byref(self.state.mpu), address, size, rights))

    def set_data_checks(self, watchpoints: list[tuple[int, int, int]], align: bool, protect: bool) -> None:
        """Watch data addresses, trap unaligned accesses, protect memory. Each slows the core down.

        There are up to four watchpoints: first and last address, and WATCH_READ | WATCH_WRITE; 0 is off.
        """
        for index in range(WATCHPOINTS):
            slot = self.state.watchpoints[index]
            slot.first, slot.last, slot.access = watchpoints[index] if index < len(watchpoints) else (0, 0, 0)
        self.state.trap_unaligned = align
        needed = align or protect or any(access for _, _, access in watchpoints)
        if needed == bool(self._data_hooks):
            return
        for hook in self._data_hooks:
            uclib.uc_hook_del(self._engine, hook)
        kinds = (unicorn_const.UC_HOOK_MEM_READ, unicorn_const.UC_HOOK_MEM_WRITE) if needed else ()
        self._data_hooks = [self.add_c_hook(kind, self.counter.utvm_on_data) for kind in kinds]
        self._uc.ctl_flush_tb()

    # Unicorn's callbacks

    def _add_hooks(self) -> None:
        self.add_c_hook(unicorn_const.UC_HOOK_CODE, self.counter.utvm_before_instruction)
        self.add_c_hook(unicorn_const.UC_HOOK_EDGE_GENERATED, self.counter.utvm_on_translation)
        self._uc.hook_add(unicorn_const.UC_HOOK_INTR, self._on_interrupt)
        self._uc.hook_add(unicorn_const.UC_HOOK_INSN_INVALID, self._on_invalid)
        unmapped = unicorn_const.UC_HOOK_MEM_READ_UNMAPPED | unicorn_const.UC_HOOK_MEM_WRITE_UNMAPPED
        self._uc.hook_add(unmapped, self._on_unmapped)
        self._uc.hook_add(unicorn_const.UC_HOOK_MEM_WRITE_PROT, self._on_protected)
        self._uc.ctl_flush_tb()

    def _load(self, _uc: Any, offset: int, size: int, window: tuple[int, Device]) -> int:
        start, device = window
        if self.state.undo:
            return 0
        try:
            self._check_access(start, offset, WATCH_READ)
            device.touch(offset)
            return self._poll(start + offset, device, offset, size)
        except BusError:
            self._fail(start + offset, size, WATCH_READ)
            return 0

    def _store(self, _uc: Any, offset: int, size: int, value: int, window: tuple[int, Device]) -> None:
        if self.state.undo:
            return
        try:
            self._check_access(window[0], offset, WATCH_WRITE)
            window[1].touch(offset)
            self._polled.clear()
            window[1].write_by_software(offset, size, value)
        except BusError:
            self._fail(window[0] + offset, size, WATCH_WRITE)

    def _poll(self, address: int, device: Device, offset: int, size: int) -> int:
        """Load a value. Loads that repeat without a store to a device in between are reported as polling."""
        key = self.state.begun, address
        polled, count = self._polled, self.state.count
        rounds, before = polled.get(key, (0, None))
        if count - self._polled_at > device.loop or (not rounds and len(polled) == _LOOP_LOADS):
            polled.clear()
        self._polled_at = count
        if not polled:
            self._polled_since = self.clock()
        elif rounds > _POLLS and address & -0x1000 != _DWT:
            self.on_poll(device, self._polled_since)
        value = device.read(offset, size)
        if before is not None and abs(value - before) > _COUNTER_STEP:
            polled.clear()
            if value < before:  # a flag that the load before has cleared: another wait begins
                rounds, self._polled_since = 0, self.clock()
        polled[key] = rounds + 1, value
        return value

    def _check_access(self, device: int, offset: int, right: int) -> None:
        protects = self.state.mpu.control & ENABLE and not self.state.mpu.used & FILTERS_DATA
        if protects and self._refusal(device + offset, 1, right):
            raise BusError(device)
        if device < _PRIVATE_PERIPHERALS or device + offset in self.open_registers:
            return
        if self.unprivileged or self.state.unprivileged == self.state.count:
            raise BusError(device)

    def _fail(self, address: int, size: int, right: int) -> None:
        if not self.state.undo:
            self.counter.utvm_undo(self._engine, self._state_pointer, Reason.NONE)
            self._stop = self._refusal(address, size, right) or _data_stop(address)

    def _on_interrupt(self, uc: Any, number: int, _data: object) -> None:
        if number in _INTERRUPT_STOPS:
            self._stop = CoreStop(_INTERRUPT_STOPS[number])
        elif number == _PREFETCH_ABORT and self._has_branched_to_return():
            self._stop = CoreStop(StopKind.EXCEPTION_RETURN)  # Unicorn's Armv7-M cores raise a prefetch abort for it
        elif number == _PREFETCH_ABORT:
            self._stop = self._fetch_stop()
        else:
            self._stop = _usage_stop(_INTERRUPT_FAULTS.get(number, faults.UNDEFINSTR))
        uc.emu_stop()

    def _has_branched_to_return(self) -> bool:
        in_handler = self.read(XPSR) & 0x1FF and self.read(PC) >= _EXCEPTION_RETURNS
        return bool(in_handler and self.count != self._began_at)

    def _on_invalid(self, _uc: Any, _data: object) -> bool:
        self._stop = _usage_stop(faults.UNDEFINSTR if self.read(XPSR) & THUMB else faults.INVSTATE)
        return False

    def _on_unmapped(self, _uc: Any, access: int, address: int, size: int, _value: int, _data: object) -> bool:
        right = WATCH_WRITE if access == unicorn_const.UC_MEM_WRITE_UNMAPPED else WATCH_READ
        self._stop = self._refusal(address, size, right) or _data_stop(address)
        return False

    def _refusal(self, address: int, size: int, right: int) -> CoreStop | None:
        """Fault of an access that the memory protection unit refuses: Unicorn asks for memory before its hooks."""
        allowed = self.counter.utvm_allows(self._engine, self._state_pointer, address, size, right)
        return None if allowed else self._fault_stop(Reason.EXECUTE if right == RIGHT_EXECUTE else Reason.ACCESS)

    def _on_protected(self, _uc: Any, _access: int, address: int, size: int, value: int, _data: object) -> bool:
        written = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        if self.state.undo:
            self._repairs.append((address, self._bus.read(address, size)))
            return True
        if refusal := self._refusal(address, size, WATCH_WRITE):
            self._stop = refusal
            return False
        try:
            self._bus.program_flash(address, size, int.from_bytes(written, "little"))
        except BusError:
            self._stop = _data_stop(address)
            return False
        # Unicorn may store the value after this callback: restore it if the flash holds another one.
        stored = self._bus.read(address, size)
        if stored != written:
            self._repairs.append((address, stored))
            self.state.stop = 1
        return True

    def _repair_flash(self) -> None:
        for address, data in reversed(self._repairs):
            memory = self._bus.memory_at(address)
            if memory:
                memory.bytes[address - memory.start : address - memory.start + len(data)] = data
        self._repairs.clear()

    # Reasons of a stop

    def _stop_by_error(self, error: unicorn.UcError) -> CoreStop:
        if not self.read(XPSR) & THUMB:
            return _usage_stop(faults.INVSTATE)
        is_armv6 = self._uc.ctl_get_cpu_model() == arm_const.UC_CPU_ARM_CORTEX_M0
        if is_armv6 and self._has_branched_to_return():  # Unicorn fetches from there
            return CoreStop(StopKind.EXCEPTION_RETURN)
        if error.errno in (unicorn_const.UC_ERR_FETCH_UNMAPPED, unicorn_const.UC_ERR_FETCH_PROT):
            return self._fetch_stop()
        raise error

    def _fetch_stop(self) -> CoreStop:
        pc = self.read(PC)
        return self._refusal(pc, 2, RIGHT_EXECUTE) or CoreStop(StopKind.FAULT, faults.fetch_fault(pc))

    def _undo_instruction(self) -> CoreStop:
        state = self.state
        state.count = state.undo_count
        for store in reversed(state.stores[: state.store_count]):
            memory = self._bus.memory_at(store.address)
            if memory and memory.region.kind == "ram":
                self._bus.write(store.address, bytes(store.bytes[: store.size]))
        self.write_all((*range(R0, R0 + 13), SP, LR, XPSR), state.saved[:])
        self.write_all((*range(S0, S0 + 32), FPSCR), state.saved_float[:])
        self.write_pc(state.undo_address)
        if state.undo_reason == Reason.NONE:
            return cast(CoreStop, self._stop)
        if state.undo_reason == Reason.FLOAT:
            state.count -= 1
            return _STOPS[Reason.FLOAT]
        return self._fault_stop(Reason(state.undo_reason))

    def _fault_stop(self, reason: Reason) -> CoreStop:
        if reason == Reason.ACCESS:
            return CoreStop(StopKind.FAULT, faults.access_fault(self.state.mpu.address))
        return CoreStop(StopKind.FAULT, _FAULTS[reason])

    def _stop_by_counter(self) -> CoreStop:
        reason = Reason(self.state.reason)
        if reason in _STOPS:
            return _STOPS[reason]
        if reason == Reason.READ_CONTROL:
            return self._set_register(self._bus.read(self.read(PC) + 2, 2)[1] & 0xF, self.read_control())
        if reason == Reason.EXCLUSIVE:  # Rd of STREX; of STREXB and STREXH
            first, _, low, high = self._bus.read(self.read(PC), 4)
            return self._set_register(low & 0xF if first & 0x80 else high & 0xF, 1)
        if reason == Reason.NONE:  # Unicorn stopped by itself: at _END, or after WFI
            at_end = self.read(PC) == _END
            return CoreStop(StopKind.FAULT, faults.fetch_fault(_END)) if at_end else _REQUESTED
        self.state.count += 1
        return self._fault_stop(reason)

    def _set_register(self, target: int, value: int) -> CoreStop:
        """Execute what Unicorn does otherwise: MRS Rd, CONTROL has a bit of Armv8-M there; STREX succeeds."""
        pc = self.read(PC)
        self.write(LR if target == 14 else R0 + target, value)
        self.write_pc(pc + 4)
        self.state.count += 1
        return _REQUESTED
