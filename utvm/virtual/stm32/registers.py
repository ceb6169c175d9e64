# SPDX-License-Identifier: Apache-2.0
"""Registers that do little more than remember."""

from collections.abc import Mapping

from utvm.virtual.bus import Device


class PlainRegisters(Device):
    """Registers that read back what was written, like those of a GPIO port whose pins lead nowhere.

    Args:
        after_reset: values by offset; the others are zero.
        read_only: offsets that ignore writes.
    """

    def __init__(
        self, after_reset: Mapping[int, int] | None = None, read_only: frozenset[int] = frozenset()
    ) -> None:
        self._after_reset = dict(after_reset or {})
        self._read_only = read_only
        self.reset()

    def reset(self) -> None:
        self.values = dict(self._after_reset)

    def load(self, offset: int) -> int:
        return self.values.get(offset, 0)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset not in self._read_only:
            self.values[offset] = self.values.get(offset, 0) & ~lanes | value


class Gpio(PlainRegisters):
    """A GPIO port (RM0385, section 6.4). IDR reads the outputs, for nothing is connected."""

    _IDR = 0x10
    _ODR = 0x14
    _BSRR = 0x18

    def load(self, offset: int) -> int:
        return super().load(self._ODR if offset == self._IDR else offset)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == self._BSRR:
            output = self.values.get(self._ODR, 0)
            self.values[self._ODR] = output & ~(value >> 16) | value & 0xFFFF
        elif offset != self._IDR:
            super().store(offset, value, lanes)
