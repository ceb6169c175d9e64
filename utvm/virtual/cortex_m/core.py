# SPDX-License-Identifier: Apache-2.0
"""The instruction set: Unicorn, told to stop wherever a core does more than Unicorn knows.

Unicorn executes; :class:`Core` reports why it stopped, with the registers as the architecture has them at that
point: a faulting instruction is undone, PC is at it. What happens next is not decided here.
"""

import ctypes
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import unicorn
from unicorn import unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.cortex_m import faults
from utvm.virtual.cortex_m.counter import (
    BREAKPOINTS,
    MEMORIES,
    NEVER,
    WATCHPOINTS,
    CoreState,
    Reason,
    load_counter,
)
from utvm.virtual.cortex_m.faults import Fault
from utvm.virtual.cortex_m.registers import FPSCR, LR, PC, R0, S0, SP, THUMB, XPSR, RegisterFile

# Exceptions of Unicorn's translator, as its interrupt hook numbers them.
_SVC = 2
_PREFETCH_ABORT = 3
_BKPT = 7
_EXCEPTION_RETURN = 8
_NO_COPROCESSOR = 17
_STACK_LIMIT = 19

# Where Unicorn ends by itself. No code can be there: the address is execute-never.
_UNTIL = 0xDFFFFFF0

_PRIVATE_PERIPHERALS = 0xE0000000
_EXCEPTION_RETURNS = 0xF0000000

_EVERYWHERE = (1, 0)  # as Unicorn says it

WATCH_READ = 1
WATCH_WRITE = 2


class StopKind(Enum):
    """Why the core stopped."""

    ASKED = "the deadline, or somebody asked"
    BREAKPOINT = "before an instruction with a breakpoint"
    SLEEP = "before WFI or WFE"
    SUPERVISOR_CALL = "after SVC"
    BKPT = "at BKPT"
    EXCEPTION_RETURN = "a branch to EXC_RETURN, which is in PC"
    FAULT = "at an instruction that faults"


@dataclass(frozen=True)
class CoreStop:
    """Why the core stopped; ``fault`` says more about a fault."""

    kind: StopKind
    fault: Fault | None = None


_ASKED = CoreStop(StopKind.ASKED)
_STOPS = {
    Reason.ASKED: StopKind.ASKED,
    Reason.BREAKPOINT: StopKind.BREAKPOINT,
    Reason.SLEEP: StopKind.SLEEP,
}
_FAULTS = {
    Reason.NO_COPROCESSOR: faults.NOCP,
    Reason.DIVIDE: faults.DIVBYZERO,
    Reason.UNALIGNED: faults.UNALIGNED,
}


class Core(RegisterFile):
    """An instruction set of Armv7-M or Armv8-M with its registers.

    Args:
        model: what Unicorn calls the core.

    Attributes:
        state: what it shares with the C part: counts, deadline, breakpoints, watchpoints.
    """

    def __init__(self, bus: Bus, model: int) -> None:
        self._bus = bus
        self._counter = load_counter()
        self.state = CoreState()
        # Not UC_MODE_MCLASS, which takes Unicorn's Cortex-M33 for any core.
        self._uc = unicorn.Uc(unicorn_const.UC_ARCH_ARM, unicorn_const.UC_MODE_THUMB)
        self._uc.ctl_set_cpu_model(model)
        super().__init__(self._uc)
        self._unlimited = self._uc.context_save()
        self._state_pointer = ctypes.byref(self.state)
        self._stop: CoreStop | None = None
        self._began_at = 0
        self._stale: list[tuple[int, int]] = []
        self._repairs: list[tuple[int, bytes]] = []
        self._data_hooks: list[ctypes.c_size_t] = []
        self._map_memory()
        self._add_hooks()
        self.set_breakpoints([])
        bus.on_memory_change = self.forget_code

    @property
    def count(self) -> int:
        """Instructions executed since the model was made."""
        return self.state.count

    def close(self) -> None:
        """Free what the C part holds."""
        self._counter.utvm_release(self._state_pointer)

    def reset_registers(self) -> None:
        if any(self.state.limits):
            self._uc.context_restore(self._unlimited)  # there is no other way to the limits of the stacks
            self.state.limits[:] = [0, 0]
        super().reset_registers()

    # Execution

    def run(self, deadline: int = NEVER) -> CoreStop:
        """Execute until :attr:`count` reaches a deadline, somebody sets ``state.stop``, or more is needed.

        Whoever calls clears ``state.stop`` before.
        """
        state = self.state
        state.deadline = deadline
        self._began_at = state.count
        self._stop = None
        # Unicorn cannot drop translations while it executes.
        for start, end in self._stale:
            self._uc.ctl_remove_cache(start, end)
        self._stale.clear()
        pc = self.read(PC)
        thumb = self.read(XPSR) >> 24 & 1
        self._counter.utvm_resume(self._engine, self._state_pointer, pc)
        try:
            self._uc.emu_start(pc | thumb, _UNTIL)
        except unicorn.UcError as error:
            if self._stop is None:
                self._stop = self._refused(error)
        if self._repairs:
            self._repair_flash()
        if state.undo:
            return self._undo_instruction()
        if self._stop is not None:
            return self._stop
        return self._stopped_by_counter()

    def take_watch_hits(self) -> int:
        """Return which watchpoints were hit since the last call, one bit each."""
        hits = self.state.watch_hits
        self.state.watch_hits = 0
        return hits

    def step(self) -> CoreStop:
        """Execute one instruction, even if somebody asks to stop meanwhile."""
        before = self.count
        while True:
            self.state.stop = 0
            stop = self.run(before + 1)
            if stop.kind is not StopKind.ASKED or self.count > before:
                return stop

    def pass_sleep(self) -> None:
        """Let the WFI or WFE at PC be executed next: its sleep is over."""
        self.state.pass_address = self.read(PC)

    def forget_code(self, start: int, end: int) -> None:
        """Drop what was translated from memory that has changed, at the latest before the next instruction."""
        if self._counter.utvm_forget(self._state_pointer, start & ~1, end - (start & ~1)):
            self._stale.append((start, end))
            self.state.stop = 1

    def set_breakpoints(self, addresses: list[int]) -> None:
        """Stop before the instructions at these addresses, eight at most."""
        state = self.state
        state.breakpoint_filter = 0
        state.breakpoint_count = len(addresses[:BREAKPOINTS])
        for index, address in enumerate(addresses[:BREAKPOINTS]):
            state.breakpoints[index] = address
            state.breakpoint_filter |= 1 << (address >> 1 & 63)

    def set_data_checks(self, watched: list[tuple[int, int, int]], trap_unaligned: bool) -> None:
        """Watch data addresses, and fault on unaligned accesses where asked. Slow while there is either.

        Args:
            watched: up to four of (first address, last address, WATCH_READ | WATCH_WRITE); 0 watches nothing.
        """
        for index in range(WATCHPOINTS):
            first, last, access = watched[index] if index < len(watched) else (0, 0, 0)
            slot = self.state.watchpoints[index]
            slot.first, slot.last, slot.access = first, last, access
        self.state.trap_unaligned = trap_unaligned
        needed = trap_unaligned or any(access for _, _, access in watched)
        if needed and not self._data_hooks:
            self._data_hooks = [
                self._add_c_hook(unicorn_const.UC_HOOK_MEM_READ, "utvm_on_data"),
                self._add_c_hook(unicorn_const.UC_HOOK_MEM_WRITE, "utvm_on_data"),
            ]
            self._uc.ctl_flush_tb()
        elif not needed and self._data_hooks:
            for hook in self._data_hooks:
                uclib.uc_hook_del(self._engine, hook)
            self._data_hooks = []
            self._uc.ctl_flush_tb()

    # Set-up

    def _map_memory(self) -> None:
        """Let instructions reach the memories."""
        if len(self._bus.memories) > MEMORIES:
            raise ConfigError(
                f"{len(self._bus.memories)} regions of memory are more than the {MEMORIES} supported"
            )
        self.state.memory_count = len(self._bus.memories)
        for slot, memory in zip(self.state.memories, self._bus.memories, strict=False):
            slot.bytes, slot.start, slot.size = memory.host_address, memory.start, memory.region.size
            rights = unicorn_const.UC_PROT_READ | unicorn_const.UC_PROT_EXEC
            if memory.region.kind == "ram":
                rights |= unicorn_const.UC_PROT_WRITE
            self._uc.mem_map_ptr(memory.start, memory.region.size, rights, memory.host_address)

    def map_device(self, address: int, device: Device) -> None:
        """Let instructions reach a device of the bus."""
        self._uc.mmio_map(address, device.size, self._load, (address, device), self._store, (address, device))

    def _add_hooks(self) -> None:
        state = self.state
        state.emulation_stop = _address_of("uc_emu_stop")
        state.register_read = _address_of("uc_reg_read")
        self._add_c_hook(unicorn_const.UC_HOOK_CODE, "utvm_before_instruction")
        self._add_c_hook(unicorn_const.UC_HOOK_EDGE_GENERATED, "utvm_on_translation")
        self._uc.hook_add(unicorn_const.UC_HOOK_INTR, self._on_interrupt)
        self._uc.hook_add(unicorn_const.UC_HOOK_INSN_INVALID, self._on_invalid)
        refused = unicorn_const.UC_HOOK_MEM_READ_UNMAPPED | unicorn_const.UC_HOOK_MEM_WRITE_UNMAPPED
        self._uc.hook_add(refused, self._on_refused)
        self._uc.hook_add(unicorn_const.UC_HOOK_MEM_WRITE_PROT, self._on_protected)
        self._uc.ctl_flush_tb()

    def _add_c_hook(self, kind: int, function: str) -> ctypes.c_size_t:
        code = ctypes.cast(getattr(self._counter, function), ctypes.c_void_p)
        return self.add_c_hook(kind, code, self._state_pointer, _EVERYWHERE)

    def add_c_hook(self, kind: int, code: ctypes.c_void_p, data: Any, span: tuple[int, int]) -> ctypes.c_size_t:
        """Have a C function called, with a pointer to its data, in a span of addresses, both ends included."""
        handle = ctypes.c_size_t()
        status = uclib.uc_hook_add(
            self._engine, ctypes.byref(handle), kind, code, data, *map(ctypes.c_uint64, span)
        )
        if status:
            raise unicorn.UcError(status)
        return handle

    # What Unicorn calls

    def _load(self, _uc: Any, offset: int, size: int, place: tuple[int, Device]) -> int:
        try:
            self._check_privilege(place[0])
            return place[1].read(offset, size)
        except BusError:
            self._fail(place[0] + offset)
            return 0

    def _store(self, _uc: Any, offset: int, size: int, value: int, place: tuple[int, Device]) -> None:
        try:
            self._check_privilege(place[0])
            place[1].write_by_software(offset, size, value)
        except BusError:
            self._fail(place[0] + offset)

    def _check_privilege(self, device: int) -> None:
        if device >= _PRIVATE_PERIPHERALS and self.unprivileged:
            raise BusError(device)

    def _fail(self, address: int) -> None:
        if not self.state.undo:
            self._counter.utvm_undo(self._engine, self._state_pointer, Reason.NONE)
            self._stop = CoreStop(StopKind.FAULT, faults.data_fault(address))

    def _on_interrupt(self, uc: Any, number: int, _data: object) -> None:
        if number == _SVC:
            self._stop = CoreStop(StopKind.SUPERVISOR_CALL)
        elif number == _BKPT:
            self._stop = CoreStop(StopKind.BKPT)
        elif number == _EXCEPTION_RETURN:
            self._stop = CoreStop(StopKind.EXCEPTION_RETURN)
        elif number == _PREFETCH_ABORT and self._has_branched_to_return():
            self._stop = CoreStop(StopKind.EXCEPTION_RETURN)  # what Unicorn's cores of Armv7-M make of one
        elif number == _PREFETCH_ABORT:
            self._stop = CoreStop(StopKind.FAULT, faults.fetch_fault(self.read(PC)))
        elif number == _NO_COPROCESSOR:
            self._stop = CoreStop(StopKind.FAULT, faults.usage_fault(faults.NOCP))
        elif number == _STACK_LIMIT:
            self._stop = CoreStop(StopKind.FAULT, faults.usage_fault(faults.STKOF))
        else:
            self._stop = CoreStop(StopKind.FAULT, faults.usage_fault(faults.UNDEFINSTR))
        uc.emu_stop()

    def _has_branched_to_return(self) -> bool:
        in_handler = self.read(XPSR) & 0x1FF and self.read(PC) >= _EXCEPTION_RETURNS
        return bool(in_handler and self.count != self._began_at)

    def _on_invalid(self, _uc: Any, _data: object) -> bool:
        thumb = self.read(XPSR) & THUMB
        self._stop = CoreStop(StopKind.FAULT, faults.usage_fault(faults.UNDEFINSTR if thumb else faults.INVSTATE))
        return False

    def _on_refused(self, _uc: Any, _access: int, address: int, _size: int, _value: int, _data: object) -> bool:
        self._stop = CoreStop(StopKind.FAULT, faults.data_fault(address))
        return False

    def _on_protected(self, _uc: Any, _access: int, address: int, size: int, value: int, _data: object) -> bool:
        written = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        try:
            self._bus.program_flash(address, size, int.from_bytes(written, "little"))
        except BusError:
            self._stop = CoreStop(StopKind.FAULT, faults.data_fault(address))
            return False
        # Unicorn may store the value all the same once this returns. Where that is wrong, it is put right at once.
        kept = self._bus.read(address, size)
        if kept != written:
            self._repairs.append((address, kept))
            self.state.stop = 1
        return True

    def _repair_flash(self) -> None:
        """Put back what Unicorn stored where the flash controller took something else, the oldest last."""
        for address, kept in reversed(self._repairs):
            memory = self._bus.memory_at(address)
            if memory:
                memory.bytes[address - memory.start : address - memory.start + len(kept)] = kept
        self._repairs.clear()

    # Why it stopped

    def _refused(self, error: unicorn.UcError) -> CoreStop:
        pc = self.read(PC)
        if not self.read(XPSR) & THUMB:
            return CoreStop(StopKind.FAULT, faults.usage_fault(faults.INVSTATE))
        if error.errno in (unicorn_const.UC_ERR_FETCH_UNMAPPED, unicorn_const.UC_ERR_FETCH_PROT):
            return CoreStop(StopKind.FAULT, faults.fetch_fault(pc))
        raise error

    def _undo_instruction(self) -> CoreStop:
        state = self.state
        state.count = state.undo_count
        memory = self._bus.memory_at(state.data_address) if state.data_size else None
        if memory and memory.region.kind == "ram":
            self._bus.write(state.data_address, bytes(state.data_bytes[: state.data_size]))
        for index in range(13):
            self.write(R0 + index, state.saved[index])
        self.write(SP, state.saved[13])
        self.write(LR, state.saved[14])
        for index in range(32):
            self.write(S0 + index, state.saved_float[index])
        self.write(FPSCR, state.saved_float[32])
        self.write(XPSR, state.saved[15])
        self.write_pc(state.undo_address)
        if state.undo_reason == Reason.NONE:
            return cast(CoreStop, self._stop)
        return CoreStop(StopKind.FAULT, faults.usage_fault(_FAULTS[Reason(state.undo_reason)]))

    def _stopped_by_counter(self) -> CoreStop:
        reason = Reason(self.state.reason)
        if reason in _STOPS:
            return CoreStop(_STOPS[reason])
        if reason == Reason.READ_CONTROL:
            return self._read_control_into_register()
        if reason == Reason.NONE:  # Unicorn ended by itself: at the end of the world, or after WFI
            return CoreStop(StopKind.FAULT, faults.fetch_fault(_UNTIL)) if self.read(PC) == _UNTIL else _ASKED
        self.state.count += 1
        return CoreStop(StopKind.FAULT, faults.usage_fault(_FAULTS[reason]))

    def _read_control_into_register(self) -> CoreStop:
        """Execute MRS Rd, CONTROL: Unicorn would show a bit of Armv8-M."""
        pc = self.read(PC)
        target = self._bus.read(pc + 2, 2)[1] & 0xF
        self.write(LR if target == 14 else R0 + target, self.read_control())
        self.write_pc(pc + 4)
        self.state.count += 1
        return _ASKED


def _address_of(function: str) -> int | None:
    return ctypes.cast(getattr(uclib, function), ctypes.c_void_p).value
