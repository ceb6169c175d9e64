# SPDX-License-Identifier: Apache-2.0
"""Trace of a Cortex-M, ITM and TPIU: see ``trace.c``. Only power-on resets them."""

import ctypes
from collections.abc import Callable

from utvm.virtual.cortex_m.core import Core
from utvm.virtual.cortex_m.kinds import ConstantPage, CoreKind
from utvm.virtual.native import fields

ITM, PORTS_END, _IDENTITY = 0xE0000000, 0x80, 0xFC8
FORMATTER = 0x102  # TPIU_FFCR after power-on; a SWO has no formatter
_BY_DEBUGGER, _BY_PRIVILEGED = 0, 1


class TraceState(ctypes.Structure):
    """``trace_t`` of ``trace.c``."""

    _fields_ = (
        *fields(ctypes.c_uint32, "enabled size"),
        ("bytes", ctypes.c_uint8 * 64),
        ("private", ctypes.c_uint32 * 15),
    )


class TraceUnit(ConstantPage):
    """The registers of a unit, ``itm`` or ``tpiu``; ``send`` gets the bytes of the pin SWO."""

    def __init__(self, name: str, kind: CoreKind, core: Core, state: TraceState, send: Callable[[bytes], None]) -> None:
        super().__init__(kind.components[name])
        self._core, self._state, self._send = core, state, send
        self._load, self._store = (getattr(core.counter, f"utvm_{name}_{access}") for access in ("load", "store"))

    def load(self, offset: int) -> int:
        return super().load(offset) if offset >= _IDENTITY else self._load(ctypes.byref(self._state), offset)

    def write(self, offset: int, size: int, value: int, by: int = _BY_DEBUGGER) -> None:
        self._store(ctypes.byref(self._state), offset, size, value, by, self._core.clock() & 0x7FFFFFFF)
        if self._state.size:
            self._send(bytes(self._state.bytes[: self._state.size]))

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        self.write(offset, size, value, _BY_PRIVILEGED + self._core.unprivileged)
