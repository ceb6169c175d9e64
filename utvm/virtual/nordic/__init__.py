# SPDX-License-Identifier: Apache-2.0
"""Peripherals of Nordic's nRF52 and nRF53 by name, with their differences as settings.

Sections are those of the nRF52840 Product Specification 1.7; the nRF5340's has the same registers in its chapters
of the same names, but for what is said.
"""

from collections.abc import Callable, Mapping

from utvm.virtual.bus import Device
from utvm.virtual.nordic.nvmc import Nvmc
from utvm.virtual.nordic.registers import HighClock, Registers
from utvm.virtual.nordic.uarte import Uarte
from utvm.virtual.spec import Peripheral
from utvm.virtual.wiring import Wiring

__all__ = ["MODELS"]


def _nvmc(peripheral: Peripheral, wiring: Wiring) -> Device:
    by_writing = bool(peripheral.settings.get("erase_by_writing"))
    controller = Nvmc(*wiring.flash(peripheral.model), erases_by_writing=by_writing)
    wiring.bus.program = controller.program
    return controller


MODELS: Mapping[str, Callable[[Peripheral, Wiring], Device]] = {
    "nrf-nvmc": _nvmc,
    "nrf-uarte": lambda peripheral, wiring: Uarte(wiring.bus, wiring.clock, wiring.send, wiring.set_line),
    "nrf-clock": lambda peripheral, wiring: HighClock(),
    "nrf-registers": lambda peripheral, wiring: Registers(),
}
