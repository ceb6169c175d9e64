# SPDX-License-Identifier: Apache-2.0
"""The MPU, whose registers begin at 0xE000ED90 (ARM DDI 0403E, B3.5; DDI 0553B, D1.2): see ``mpu.c``."""

import ctypes
from collections.abc import Callable
from typing import cast

from utvm.virtual import bus, native

MPU, _CTRL, MPU_END = 0xD90, 0xD94, 0xDC8
ENABLE, HFNMIENA = 1 << 0, 1 << 1
RIGHT_READ, RIGHT_WRITE, RIGHT_EXECUTE, PRIVILEGED_SHIFT = 1, 2, 4, 3  # of mpu.h
UNPRIVILEGED, FILTERS_DATA, FILTERS_CODE = 1 << 1, 1 << 2, 1 << 3  # in "used"


class MpuState(ctypes.Structure):
    """``mpu_t`` of ``mpu.h``."""

    _fields_ = (
        *native.fields(ctypes.c_uint32, "v8 count control used address"),
        ("private", ctypes.c_uint32 * (4 + 2 * 16 + 256 + 256 // 4)),
    )


class MpuRegisters(bus.Device):
    """The registers; ``changed`` is called after a write that may change what is checked."""

    def __init__(self, counter: ctypes.CDLL, state: MpuState, changed: Callable[[], None]) -> None:
        self._counter = counter
        self._state, self._shared = ctypes.byref(state), state
        self._changed = changed

    def reset(self) -> None:
        self._counter.utvm_mpu_reset(self._state)

    def load(self, offset: int) -> int:
        return cast(int, self._counter.utvm_mpu_load(self._state, offset) & 0xFFFFFFFF)

    def store(self, offset: int, value: int, lanes: int) -> None:
        self._counter.utvm_mpu_store(self._state, offset, *map(ctypes.c_uint32, (value, lanes)))
        if offset == _CTRL or (self._shared.control & ENABLE and self._shared.used < FILTERS_CODE):
            self._changed()
