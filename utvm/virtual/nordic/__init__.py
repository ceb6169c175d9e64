# SPDX-License-Identifier: Apache-2.0
"""Peripherals of Nordic's nRF52 by name. Sections are those of the nRF52840 Product Specification 1.7."""

from collections.abc import Callable, Mapping

from utvm.virtual.bus import Device
from utvm.virtual.nordic.nvmc import Nvmc
from utvm.virtual.nordic.registers import HighClock, Registers
from utvm.virtual.nordic.uart import Uart
from utvm.virtual.spec import Peripheral
from utvm.virtual.surroundings import Surroundings

__all__ = ["MODELS"]


def _nvmc(peripheral: Peripheral, around: Surroundings) -> Device:
    controller = Nvmc(*around.flash(peripheral.model))
    around.bus.program = controller.program
    return controller


MODELS: Mapping[str, Callable[[Peripheral, Surroundings], Device]] = {
    "nrf52-nvmc": _nvmc,
    "nrf52-uart": lambda peripheral, around: Uart(around.clock, around.send, around.set_line),
    "nrf52-clock": lambda peripheral, around: HighClock(),
    "nrf52-registers": lambda peripheral, around: Registers(),
}
