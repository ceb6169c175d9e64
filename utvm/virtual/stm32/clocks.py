# SPDX-License-Identifier: Apache-2.0
"""RCC, PWR and GPIO of the STM32F4 and F7, as far as start-up code needs them (RM0385, sections 4.4, 5.3, 6.4).

Everything is ready once enabled. The clock tree has no effect: an instruction stays one tick, and peripherals work
with their clock disabled.
"""

from collections.abc import Mapping

from utvm.virtual.bus import PlainRegisters, ResetCause

_RCC_CR, _RCC_CFGR, _RCC_BDCR, _RCC_CSR = 0x00, 0x08, 0x70, 0x74
_SW = 0x3
_SWS_SHIFT = 2
_RMVF = 1 << 24
_RESET_FLAGS = 0xFE000000
# RM0385, 5.1 and 5.3.21: every reset pulls the reset pin, too; flags accumulate.
_FLAGS_OF = {ResetCause.POWER: 0x0E000000, ResetCause.PIN: 0x04000000, ResetCause.SOFTWARE: 0x14000000}

_PWR_CR1, _PWR_CSR1 = 0x00, 0x04
_ODEN, _ODSWEN, _VOSRDY = 1 << 16, 1 << 17, 1 << 14


def _set_ready(value: int, *enables: int) -> int:
    """Copy enable bits to the ready bits above them."""
    for bit in enables:
        value = value & ~(2 << bit) | (value >> bit & 1) << bit + 1
    return value


class Rcc(PlainRegisters):
    """RCC: enabled oscillators and PLLs are ready, and the system clock switches at once."""

    def __init__(self, after_reset: Mapping[int, int]) -> None:
        self.values = {_RCC_CSR: 0}
        super().__init__({_RCC_CR: 0x00000083, **after_reset})

    def reset(self) -> None:
        flags = self.values[_RCC_CSR] & _RESET_FLAGS
        super().reset()
        self.values[_RCC_CSR] = flags

    def was_reset(self, cause: ResetCause) -> None:
        if cause is ResetCause.POWER:
            self.values[_RCC_CSR] = 0
        self.values[_RCC_CSR] |= _FLAGS_OF[cause]

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        word = self.values[offset]
        if offset == _RCC_CR:
            # The internal oscillator cannot be disabled while it is the system clock.
            running = 1 if self.values.get(_RCC_CFGR, 0) & _SW == 0 else 0
            word = _set_ready(word | running, 0, 16, 24, 26, 28)
        elif offset == _RCC_CFGR:
            word = word & ~(_SW << _SWS_SHIFT) | (word & _SW) << _SWS_SHIFT
        elif offset in (_RCC_BDCR, _RCC_CSR):
            word = _set_ready(word, 0)
        if offset == _RCC_CSR and word & _RMVF:
            word &= ~(_RESET_FLAGS | _RMVF)
        self.values[offset] = word


class Pwr(PlainRegisters):
    """PWR: the voltage is always ready, and over-drive once enabled."""

    def __init__(self) -> None:
        super().__init__({_PWR_CR1: 0x0000C000})

    def load(self, offset: int) -> int:
        if offset != _PWR_CSR1:
            return super().load(offset)
        control = self.values[_PWR_CR1]
        return super().load(offset) & ~(_ODEN | _ODSWEN) | control & (_ODEN | _ODSWEN) | _VOSRDY


class Gpio(PlainRegisters):
    """A GPIO port. IDR reads the outputs: nothing is connected."""

    _IDR, _ODR, _BSRR = 0x10, 0x14, 0x18

    def load(self, offset: int) -> int:
        return super().load(self._ODR if offset == self._IDR else offset)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == self._BSRR:
            output = self.values.get(self._ODR, 0)
            self.values[self._ODR] = output & ~(value >> 16) | value & 0xFFFF
        elif offset != self._IDR:
            super().store(offset, value, lanes)
