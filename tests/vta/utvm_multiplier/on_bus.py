# SPDX-License-Identifier: Apache-2.0
"""The multiplier on the bus of a virtual board, with its own access to memory."""

import numpy as np

from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.spec import Peripheral
from utvm.virtual.wiring import Wiring

_CONTROL, _STATUS = 0x18, 0x1C
_DONE, _REFUSED = 1, 2


def create(peripheral: Peripheral, wiring: Wiring) -> Device:
    return _Multiplier(wiring.bus, **peripheral.settings)


class _Multiplier(Device):
    """Registers: addresses of x, weights and sums; rows, inputs and outputs; control and status."""

    def __init__(self, bus: Bus, wrong_by: int, answers: int) -> None:
        self._bus, self._wrong_by, self._answers = bus, wrong_by, answers
        self.reset()

    def reset(self) -> None:
        self._words = dict.fromkeys(range(0, _STATUS + 4, 4), 0)

    def load(self, offset: int) -> int:
        return self._words.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset < _STATUS:
            self._words[offset] = value
        if offset == _CONTROL and value and self._answers:
            try:
                self._multiply(*(self._words[at] for at in range(0, _CONTROL, 4)))
                self._words[_STATUS] = _DONE
            except BusError:
                self._words[_STATUS] = _REFUSED

    def _multiply(self, x: int, weights: int, sums: int, rows: int, inputs: int, outputs: int) -> None:
        left = np.frombuffer(self._bus.read(x, rows * inputs), "int8").reshape(rows, inputs)
        right = np.frombuffer(self._bus.read(weights, outputs * inputs), "int8").reshape(outputs, inputs)
        product = left.astype("int32") @ right.astype("int32").T + np.int32(self._wrong_by)
        self._bus.write(sums, product.astype("<i4").tobytes())
