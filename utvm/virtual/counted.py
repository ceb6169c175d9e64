# SPDX-License-Identifier: Apache-2.0
"""What cores behind JTAG share: Unicorn executes, C counts and stops before each instruction (``counted.h``)."""

import ctypes
from abc import ABC, abstractmethod
from enum import IntEnum
from pathlib import Path
from typing import Any

import unicorn
from unicorn import unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.compiled import load_compiled

MEMORIES = 16
TRIGGERS = 8
NEVER = 2**64 - 1
LOAD, STORE, EXECUTE, BUT = 1, 2, 4, 8
"""What a trigger matches: an access to an address, or executing anything but what is there."""
EVERYWHERE = (1, 0)
"""A span of a hook."""

_UNTIL = 0xFFFFFFFE  # where Unicorn ends by itself
_FETCHES = (unicorn_const.UC_MEM_FETCH_UNMAPPED, unicorn_const.UC_MEM_FETCH_PROT)
_WRITES = (unicorn_const.UC_MEM_WRITE_UNMAPPED, unicorn_const.UC_MEM_WRITE_PROT)


class Pause(IntEnum):
    """Why a core stopped before an instruction; FAULT: at it. From READ_COUNTER on, they are an architecture's."""

    NONE = 0
    ASKED = 1
    TRIGGER = 2
    SLEEP = 3
    BREAK = 4
    READ_COUNTER = 5
    PASS = 5
    ECALL = 6
    UNALIGNED = 6
    FAULT = 7


class _Memory(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), ("start", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Trigger(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), ("accesses", ctypes.c_uint32), ("unused", ctypes.c_uint32))


class CountedState(ctypes.Structure):
    """``core_t`` of ``counted.h``, field by field."""

    _fields_ = (
        ("emulation_stop", ctypes.c_void_p),
        ("register_read", ctypes.c_void_p),
        ("memory_count", ctypes.c_uint64),
        ("memories", _Memory * MEMORIES),
        ("triggers", _Trigger * TRIGGERS),
        ("count", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("begun", ctypes.c_uint64),
        ("width", ctypes.c_uint64),
        ("stop", ctypes.c_uint32),
        ("reason", ctypes.c_uint32),
        ("masks_matter", ctypes.c_uint32),
        ("triggered", ctypes.c_uint32),
        ("target", ctypes.c_uint64),
        ("block_end", ctypes.c_uint64),
    )

    memory_count: int
    memories: "ctypes.Array[Any]"
    triggers: "ctypes.Array[Any]"
    count: int
    deadline: int
    begun: int
    width: int
    stop: int
    reason: int
    masks_matter: int
    triggered: int
    target: int
    block_end: int


class CountedCore(ABC):
    """Unicorn with memories and devices, and a C function before each instruction.

    Args:
        uc: the engine, of the right architecture.
        source: the C file with ``utvm_before_instruction``.
        width: bits of a register.

    Attributes:
        state: what it shares with the C part: counts, deadline, triggers.
    """

    def __init__(self, uc: Any, source: Path, bus: Bus, width: int) -> None:
        self._uc = uc
        self._bus = bus
        self._c = load_compiled(source)
        self._faulted = False
        self.mask = (1 << width) - 1
        self.state = CountedState(width=width)
        self._state_pointer = ctypes.byref(self.state)
        self._stale: list[tuple[int, int]] = []
        self._map_memory()
        self._add_hooks()
        self._at_reset = self._uc.context_save()
        bus.on_memory_change = self._forget_code

    def _map_memory(self) -> None:
        """Let instructions reach the memories."""
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
            *map(ctypes.c_uint64, EVERYWHERE),
        )
        if status:
            raise unicorn.UcError(status)
        self._uc.hook_add(unicorn_const.UC_HOOK_INTR, self._on_interrupt)
        self._uc.hook_add(unicorn_const.UC_HOOK_MEM_INVALID, self._on_refused)

    def map_device(self, address: int, device: Device) -> None:
        """Let instructions reach a device of the bus."""
        self._uc.mmio_map(address, device.size, self._load, (address, device), self._store, (address, device))

    @property
    def _engine(self) -> Any:
        return self._uc._uch

    def _forget_code(self, start: int, end: int) -> None:
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
            self._refuse(LOAD, place[0] + offset)
            return 0
        return sum(word << 32 * index for index, word in enumerate(words))

    def _store(self, _uc: Any, offset: int, size: int, value: int, place: tuple[int, Device]) -> None:
        try:
            place[1].write(offset, min(size, 4), value & (1 << 8 * min(size, 4)) - 1)
            if size == 8:
                place[1].write(offset + 4, 4, value >> 32)
        except BusError:
            self._refuse(STORE, place[0] + offset)

    def _on_refused(self, _uc: Any, access: int, address: int, *_more: Any) -> bool:
        self._refuse(EXECUTE if access in _FETCHES else STORE if access in _WRITES else LOAD, address & self.mask)
        return False

    def _on_interrupt(self, _uc: Any, number: int, _data: object) -> None:
        self.raised(number)

    def _refuse(self, access: int, address: int) -> None:
        if not self._faulted:
            self.refused(access, address)
        self.stop_at_fault()

    def stop_at_fault(self) -> None:
        """End the run at this instruction, by a fault of which the first one counts."""
        self._faulted = True
        self._uc.emu_stop()

    @abstractmethod
    def refused(self, access: int, address: int) -> None:
        """Keep what fault it is that nothing answers to a LOAD, STORE or EXECUTE."""

    @abstractmethod
    def raised(self, number: int) -> None:
        """Take one of Unicorn's exceptions, and stop there."""

    @abstractmethod
    def invalid(self) -> None:
        """Keep what fault it is that there is no such instruction."""

    @abstractmethod
    def enter_fault(self) -> None:
        """Stand at the instruction that faults, which is not counted."""

    @property
    @abstractmethod
    def pc(self) -> int:
        """The address of the next instruction."""

    @pc.setter
    @abstractmethod
    def pc(self, value: int) -> None: ...

    @property
    def _entry(self) -> int:
        return self.pc

    # Execution

    def reset(self, start: int) -> None:
        """Forget what registers hold, and begin at an address."""
        self._uc.context_restore(self._at_reset)
        self.pc = start

    def run(self, deadline: int) -> Pause:
        """Execute until ``state.count`` reaches a deadline, somebody sets ``state.stop``, or more is needed.

        Whoever calls clears ``state.stop`` before. PC is at the instruction that is next, or that faults.
        """
        state = self.state
        state.deadline, state.reason, self._faulted = deadline, Pause.NONE, False
        # Unicorn cannot drop translations while it executes.
        for start, end in self._stale:
            self._uc.ctl_remove_cache(start, end)
        self._stale.clear()
        try:
            self._uc.emu_start(self._entry, _UNTIL)
        except unicorn.UcError:
            if not self._faulted:
                self._faulted = True
                self.invalid()
        if self._faulted:
            self.enter_fault()
            return Pause.FAULT
        return Pause(state.reason) if state.reason else Pause.ASKED

    def set_triggers(self, wanted: list[tuple[int, int]]) -> None:
        """Stop before what accesses these addresses: pairs of address and LOAD, STORE, EXECUTE, BUT."""
        self.state.triggered = 0
        for index, slot in enumerate(self.state.triggers):
            slot.address, slot.accesses = wanted[index] if index < len(wanted) else (0, 0)
            self.state.triggered |= slot.accesses
