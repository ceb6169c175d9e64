# SPDX-License-Identifier: Apache-2.0
"""A core behind JTAG: Unicorn executes; C code counts and stops before each instruction; the rest is in Python.

Time is the number of instructions plus the time slept, independent of debuggers and the speed of the host.
"""

import ctypes
from abc import ABC, abstractmethod
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol, cast

import unicorn
from unicorn import unicorn_const

from utvm.virtual import engine, native
from utvm.virtual.bus import Bus, BusError, Device

TRIGGERS = 8
LOAD, STORE, EXECUTE, BUT = 1, 2, 4, 8
"""Conditions of a trigger: an access to its address, or BUT: the execution of any other address."""

_END = 0xFFFFFFFE  # address at which Unicorn ends
_FETCHES = (unicorn_const.UC_MEM_FETCH_UNMAPPED, unicorn_const.UC_MEM_FETCH_PROT)
_WRITES = (unicorn_const.UC_MEM_WRITE_UNMAPPED, unicorn_const.UC_MEM_WRITE_PROT)
_FAR = 1 << 20  # Instructions to an event before which the core's thread pauses.


class Pause(IntEnum):
    """Reason for a stop before an instruction, or, for FAULT, at it. From READ_COUNTER on per architecture."""

    NONE = 0
    REQUEST = 1
    TRIGGER = 2
    SLEEP = 3
    BREAK = 4
    READ_COUNTER = 5
    PASS = 5
    ECALL = 6
    UNALIGNED = 6
    FAULT = 7


class _Memory(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_void_p), *native.fields(ctypes.c_uint64, "start size"))


class _Trigger(ctypes.Structure):
    _fields_ = (("address", ctypes.c_uint64), *native.fields(ctypes.c_uint32, "accesses unused"))


class _CountedState(ctypes.Structure):
    """``core_t`` of ``counted.h``."""

    _fields_ = (
        *native.fields(ctypes.c_void_p, "emulation_stop register_read"),
        ("memory_count", ctypes.c_uint64),
        ("memories", _Memory * engine.MEMORIES),
        ("triggers", _Trigger * TRIGGERS),
        *native.fields(ctypes.c_uint64, "count deadline begun width"),
        *native.fields(ctypes.c_uint32, "stop reason masks_matter triggered fired unused"),
        *native.fields(ctypes.c_uint64, "target block_end"),
    )


class CountedCore(engine.Engine, ABC):
    """An instruction set with a C function before each instruction, ``utvm_before_instruction`` of ``source``.

    ``width`` is that of a register in bits; ``state`` is ``core_t`` of ``counted.h``: count, deadline, triggers.
    """

    def __init__(self, uc: Any, source: Path, bus: Bus, width: int) -> None:
        super().__init__(uc, bus, _CountedState(width=width), read_only=False)
        self._c = native.load_library(source)
        self._faulted = False
        self.mask = (1 << width) - 1
        self.add_c_hook(unicorn_const.UC_HOOK_CODE, self._c.utvm_before_instruction)
        uc.hook_add(unicorn_const.UC_HOOK_INTR, lambda _uc, number, _data: self.take_exception(number))
        uc.hook_add(unicorn_const.UC_HOOK_MEM_INVALID, self._on_unmapped)
        self._at_reset = uc.context_save()
        bus.on_memory_change = self._forget_code

    def _forget_code(self, start: int, end: int) -> None:
        if self._stale and self._stale[-1][1] == start:
            start = self._stale.pop()[0]
        self._stale.append((start, end))

    # Unicorn's callbacks

    def _load(self, _uc: Any, offset: int, size: int, window: tuple[int, Device]) -> int:
        offsets = (offset, offset + 4) if size == 8 else (offset,)
        try:
            words = [window[1].read(part, min(size, 4)) for part in offsets]
        except BusError:
            self._refuse(LOAD, window[0] + offset)
            return 0
        return sum(word << 32 * index for index, word in enumerate(words))

    def _store(self, _uc: Any, offset: int, size: int, value: int, window: tuple[int, Device]) -> None:
        try:
            window[1].write(offset, min(size, 4), value & (1 << 8 * min(size, 4)) - 1)
            if size == 8:
                window[1].write(offset + 4, 4, value >> 32)
        except BusError:
            self._refuse(STORE, window[0] + offset)

    def _on_unmapped(self, _uc: Any, access: int, address: int, *_more: Any) -> bool:
        self._refuse(EXECUTE if access in _FETCHES else STORE if access in _WRITES else LOAD, address & self.mask)
        return False

    def _refuse(self, access: int, address: int) -> None:
        if not self._faulted:
            self.set_bus_fault(access, address)
        self.stop_at_fault()

    def stop_at_fault(self) -> None:
        """Stop at this instruction; only its first fault is reported."""
        self._faulted = True
        self._uc.emu_stop()

    @abstractmethod
    def set_bus_fault(self, access: int, address: int) -> None:
        """Record the fault of a LOAD, STORE or EXECUTE of an address without memory or device."""

    @abstractmethod
    def take_exception(self, number: int) -> None:
        """Record one of Unicorn's exceptions, and stop."""

    @abstractmethod
    def set_invalid_fault(self) -> None:
        """Record the fault of an invalid instruction."""

    @abstractmethod
    def undo_faulting_instruction(self) -> None:
        """Set PC to the faulting instruction and subtract it from the count."""

    @property
    @abstractmethod
    def pc(self) -> int:
        """Address of the next instruction."""

    @pc.setter
    @abstractmethod
    def pc(self, value: int) -> None: ...

    @property
    def _entry(self) -> int:
        return self.pc

    # Execution

    def reset(self, start: int) -> None:
        """Reset all registers and set PC."""
        self._uc.context_restore(self._at_reset)
        self.pc = start

    def run(self, deadline: int) -> Pause:
        """Execute until ``state.count`` reaches the deadline, ``state.stop`` is set, or Unicorn cannot continue.

        The caller clears ``state.stop`` first. PC is the address of the next, or the faulting, instruction.
        """
        state = self.state
        state.deadline, state.reason, self._faulted = deadline, Pause.NONE, False
        self._drop_stale_code()
        try:
            self._uc.emu_start(self._entry, _END)
        except unicorn.UcError:
            if not self._faulted:
                self._faulted = True
                self.set_invalid_fault()
        if self._faulted:
            self.undo_faulting_instruction()
            return Pause.FAULT
        return Pause(state.reason) if state.reason else Pause.REQUEST

    def set_triggers(self, triggers: list[tuple[int, int]]) -> None:
        """Stop before accesses to addresses: pairs of an address and LOAD, STORE, EXECUTE, BUT."""
        self.state.triggered = 0
        for index, slot in enumerate(self.state.triggers):
            slot.address, slot.accesses = triggers[index] if index < len(triggers) else (0, 0)
            self.state.triggered |= slot.accesses


class InterruptSource(Protocol):
    """A device that may interrupt a core."""

    def pending(self) -> int:
        """Mask of the interrupt bits that it drives, as the architecture defines them."""

    def next_event(self) -> int | None:
        """Time at which the device changes its interrupts by itself, or None."""


class CoreRunner(ABC):
    """A core that runs and halts. The caller holds the machine's lock; ``halted`` means stopped by a debugger."""

    core: CountedCore

    def __init__(self) -> None:
        self.stop_requested = False
        self.halted = False
        self.sources: list[InterruptSource] = []
        self._sleeping = False
        self._slept = 0
        self._rested = False

    def now(self) -> int:
        """Instructions since the model was created, plus the time slept."""
        return cast(int, self.core.state.count + self._slept)

    @property
    def idle(self) -> bool:
        """True if it sleeps and its next event is far off."""
        return self._sleeping and self._rested and not self.halted

    def interrupt(self) -> None:
        """Return to the run loop before the next instruction."""
        self.core.state.stop = 1

    def reschedule(self) -> None:
        """See :class:`utvm.virtual.wiring.Clock`."""
        self.interrupt()

    def close(self) -> None:  # noqa: B027
        """Do nothing."""

    def run(self, minimum: int) -> bool:
        """Execute until a stop is requested or the core halts."""
        state = self.core.state
        goal = state.count + minimum
        turns = 0
        while not self.halted:
            state.stop = 0
            stop_requested = self.stop_requested
            turns += 1
            # A core that faults repeatedly executes no instructions.
            if stop_requested and (state.count >= goal or turns > minimum):
                return True
            if self._sleeping and not self._sleep():
                return self.stop_requested
            if self._sleeping or self.take_interrupt():
                continue
            event = self._next_event()
            deadline = engine.NEVER if event is None else event - self._slept
            self.handle(self.core.run(min(deadline, goal) if stop_requested else deadline))
        return False

    @abstractmethod
    def reset(self) -> None: ...

    @abstractmethod
    def handle(self, reason: Pause) -> bool:
        """Emulate the instruction at PC. True if that raised an exception."""

    @abstractmethod
    def wakeup_interrupts(self) -> int:
        """Mask of the pending interrupts that end a sleep."""

    @abstractmethod
    def take_interrupt(self) -> bool:
        """Enter the handler of a pending interrupt, unless masked. True if it did."""

    def pending(self) -> int:
        """Mask of the pending interrupts of all sources; while not 0, the core stops where it may unmask one."""
        pending = 0
        for source in self.sources:
            pending |= source.pending()
        self.core.state.masks_matter = bool(pending)
        return pending

    def sleep(self, size: int) -> None:
        """Execute the sleep instruction at PC, of ``size`` bytes."""
        self.skip_instruction(size)
        self._sleeping = True

    def skip_instruction(self, size: int) -> None:
        """Count the instruction at PC and advance to the next one."""
        self.core.pc += size
        self.core.state.count += 1

    def _next_event(self) -> int | None:
        events = (source.next_event() for source in self.sources)
        return min((event for event in events if event is not None), default=None)

    def _sleep(self) -> bool:
        """Advance time to the event that wakes the core. False if there is none, or it is far off: pause first."""
        rested, self._rested = self._rested, False
        while not self.wakeup_interrupts():
            event = self._next_event()
            if event is None or (event - self.now() > _FAR and not rested):
                self._rested = event is not None
                return False
            self._slept += max(0, event - self.now())
            rested = False
            if self.stop_requested:
                return False
        self._sleeping = False
        return True
