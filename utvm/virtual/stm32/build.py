# SPDX-License-Identifier: Apache-2.0
"""The models of peripherals by name."""

from collections.abc import Callable, Mapping

from utvm.errors import ConfigError
from utvm.virtual.bus import BusError, Device
from utvm.virtual.spec import Peripheral
from utvm.virtual.stm32.clocks import Pwr, Rcc
from utvm.virtual.stm32.dma import STREAMS, DmaController
from utvm.virtual.stm32.flash import FlashController
from utvm.virtual.stm32.flash_h7 import H7FlashController
from utvm.virtual.stm32.flash_l4 import L4FlashController, L5FlashController
from utvm.virtual.stm32.registers import Gpio, PlainRegisters
from utvm.virtual.stm32.tim import TimDevice
from utvm.virtual.stm32.usart import OldUsart, Usart
from utvm.virtual.surroundings import Surroundings


def _flash(
    peripheral: Peripheral,
    around: Surroundings,
    kind: type[FlashController | L4FlashController | H7FlashController] = FlashController,
) -> Device:
    """Make the controller of the flash."""
    flash, changed = around.flash(peripheral.model)
    if "options" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting options: OPTCR, OPTR or OPTSR as delivered")
    controller = kind(flash, peripheral.settings["options"], changed, around.set_line)
    around.bus.program = controller.program
    return controller


def _debug_mcu(peripheral: Peripheral, _around: Surroundings) -> Device:
    """Make the register that tells the chip."""
    if "idcode" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting idcode")
    return PlainRegisters({0: peripheral.settings["idcode"]}, read_only=frozenset({0}))


def _dma(peripheral: Peripheral, around: Surroundings) -> Device:
    """Make a DMA controller."""
    if len(around.lines) != STREAMS:
        raise ConfigError(f"{peripheral.model} needs irqs: one a stream, {STREAMS} numbers")
    return DmaController(around.bus, around.lines)


def _usart(peripheral: Peripheral, around: Surroundings, kind: type[Usart] = Usart) -> Device:
    receive, send = (_dma_request(peripheral, around, direction) for direction in ("receive", "send"))
    return kind(around.clock, around.send, around.set_line, receive, send)


def _rcc(peripheral: Peripheral, _around: Surroundings) -> Device:
    return Rcc(_after_reset(peripheral))


def _after_reset(peripheral: Peripheral) -> dict[int, int]:
    """Return the settings ``at0x04`` and so on by their offsets."""
    try:
        return {int(name.removeprefix("at"), 16): value for name, value in peripheral.settings.items()}
    except ValueError:
        raise ConfigError(f"{peripheral.model} has settings like at0x04, registers after a reset") from None


def _dma_request(peripheral: Peripheral, around: Surroundings, name: str) -> Callable[[bool], None]:
    """Return what raises a DMA request of a peripheral, or nothing where its settings name no controller."""
    settings = peripheral.settings
    if "dma" not in settings:
        return lambda level: None
    try:
        controller, _ = around.bus.device_at(settings["dma"])
        stream, channel = settings[f"{name}_stream"], settings[f"{name}_channel"]
    except KeyError as missing:
        raise ConfigError(f"{peripheral.model} needs the setting {missing.args[0]} beside dma") from None
    except BusError:
        controller = None
    if not isinstance(controller, DmaController):
        raise ConfigError(
            f"{peripheral.model}: no DMA controller at {settings['dma']:#x}", "it must come before who uses it"
        )
    return lambda level: controller.set_request(stream, channel, level)


MODELS: Mapping[str, Callable[[Peripheral, Surroundings], Device]] = {
    "stm32f2-flash": _flash,
    "stm32l4-flash": lambda peripheral, around: _flash(peripheral, around, L4FlashController),
    "stm32l5-flash": lambda peripheral, around: _flash(peripheral, around, L5FlashController),
    "stm32h7-flash": lambda peripheral, around: _flash(peripheral, around, H7FlashController),
    "stm32f2-rcc": _rcc,
    "stm32-registers": lambda peripheral, around: PlainRegisters(_after_reset(peripheral)),
    "stm32f7-pwr": lambda peripheral, around: Pwr(),
    "stm32f7-dma": _dma,
    "stm32f7-usart": _usart,
    "stm32f2-usart": lambda peripheral, around: _usart(peripheral, around, OldUsart),
    "stm32-tim": lambda peripheral, around: TimDevice(around.clock, around.set_line),
    "stm32-gpio": lambda peripheral, around: Gpio(),
    "stm32-dbgmcu": _debug_mcu,
}
