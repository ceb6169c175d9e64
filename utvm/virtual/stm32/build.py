"""The models of peripherals by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, Device
from utvm.virtual.cortex_m.clock import Clock
from utvm.virtual.spec import Peripheral
from utvm.virtual.stm32.clocks import Pwr, Rcc
from utvm.virtual.stm32.flash import FlashController
from utvm.virtual.stm32.registers import Gpio, PlainRegisters
from utvm.virtual.stm32.tim import Timer
from utvm.virtual.stm32.usart import Usart


@dataclass(frozen=True)
class Surroundings:
    """What a peripheral is connected to.

    Attributes:
        set_line: drives its interrupt line.
        send: takes what the console sends.
    """

    bus: Bus
    clock: Clock
    set_line: Callable[[bool], None]
    send: Callable[[bytes], None]


def _flash(peripheral: Peripheral, around: Surroundings) -> Device:
    flashes = [m for m in around.bus.memories if m.region.kind == "flash" and not m.region.alias_of]
    if len(flashes) != 1 or not flashes[0].region.sectors:
        raise ConfigError(f"{peripheral.model} needs exactly one flash region with sectors")
    flash = flashes[0]
    aliases = [m for m in around.bus.memories if m.region.alias_of == flash.region.name]

    def changed(start: int, end: int) -> None:
        for shown in (flash, *aliases):
            around.bus.on_memory_change(start - flash.start + shown.start, end - flash.start + shown.start)

    controller = FlashController(flash, changed, around.set_line)
    around.bus.program = controller.program
    return controller


def _debug_mcu(peripheral: Peripheral, _around: Surroundings) -> Device:
    if "idcode" not in peripheral.settings:
        raise ConfigError(f"{peripheral.model} needs the setting idcode")
    return PlainRegisters({0: peripheral.settings["idcode"]}, read_only=frozenset({0}))


MODELS: Mapping[str, Callable[[Peripheral, Surroundings], Device]] = {
    "stm32f7-flash": _flash,
    "stm32f7-rcc": lambda peripheral, around: Rcc(),
    "stm32f7-pwr": lambda peripheral, around: Pwr(),
    "stm32f7-usart": lambda peripheral, around: Usart(around.clock, around.send, around.set_line),
    "stm32-tim": lambda peripheral, around: Timer(around.clock, around.set_line),
    "stm32-gpio": lambda peripheral, around: Gpio(),
    "stm32-dbgmcu": _debug_mcu,
}
