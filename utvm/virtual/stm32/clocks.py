# SPDX-License-Identifier: Apache-2.0
"""Reset and clock control and power control of the STM32F4 and F7, as far as start-up code waits for them.

What is switched on is ready at once. The clock tree has no effect: one instruction stays one tick, and peripherals
answer whether their clock is enabled or not. Source: RM0385, sections 4.4 and 5.3.
"""

from collections.abc import Mapping

from utvm.virtual.bus import ResetCause
from utvm.virtual.stm32.registers import PlainRegisters

_RCC_CR = 0x00
_RCC_CFGR = 0x08
_RCC_BDCR = 0x70
_RCC_CSR = 0x74
_SW = 0x3
_SWS_SHIFT = 2
_RMVF = 1 << 24
_RESET_FLAGS = 0xFE000000
# RM0385, 5.1 and 5.3.21: every reset pulls the reset pin, too; the flags of several add up.
_FLAGS_OF = {ResetCause.POWER: 0x0E000000, ResetCause.PIN: 0x04000000, ResetCause.SOFTWARE: 0x14000000}

_PWR_CR1 = 0x00
_PWR_CSR1 = 0x04
_ODEN = 1 << 16
_ODSWEN = 1 << 17
_VOSRDY = 1 << 14


def _ready_above(value: int, *enables: int) -> int:
    for bit in enables:
        value = value & ~(2 << bit) | (value >> bit & 1) << bit + 1
    return value


class Rcc(PlainRegisters):
    """RCC: oscillators and PLLs are ready when they are on, and the system clock switches at once.

    Args:
        after_reset: what a chip's registers are then, by their offsets.
    """

    def __init__(self, after_reset: Mapping[int, int]) -> None:
        self.values = {_RCC_CSR: 0}
        super().__init__({_RCC_CR: 0x00000083, **after_reset})

    def reset(self) -> None:
        kept = self.values[_RCC_CSR] & _RESET_FLAGS
        super().reset()
        self.values[_RCC_CSR] = kept

    def was_reset(self, cause: ResetCause) -> None:
        if cause is ResetCause.POWER:
            self.values[_RCC_CSR] = 0
        self.values[_RCC_CSR] |= _FLAGS_OF[cause]

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        now = self.values[offset]
        if offset == _RCC_CR:
            # The internal oscillator cannot be switched off while it is the system clock.
            running = 1 if self.values.get(_RCC_CFGR, 0) & _SW == 0 else 0
            now = _ready_above(now | running, 0, 16, 24, 26, 28)
        elif offset == _RCC_CFGR:
            now = now & ~(_SW << _SWS_SHIFT) | (now & _SW) << _SWS_SHIFT
        elif offset in (_RCC_BDCR, _RCC_CSR):
            now = _ready_above(now, 0)
        if offset == _RCC_CSR and now & _RMVF:
            now &= ~(_RESET_FLAGS | _RMVF)
        self.values[offset] = now


class Pwr(PlainRegisters):
    """PWR: the voltage is always right, and over-drive is ready when it is on."""

    def __init__(self) -> None:
        super().__init__({_PWR_CR1: 0x0000C000})

    def load(self, offset: int) -> int:
        if offset != _PWR_CSR1:
            return super().load(offset)
        control = self.values[_PWR_CR1]
        return super().load(offset) & ~(_ODEN | _ODSWEN) | control & (_ODEN | _ODSWEN) | _VOSRDY
