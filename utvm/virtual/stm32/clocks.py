# SPDX-License-Identifier: Apache-2.0
"""The clocks of an STM32, and the rates that its RCC's registers select.

Oscillators and PLLs run as soon as they are enabled. The external crystals have 8 MHz and 32,768 Hz, as on ST's
boards (UM1472, UM1974, UM2179). Kernel clocks of peripherals are those of their buses.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from utvm.virtual.bus import Bus, PlainRegisters, ResetCause

_log = logging.getLogger(__name__)
_APB2 = 0x40010000  # First address of peripherals on APB2.


class Rates(NamedTuple):
    """Rates of the core and the calendar in Hz, and core cycles per cycle of each bus."""

    core: int
    apb1: int = 1
    calendar: int = 32_768
    apb2: int = 1
    ahb: int = 1

    def bus(self, address: int) -> int:
        """Core cycles per cycle of a peripheral's bus."""
        return self.apb2 if address & 0x4FFFFFFF >= _APB2 else self.apb1

    def timer(self, address: int) -> int:
        """Core cycles per cycle of a timer's clock, which is twice the bus clock if that is divided."""
        return max(self.ahb, self.bus(address) // 2)


_Words = Callable[[int], int]
_HSI, _HSE = 16_000_000, 8_000_000
LSE, LSI = 32_768, 32_000
_MSI_KHZ = (100, 200, 400, 800, 1000, 2000, 4000, 8000, 16000, 24000, 32000, 48000)

# Enable and ready bits. RM0385, 5.3; RM0432, 6.4 (L4+); RM0438, 9.8 (L5); RM0433, 8.7 (H7) and 6.8.
_F2_READY = [(0x00, 0, 1), (0x00, 16, 17), (0x00, 24, 25), (0x00, 26, 27), (0x00, 28, 29)]
_F2_READY += [(0x70, 0, 1), (0x74, 0, 1)]
L4_READY = [(0x00, 0, 1), (0x00, 8, 10), (0x00, 16, 17), (0x00, 24, 25), (0x00, 26, 27), (0x00, 28, 29)]
L4_READY += [(0x90, 0, 1), (0x94, 0, 1), (0x98, 0, 1)]
H7_READY = [(0x00, 0, 2), (0x00, 7, 8), (0x00, 12, 13), (0x00, -1, 14), (0x00, -1, 15), (0x00, 16, 17)]
H7_READY += [(0x00, 24, 25), (0x00, 26, 27), (0x00, 28, 29), (0x70, 0, 1), (0x74, 0, 1)]
F7_SUPPLY = [(0x04, -1, 14), (0x04, 32 + 16, 16), (0x04, 32 + 17, 17)]  # VOSRDY; over-drive (RM0385, 4.4)
H7_SUPPLY = [(0x04, -1, 13), (0x18, -1, 13)]  # ACTVOSRDY, VOSRDY


def _ahb(code: int) -> int:
    return 1 if code < 8 else (2, 4, 8, 16, 64, 128, 256, 512)[code - 8]


def _apb(code: int) -> int:
    return 1 if code < 4 else 2 << code - 4


def _calendar(domain: int, crystal: int) -> int:
    """Rate that RTCSEL in BDCR selects."""
    return (LSE, LSE, LSI, crystal)[domain >> 8 & 3]


def f2_rates(word: _Words) -> Rates:
    """Rates of the STM32F2, F4 and F7 (RM0385, 5.3.2, 5.3.3, 5.3.20)."""
    pll, config = word(0x04), word(0x08)
    reference = _HSE if pll >> 22 & 1 else _HSI
    fast = reference * (pll >> 6 & 511) // max(1, pll & 63) // (2 * (pll >> 16 & 3) + 2)
    calendar = _calendar(word(0x70), _HSE // max(1, config >> 16 & 31))
    core = (_HSI, _HSE, fast, fast)[config & 3] // _ahb(config >> 4 & 15)
    return Rates(core, _apb(config >> 10 & 7), calendar, _apb(config >> 13 & 7))


def l4_rates(word: _Words) -> Rates:
    """Rates of the STM32L4+ and L5 (RM0432, 6.4.1 to 6.4.4)."""
    control, config, pll = word(0x00), word(0x08), word(0x0C)
    selected = control >> 4 if control >> 3 & 1 else word(0x94) >> 8
    slow = 1000 * _MSI_KHZ[min(selected & 15, 11)]
    reference = (slow, slow, _HSI, _HSE)[pll & 3]
    fast = reference * (pll >> 8 & 127) // ((pll >> 4 & 15) + 1) // (2 * (pll >> 25 & 3) + 2)
    core = (slow, _HSI, _HSE, fast)[config & 3] // _ahb(config >> 4 & 15)
    return Rates(core, _apb(config >> 8 & 7), _calendar(word(0x90), _HSE // 32), _apb(config >> 11 & 7))


def h7_rates(word: _Words) -> Rates:
    """Rates of the STM32H7 (RM0433, 8.7.2, 8.7.6, 8.7.11, 8.7.13)."""
    select, divide, domain1 = word(0x28), word(0x30), word(0x18)
    internal = 4 * _HSI >> (word(0x00) >> 3 & 3)
    reference = (internal, _HSI // 4, _HSE, 0)[select & 3]
    fast = reference * ((divide & 511) + 1) // max(1, select >> 4 & 63) // ((divide >> 9 & 127) + 1)
    core = (internal, _HSI // 4, _HSE, fast)[word(0x10) & 3] // _ahb(domain1 >> 8 & 15)
    ahb, domain2 = _ahb(domain1 & 15), word(0x1C)
    calendar = _calendar(word(0x70), _HSE // max(1, word(0x10) >> 8 & 63))
    return Rates(core, ahb * _apb(domain2 >> 4 & 7), calendar, ahb * _apb(domain2 >> 8 & 7), ahb)


class ReadyClocks(PlainRegisters):
    """RCC or PWR: enabled clocks and voltages are ready at once.

    ``ready`` are rows of an offset, an enable bit and the bit that reads as it; a negative enable bit stands for
    "always", and from 32 on it is one of the register at 0. ``switch`` is the offset of CFGR, the mask of SW and
    the distance to SWS. ``select`` computes an RCC's rates.
    """

    _core = 0

    def __init__(
        self,
        after_reset: Mapping[int, int],
        ready: Sequence[tuple[int, int, int]],
        switch: tuple[int, int, int],
        select: Callable[[_Words], Rates] | None = None,
    ) -> None:
        self._ready, self._switch, self.select = ready, switch, select
        super().__init__(after_reset)

    def load(self, offset: int) -> int:
        value = super().load(offset)
        for at, enable, bit in self._ready:
            if at == offset:
                enables = value if enable < 32 else super().load(0) << 32
                value = value & ~(1 << bit) | (enable < 0 or enables >> enable & 1) << bit
        at, mask, distance = self._switch
        return value & ~(mask << distance) | (value & mask) << distance if at == offset else value

    def reset(self) -> None:
        super().reset()
        self._rates: Rates | None = None

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        self._rates = None

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        super().write_by_software(offset, size, value)
        if self.select and self.rates.core != self._core:
            self._core = self.rates.core
            _log.warning("core clock: %d Hz", self._core)

    @property
    def rates(self) -> Rates:
        """Rates selected by the registers."""
        if self._rates is None:
            self._rates = self.select(lambda offset: self.values.get(offset, 0)) if self.select else Rates(_HSI)
        return self._rates


# Every reset pulls the reset pin, too; flags accumulate.
_FLAGS_OF = dict(zip(ResetCause, (0x0E000000, 0x04000000, 0x14000000, 0x24000000, 0x44000000), strict=True))


class Rcc(ReadyClocks):
    """The RCC of the STM32F2, F4 and F7, with the flags of resets (RM0385, 5.1 and 5.3.21)."""

    _CR, _CFGR, _CSR, _RMVF, _FLAGS = 0x00, 0x08, 0x74, 1 << 24, 0xFE000000

    def __init__(self, after_reset: Mapping[int, int]) -> None:
        self.values = {self._CSR: 0}
        super().__init__({self._CR: 0x00000083, **after_reset}, _F2_READY, (self._CFGR, 3, 2), f2_rates)

    def reset(self) -> None:
        flags = self.values[self._CSR] & self._FLAGS
        super().reset()
        self.values[self._CSR] = flags

    def was_reset(self, cause: ResetCause) -> None:
        before = 0 if cause is ResetCause.POWER else self.values[self._CSR]
        self.values[self._CSR] = before | _FLAGS_OF[cause]

    def store(self, offset: int, value: int, lanes: int) -> None:
        super().store(offset, value, lanes)
        if offset == self._CR and self.values.get(self._CFGR, 0) & 3 == 0:
            self.values[offset] |= 1  # the internal oscillator cannot be disabled while it is the system clock
        elif offset == self._CSR and value & self._RMVF:
            self.values[offset] &= ~(self._FLAGS | self._RMVF)


def rates_on(bus: Bus) -> Rates:
    """A chip's present rates."""
    if bus.clocks is None:
        clocks = (device for _, device in bus.devices if isinstance(device, ReadyClocks) and device.select)
        bus.clocks = next(clocks, None)
    return cast(ReadyClocks, bus.clocks).rates if bus.clocks else Rates(_HSI)
