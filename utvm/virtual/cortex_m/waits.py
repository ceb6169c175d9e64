# SPDX-License-Identifier: Apache-2.0
"""Modelled wait states of a core for its flash; ``waits.c`` does the work."""

import ctypes
from pathlib import Path
from typing import cast

from unicorn import unicorn_const

from utvm.virtual.bus import Bus
from utvm.virtual.cortex_m.core import Core
from utvm.virtual.native import fields, load_library
from utvm.virtual.spec import MAX_CACHE_LINES, CacheSpec, WaitStates


class _Cache(ctypes.Structure):
    _fields_ = (*fields(ctypes.c_uint32, "sets ways last"), ("lines", ctypes.c_uint32 * MAX_CACHE_LINES))


class _State(ctypes.Structure):
    _fields_ = (
        ("waited", ctypes.c_uint64),
        *fields(ctypes.c_uint32, "cycles line_bytes"),
        *fields(_Cache, "instructions data"),
    )


class Waits:
    """Counter of the cycles in which a core waits for flash."""

    def __init__(self, core: Core, bus: Bus, spec: WaitStates) -> None:
        self._library = library = load_library(Path(__file__).with_name("waits.c"))
        self._state = _State(0, spec.cycles, spec.line, _cache(spec.instructions), _cache(spec.data))
        for memory in bus.memories:
            if memory.region.kind == "flash":
                for kind, function in (
                    (unicorn_const.UC_HOOK_CODE, library.utvm_on_fetch),
                    (unicorn_const.UC_HOOK_MEM_READ, library.utvm_on_flash_read),
                ):
                    span = (memory.start, memory.start + memory.region.size - 1)
                    core.add_c_hook(kind, function, ctypes.byref(self._state), span)

    @property
    def cycles(self) -> int:
        """Cycles waited since the model was created."""
        return cast(int, self._state.waited)


def _cache(spec: CacheSpec) -> _Cache:
    return _Cache(spec.lines // spec.ways, spec.ways)
