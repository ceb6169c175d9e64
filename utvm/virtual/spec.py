# SPDX-License-Identifier: Apache-2.0
"""The numbers a virtual board is built from."""

import re
from typing import Literal

from pydantic import Field

from utvm.config import Record

CoreName = Literal["cortex-m4", "cortex-m7"]
"""The cores that can be modelled: :mod:`utvm.virtual.cortex_m.kinds` has a row for each."""
NOMINAL_MILLIVOLTS = 3300
"""The supply of a board that has all that it needs."""
SERIAL_NUMBER = re.compile(r"[!-~]{1,32}")
"""What a probe's serial number may be: so much can every protocol here carry."""


class RegionSpec(Record):
    """A region of memory.

    Attributes:
        address: of its first byte.
        size: bytes, a multiple of 1 KiB.
        kind: ``flash`` is written through the flash controller only, ``rom`` not at all.
        sectors: bytes of each erase unit of a flash, in address order.
        alias_of: name of the flash region that this one shows on another bus, for reading.
    """

    name: str
    address: int
    size: int
    kind: Literal["ram", "flash", "rom"]
    sectors: tuple[int, ...] = ()
    alias_of: str | None = None


class Peripheral(Record):
    """A peripheral.

    Attributes:
        model: one of :data:`utvm.virtual.stm32.MODELS`; or ``MODULE:NAME``, of what is called as those are.
        address: of its first register.
        irq: number of its interrupt line.
        irqs: numbers of its interrupt lines, where it has several.
        settings: numbers that the model asks for.
    """

    model: str
    address: int
    irq: int | None = None
    irqs: tuple[int, ...] = ()
    settings: dict[str, int] = Field(default_factory=dict)


class MachineSpec(Record):
    """A board: its memory map and its peripherals.

    Attributes:
        interrupts: number of lines of the interrupt controller.
        reset_vector_base: where the vector table lies after reset.
    """

    name: str
    cpu: CoreName
    interrupts: int
    reset_vector_base: int
    regions: tuple[RegionSpec, ...]
    peripherals: tuple[Peripheral, ...]
