# SPDX-License-Identifier: Apache-2.0
"""The registers of the MPU, 0xE000ED90 to 0xE000EDC4 (ARM DDI 0403E, B3.5; DDI 0553B, D1.2), without effect."""

import logging

from utvm.virtual.bus import Device

MPU, MPU_END = 0xD90, 0xDC8
_TYPE, _CTRL, _RNR, _FIRST, _MAIR = 0xD90, 0xD94, 0xD98, 0xD9C, 0xDC0
_REGIONS = 8
_VALID = 1 << 4  # in RBAR of Armv7-M: the value has the region's number

_log = logging.getLogger(__name__)


class MpuRegisters(Device):
    """TYPE, CTRL, RNR, and pairs of RBAR and RASR or RLAR, with aliases; ``v8`` is Armv8-M's layout."""

    def __init__(self, *, v8: bool) -> None:
        self._v8 = v8
        self._logged = False
        self.reset()

    def reset(self) -> None:
        self._control = self._number = 0
        self._attributes = {_MAIR: 0, _MAIR + 4: 0}
        self._regions = [[0, 0] for _ in range(_REGIONS)]

    def load(self, offset: int) -> int:
        if offset in (_TYPE, _CTRL, _RNR):
            return {_TYPE: _REGIONS << 8, _CTRL: self._control}.get(offset, self._number)
        if offset >= _MAIR:
            return self._attributes[offset] if self._v8 else 0
        number, half = self._place(offset)
        value = self._regions[number][half]
        return value if half or self._v8 else value | number

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == _CTRL:
            self._control = value & 7
            if value & 1 and not self._logged:
                self._logged = True
                _log.warning("the MPU is on: its registers are modelled, its protection is not")
        elif offset == _RNR:
            self._number = value % _REGIONS
        elif offset >= _MAIR and self._v8:
            self._attributes[offset] = value
        elif _FIRST <= offset < _MAIR:
            number, half = self._place(offset)
            if not half and not self._v8:
                if value & _VALID:
                    self._number = number = value % _REGIONS
                value &= ~31
            self._regions[number][half] = self._regions[number][half] & ~lanes | value

    def _place(self, offset: int) -> tuple[int, int]:
        """Number of the region, and 1 for its second register. Aliases of Armv8-M are the next three regions."""
        pair, half = divmod((offset - _FIRST) // 4, 2)
        return (self._number & ~3 | pair if pair and self._v8 else self._number) % _REGIONS, half
