# SPDX-License-Identifier: Apache-2.0
"""Peripherals of STM32 microcontrollers, by the names of their models."""

from collections.abc import Callable, Mapping

from utvm.errors import ConfigError
from utvm.virtual.bus import BusError, Device, PlainRegisters
from utvm.virtual.spec import Peripheral
from utvm.virtual.stm32.clocks import Gpio, Pwr, Rcc
from utvm.virtual.stm32.dma import STREAMS, DmaController
from utvm.virtual.stm32.flash import FlashController, L4FlashController, L5FlashController
from utvm.virtual.stm32.flash_h7 import H7FlashController
from utvm.virtual.stm32.tim import TimDevice
from utvm.virtual.stm32.usart import OldUsart, Usart
from utvm.virtual.wiring import DeviceFactory, Wiring


def _flash(
    peripheral: Peripheral,
    wiring: Wiring,
    kind: type[FlashController | L4FlashController | H7FlashController] = FlashController,
) -> Device:
    flash, changed = wiring.flash(peripheral.model)
    if "options" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting options: OPTCR, OPTR or OPTSR as delivered")
    controller = kind(flash, peripheral.settings["options"], changed, wiring.set_line)
    wiring.bus.program = controller.program
    return controller


def _debug_mcu(peripheral: Peripheral, _wiring: Wiring) -> Device:
    if "idcode" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting idcode")
    return PlainRegisters({0: peripheral.settings["idcode"]}, read_only={0})


def _dma(peripheral: Peripheral, wiring: Wiring) -> Device:
    if len(wiring.lines) != STREAMS:
        raise ConfigError(f"{peripheral.model} needs irqs: {STREAMS} numbers, one per stream")
    return DmaController(wiring.bus, wiring.lines)


def _usart(peripheral: Peripheral, wiring: Wiring, kind: type[Usart] = Usart) -> Device:
    receive, send = (_dma_request(peripheral, wiring, direction) for direction in ("receive", "send"))
    return kind(wiring.clock, wiring.send, wiring.set_line, receive, send)


def _after_reset(peripheral: Peripheral) -> dict[int, int]:
    """Register values from settings such as ``at0x04``, by offset."""
    try:
        return {int(name.removeprefix("at"), 16): value for name, value in peripheral.settings.items()}
    except ValueError:
        raise ConfigError(f"{peripheral.model} has settings like at0x04, registers after a reset") from None


def _dma_request(peripheral: Peripheral, wiring: Wiring, name: str) -> Callable[[bool], None]:
    """Callback that drives a DMA request; without effect if the settings name no controller."""
    settings = peripheral.settings
    if "dma" not in settings:
        return lambda level: None
    try:
        controller, _ = wiring.bus.device_at(settings["dma"])
        stream, channel = settings[f"{name}_stream"], settings[f"{name}_channel"]
    except KeyError as missing:
        raise ConfigError(f"{peripheral.model} needs the setting {missing.args[0]} beside dma") from None
    except BusError:
        controller = None
    if not isinstance(controller, DmaController):
        raise ConfigError(
            f"{peripheral.model}: no DMA controller at {settings['dma']:#x}",
            "list the controller before the peripherals that use it",
        )
    return lambda level: controller.set_request(stream, channel, level)


MODELS: Mapping[str, DeviceFactory] = {
    "stm32f2-flash": _flash,
    "stm32l4-flash": lambda peripheral, wiring: _flash(peripheral, wiring, L4FlashController),
    "stm32l5-flash": lambda peripheral, wiring: _flash(peripheral, wiring, L5FlashController),
    "stm32h7-flash": lambda peripheral, wiring: _flash(peripheral, wiring, H7FlashController),
    "stm32f2-rcc": lambda peripheral, wiring: Rcc(_after_reset(peripheral)),
    "stm32-registers": lambda peripheral, wiring: PlainRegisters(_after_reset(peripheral)),
    "stm32f7-pwr": lambda peripheral, wiring: Pwr(),
    "stm32f7-dma": _dma,
    "stm32f7-usart": _usart,
    "stm32f2-usart": lambda peripheral, wiring: _usart(peripheral, wiring, OldUsart),
    "stm32-tim": lambda peripheral, wiring: TimDevice(wiring.clock, wiring.set_line),
    "stm32-gpio": lambda peripheral, wiring: Gpio(),
    "stm32-dbgmcu": _debug_mcu,
}
