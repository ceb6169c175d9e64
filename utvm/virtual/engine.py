# SPDX-License-Identifier: Apache-2.0
"""The Unicorn engine with a board's memories and devices, and a state that it shares with C code."""

import ctypes
from typing import Any

import unicorn
from unicorn import unicorn_const
from unicorn.unicorn_py3.unicorn import uclib

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, Device

MEMORIES = 16
NEVER = 2**64 - 1
EVERYWHERE = (1, 0)
"""Address span of a hook for all addresses."""


class Engine:
    """A Unicorn engine.

    Args:
        uc: the engine of the architecture.
        state: a structure shared with C code; it begins with Unicorn's functions and the memories.
        read_only: protect memory other than RAM against writes by instructions.
    """

    def __init__(self, uc: Any, bus: Bus, state: Any, *, read_only: bool) -> None:
        self._uc = uc
        self._engine = uc._uch
        self._bus = bus
        self.state = state
        self._state_pointer = ctypes.byref(state)
        self._stale: list[tuple[int, int]] = []
        state.emulation_stop = ctypes.cast(uclib.uc_emu_stop, ctypes.c_void_p).value
        state.register_read = ctypes.cast(uclib.uc_reg_read, ctypes.c_void_p).value
        if len(bus.memories) > MEMORIES:
            raise ConfigError(f"{len(bus.memories)} memory regions; at most {MEMORIES} are supported")
        state.memory_count = len(bus.memories)
        # The largest first, or Unicorn gives several the same offset: a store into one then drops code of another.
        blocks = sorted(bus.memories, key=lambda memory: memory.region.size, reverse=True)
        for slot, memory in zip(state.memories, blocks, strict=False):
            slot.bytes, slot.start, slot.size = memory.host_address, memory.start, memory.region.size
            writable = not read_only or memory.region.kind == "ram"
            rights = unicorn_const.UC_PROT_ALL if writable else unicorn_const.UC_PROT_READ | unicorn_const.UC_PROT_EXEC
            uc.mem_map_ptr(memory.start, memory.region.size, rights, memory.host_address)

    def map_device(self, address: int, device: Device) -> None:
        """Make a device accessible to instructions."""
        self._uc.mmio_map(address, device.size, self._load, (address, device), self._store, (address, device))

    def _load(self, _uc: Any, offset: int, size: int, window: tuple[int, Device]) -> int:
        raise NotImplementedError

    def _store(self, _uc: Any, offset: int, size: int, value: int, window: tuple[int, Device]) -> None:
        raise NotImplementedError

    def add_c_hook(
        self, kind: int, function: Any, data: Any = None, span: tuple[int, int] = EVERYWHERE
    ) -> ctypes.c_size_t:
        """Call a C function on events in a span of addresses (inclusive); pass it ``data``, or the state."""
        handle = ctypes.c_size_t()
        code = ctypes.cast(function, ctypes.c_void_p)
        data = self._state_pointer if data is None else data
        status = uclib.uc_hook_add(self._engine, ctypes.byref(handle), kind, code, data, *map(ctypes.c_uint64, span))
        if status:
            raise unicorn.UcError(status)
        return handle

    def _drop_stale_code(self) -> None:
        for start, end in self._stale:
            self._uc.ctl_remove_cache(start, end)
        self._stale.clear()
