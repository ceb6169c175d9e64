# SPDX-License-Identifier: Apache-2.0
"""The registers of the MPU, from 0xE000ED90 (ARM DDI 0403E, B3.5; DDI 0553B, D1.2). ``mpu.c`` applies them."""

import ctypes
from collections.abc import Callable

from utvm.virtual.bus import Device
from utvm.virtual.native import fields

MPU, MPU_END = 0xD90, 0xDC8
_TYPE, _CTRL, _RNR, _FIRST, _MAIR = 0xD90, 0xD94, 0xD98, 0xD9C, 0xDC0
_MOST = 16
_VALID = 1 << 4  # in RBAR of Armv7-M: the value has the region's number
ENABLE, HFNMIENA = 1 << 0, 1 << 1
RIGHT_READ, RIGHT_WRITE, PRIVILEGED_SHIFT = 1, 2, 3  # of mpu.h


class MpuState(ctypes.Structure):
    """``mpu_t`` of ``mpu.h``."""

    _fields_ = (
        *fields(ctypes.c_uint32, "control v8 address"),
        ("regions", ctypes.c_uint32 * 2 * _MOST),
        ("mode", ctypes.c_uint32),
        ("granules", ctypes.c_uint32 * 256),
        ("rights", ctypes.c_uint8 * 256),
    )


class MpuRegisters(Device):
    """TYPE, CTRL, RNR, and pairs of RBAR and RASR or RLAR, with aliases.

    ``v8`` is Armv8-M's layout; ``changed`` is called after a change; ``used`` is True from the first enable.
    """

    def __init__(self, state: MpuState, regions: int, changed: Callable[[], None], *, v8: bool) -> None:
        self._state = state
        self._count = regions
        self._changed = changed
        self._v8 = state.v8 = v8
        self.reset()

    def reset(self) -> None:
        self._number = 0
        self._attributes = {_MAIR: 0, _MAIR + 4: 0}
        self.used = False
        ctypes.memset(ctypes.byref(self._state), 0, ctypes.sizeof(self._state))
        self._state.v8 = self._v8

    def load(self, offset: int) -> int:
        if offset in (_TYPE, _CTRL, _RNR):
            return int({_TYPE: self._count << 8, _CTRL: self._state.control}.get(offset, self._number))
        if offset >= _MAIR:
            return self._attributes[offset] if self._v8 else 0
        number, half = self._place(offset)
        value = self._state.regions[number][half]
        return int(value if half or self._v8 else value | number)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _CTRL:
            self._state.control = value & 7
            self.used |= bool(value & ENABLE)
        elif offset == _RNR:
            self._number = value % self._count
        elif offset >= _MAIR and self._v8:
            self._attributes[offset] = value
        elif _FIRST <= offset < _MAIR:
            number, half = self._place(offset)
            if not half and not self._v8:
                if value & _VALID:
                    self._number = number = value % 16 % self._count
                value &= ~31
            self._state.regions[number][half] = self._state.regions[number][half] & ~lanes | value
        ctypes.memset(self._state.granules, 0, ctypes.sizeof(self._state.granules))
        self._state.mode = 0
        self._changed()

    def _place(self, offset: int) -> tuple[int, int]:
        """Number of the region, and 1 for its second register. Aliases of Armv8-M are the next three regions."""
        pair, half = divmod((offset - _FIRST) // 4, 2)
        return (self._number & ~3 | pair if pair and self._v8 else self._number) % self._count, half
