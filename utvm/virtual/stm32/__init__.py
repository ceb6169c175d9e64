# SPDX-License-Identifier: Apache-2.0
"""Peripherals of STM32 microcontrollers, by the names of their models."""

from collections.abc import Mapping

from utvm.errors import ConfigError
from utvm.virtual.bus import Device, PlainRegisters, ResetCause
from utvm.virtual.spec import Peripheral
from utvm.virtual.stm32 import clocks, dma, flash_h7, small, tim, usart
from utvm.virtual.stm32.clocks import ReadyClocks
from utvm.virtual.stm32.flash import FlashController, L4FlashController, L5FlashController
from utvm.virtual.wiring import DeviceFactory, Wiring, after_reset


class Exti(PlainRegisters):
    """External interrupts (RM0385, 11): pins on lines 0 to 15, SWIER on all; RTC interrupts do not pass it."""

    def __init__(self, peripheral: Peripheral, wiring: Wiring) -> None:
        self._bus, self._signals, self._select = wiring.bus, wiring.signals, _SELECTS[peripheral.address]
        self._lines = dict(zip(peripheral.irqs, wiring.lines, strict=True))
        # Offsets of IMR, RTSR, FTSR, SWIER and PR, in the STM32H7 and elsewhere
        offsets = (0x80, 0, 4, 8, 0x88) if peripheral.address == 0x58000000 else (0, 8, 0x0C, 0x10, 0x14)
        self._mask, self._rising, self._falling, self._software, self._pending = offsets
        if seal := self._lines.get(2):
            wiring.signals.listen("RTC_TAMP", lambda level: seal(bool(level)))
        super().__init__(after_reset(peripheral))

    def change(self, port: int, before: int, after: int) -> None:
        """Receive the levels of a port's pins, before and after a change."""
        edges = ~before & after & self.values.get(self._rising, 0) | before & ~after & self.values.get(self._falling, 0)
        for pin in (pin for pin in range(16) if edges >> pin & 1):
            selection = int.from_bytes(self._bus.read(self._select + (pin & ~3), 4), "little")
            if selection >> 4 * (pin & 3) & 15 == port:
                self._pend(1 << pin)

    def store(self, offset: int, value: int, lanes: int) -> None:
        if offset == self._pending:
            self.values[offset] = self.values.get(offset, 0) & ~value
            self.values[self._software] = self.values.get(self._software, 0) & ~value
        else:
            super().store(offset, value, lanes)
        self._pend(value & self.values.get(self._mask, 0) if offset == self._software else 0)

    def _pend(self, bits: int) -> None:
        self.values[self._pending] = self.values.get(self._pending, 0) | bits
        for line in range(bits.bit_length()):
            if bits >> line & 1:
                self._signals.set(f"EXTI{line}", None)
        active = self.values[self._pending] & self.values.get(self._mask, 0)
        for irq, lines in ((23, 0x03E0), (40, 0xFC00), *((6 + line, 1 << line) for line in range(5))):
            self._lines[irq](bool(active & lines))


class Gpio(PlainRegisters):
    """A GPIO port. IDR reads the outputs, and the levels at the other pins.

    The level of an input is driven, written to IDR by a debugger, or that of the pull-up. LCKR has no effect.
    """

    _MODER, _PUPDR, _IDR, _ODR, _BSRR, _BRR = 0x00, 0x0C, 0x10, 0x14, 0x18, 0x28

    def __init__(self, after_reset: Mapping[int, int], wiring: Wiring, port: int) -> None:
        self._levels = self._driven = self._shown = 0
        self._bus, self._port, self._signals = wiring.bus, port, wiring.signals
        self._prefix = f"P{chr(ord('A') + port)}"
        super().__init__(after_reset)
        self._signals.ports[self._prefix] = lambda: self.load(self._IDR), self._drive

    def reset(self) -> None:
        super().reset()
        self._find_directions()
        self._show()

    def _find_directions(self) -> None:
        modes, pulls = self.values.get(self._MODER, 0), self.values.get(self._PUPDR, 0)
        self._outputs = sum((modes >> 2 * pin & 3 == 1) << pin for pin in range(16))
        self._raised = sum((pulls >> 2 * pin & 3 == 1) << pin for pin in range(16))

    def write_by_software(self, offset: int, size: int, value: int) -> None:
        if offset & ~3 != self._IDR:
            super().write_by_software(offset, size, value)

    def load(self, offset: int) -> int:
        if offset != self._IDR:
            return 0 if offset == self._BSRR else super().load(offset)
        inputs = self._levels & self._driven | self._raised & ~self._driven
        return super().load(self._ODR) & self._outputs | inputs & ~self._outputs

    def _drive(self, number: int, level: bool | None) -> None:
        bit = 1 << number
        self._driven = self._driven & ~bit | bit * (level is not None)
        self._levels = self._levels & ~bit | bit * bool(level)
        self._show()

    def store(self, offset: int, value: int, lanes: int) -> None:
        output = self.values.get(self._ODR, 0)
        if offset == self._BSRR:
            self.values[self._ODR] = output & ~(value >> 16) | value & 0xFFFF
        elif offset == self._BRR:
            self.values[self._ODR] = output & ~value
        elif offset == self._IDR:
            self._levels, self._driven = value & 0xFFFF, 0xFFFF
        else:
            super().store(offset, value, lanes)
            if offset in (self._MODER, self._PUPDR):
                self._find_directions()
        self._show()

    def _show(self) -> None:
        before, self._shown = self._shown, self.load(self._IDR)
        if before == self._shown:
            return
        self._signals.set_port(self._prefix, before, self._shown)
        for _, device in self._bus.devices:
            if isinstance(device, Exti):
                device.change(self._port, before, self._shown)


# SYSCFG_EXTICR1 by the address of EXTI (RM0090, RM0385: 0x40013C00; RM0432; RM0433).
_SELECTS = {0x40013C00: 0x40013808, 0x40010400: 0x40010008, 0x58000000: 0x58000408}


def _flash(
    peripheral: Peripheral,
    wiring: Wiring,
    kind: type[FlashController | L4FlashController | flash_h7.H7FlashController] = FlashController,
) -> Device:
    flash, changed = wiring.flash(peripheral.model)
    if "options" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting options: OPTCR, OPTR or OPTSR as delivered")
    controller = kind(flash, peripheral.settings["options"], changed, wiring.set_line)
    wiring.bus.program = controller.program
    return controller


class DebugMcu(PlainRegisters):
    """DBGMCU, which clocks a core in Stop mode for a debugger; only power-on resets it (RM0385, 40.16)."""

    _CONTROL, _STOP_OR_STANDBY = 4, 3 << 1

    @property
    def clocks_in_stop(self) -> bool:
        return bool(self.load(self._CONTROL) & self._STOP_OR_STANDBY)

    def reset(self) -> None:
        self.values = {**self._after_reset, **getattr(self, "values", {})}

    def was_reset(self, cause: ResetCause) -> None:
        if cause is ResetCause.POWER:
            self.values = dict(self._after_reset)


def _debug_mcu(peripheral: Peripheral, _wiring: Wiring) -> Device:
    if "idcode" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting idcode")
    return DebugMcu({0: peripheral.settings["idcode"]}, read_only={0})


def _dma(peripheral: Peripheral, wiring: Wiring) -> Device:
    if len(wiring.lines) != 8:
        raise ConfigError(f"{peripheral.model} needs irqs: 8 numbers, one per stream")
    return dma.DmaController(wiring, peripheral.address)


MODELS: Mapping[str, DeviceFactory] = {
    "stm32l4-rcc": lambda p, _: ReadyClocks(after_reset(p), clocks.L4_READY, (0x08, 3, 2), clocks.l4_rates),
    "stm32h7-rcc": lambda p, _: ReadyClocks(after_reset(p), clocks.H7_READY, (0x10, 7, 3), clocks.h7_rates),
    "stm32h7-pwr": lambda p, _: ReadyClocks(after_reset(p), clocks.H7_SUPPLY, (0x10, 0, 0)),
    "stm32f2-flash": _flash,
    "stm32l4-flash": lambda peripheral, wiring: _flash(peripheral, wiring, L4FlashController),
    "stm32l5-flash": lambda peripheral, wiring: _flash(peripheral, wiring, L5FlashController),
    "stm32h7-flash": lambda peripheral, wiring: _flash(peripheral, wiring, flash_h7.H7FlashController),
    "stm32f2-rcc": lambda peripheral, wiring: clocks.Rcc(after_reset(peripheral)),
    "stm32-registers": lambda peripheral, wiring: PlainRegisters(after_reset(peripheral)),
    "stm32f7-pwr": lambda p, _: ReadyClocks({0x00: 0xC000}, clocks.F7_SUPPLY, (0x10, 0, 0)),
    "stm32f7-dma": _dma,
    "stm32l4-dma": lambda peripheral, wiring: dma.ChannelController(wiring, peripheral.address),
    "stm32l4-dmamux": lambda peripheral, wiring: dma.Dmamux(after_reset(peripheral), wiring, "STM32L4"),
    "stm32l5-dmamux": lambda peripheral, wiring: dma.Dmamux(after_reset(peripheral), wiring, "STM32L5"),
    "stm32h7-dmamux": lambda peripheral, wiring: dma.Dmamux(after_reset(peripheral), wiring, "STM32H7"),
    "stm32f7-usart": lambda peripheral, wiring: usart.Usart(wiring, peripheral.address),
    "stm32f2-usart": lambda peripheral, wiring: usart.OldUsart(wiring, peripheral.address),
    "stm32-tim": lambda p, wiring: tim.TimDevice(wiring, p.address),
    "stm32-tim16": lambda p, wiring: tim.TimDevice(wiring, p.address, 0xFFFF),
    "stm32-lptim": lambda p, wiring: small.Lptim(after_reset(p), wiring),
    "stm32-gpio": lambda p, wiring: Gpio(after_reset(p), wiring, p.address >> 10 & 15),
    "stm32-crc": lambda peripheral, wiring: small.Crc(after_reset(peripheral)),
    "stm32-rtc": lambda p, wiring: small.Rtc(after_reset(p), wiring),
    "stm32-exti": Exti,
    "stm32-dbgmcu": _debug_mcu,
}
