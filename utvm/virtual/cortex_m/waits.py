# SPDX-License-Identifier: Apache-2.0
"""How long a core waits for flash, as a model counts it: the Python side of ``waits.c``."""

import ctypes
from collections.abc import Iterable
from pathlib import Path

from unicorn import unicorn_const

from utvm.virtual.bus import Bus
from utvm.virtual.compiled import load_compiled
from utvm.virtual.cortex_m.core import Core
from utvm.virtual.spec import MOST_LINES, CacheSpec, WaitStates


class _Cache(ctypes.Structure):
    _fields_ = (
        ("sets", ctypes.c_uint32),
        ("ways", ctypes.c_uint32),
        ("last", ctypes.c_uint32),
        ("lines", ctypes.c_uint32 * MOST_LINES),
    )


class _State(ctypes.Structure):
    _fields_ = (
        ("waited", ctypes.c_uint64),
        ("cycles", ctypes.c_uint32),
        ("line_bytes", ctypes.c_uint32),
        ("instructions", _Cache),
        ("data", _Cache),
    )

    waited: int


class Waits:
    """Counts the cycles in which a core waits for flash.

    Args:
        core: executes.
        bus: has the flash.
        spec: numbers of the model.
    """

    def __init__(self, core: Core, bus: Bus, spec: WaitStates) -> None:
        self._library = load_compiled(Path(__file__).with_name("waits.c"))
        self._state = _State(0, spec.cycles, spec.line, _cache(spec.instructions), _cache(spec.data))
        for start, end in _flash(bus):
            for kind, name in _HOOKS:
                code = ctypes.cast(getattr(self._library, name), ctypes.c_void_p)
                core.add_c_hook(kind, code, ctypes.byref(self._state), (start, end - 1))

    @property
    def cycles(self) -> int:
        """Cycles waited since the model was made."""
        return self._state.waited


_HOOKS = ((unicorn_const.UC_HOOK_CODE, "utvm_on_fetch"), (unicorn_const.UC_HOOK_MEM_READ, "utvm_on_flash_read"))


def _cache(spec: CacheSpec) -> _Cache:
    return _Cache(spec.lines // spec.ways, spec.ways)


def _flash(bus: Bus) -> Iterable[tuple[int, int]]:
    for memory in bus.memories:
        if memory.region.kind == "flash":
            yield memory.start, memory.start + memory.region.size
