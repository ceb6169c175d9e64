# SPDX-License-Identifier: Apache-2.0
"""The numbers a virtual board is built from."""

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from utvm.base.storage.config import Record

CoreName = Literal["cortex-m4", "cortex-m7", "cortex-m7-dp", "cortex-m33", "cortex-m33-secure"]
"""The cores of Cortex-M that can be modelled: :mod:`utvm.virtual.cortex_m.kinds` has a row for each."""
NOMINAL_MILLIVOLTS = 3300
"""The supply of a board that has all that it needs."""
MOST_LINES = 512
"""Of a cache that is modelled."""
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
        model: one of :data:`utvm.virtual.machine.MODELS`; or ``MODULE:NAME``, of what is called as those are.
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


class CacheSpec(Record):
    """A cache: how many lines it has, and in how many places of it a line may be."""

    lines: Annotated[int, Field(gt=0, le=MOST_LINES)]
    ways: Annotated[int, Field(gt=0)]

    @model_validator(mode="after")
    def _has_whole_sets(self) -> "CacheSpec":
        if self.lines % self.ways:
            raise ValueError("lines must be a multiple of ways")
        return self


class WaitStates(Record):
    """How long the core waits for flash, as a model of it counts.

    Attributes:
        cycles: for a line that no cache has.
        line: bytes of a line of flash, and of the caches.
        instructions, data: through which they are read.
    """

    cycles: Annotated[int, Field(ge=0)]
    line: Annotated[int, Field(gt=0)]
    instructions: CacheSpec
    data: CacheSpec


class MachineSpec(Record):
    """A board: its memory map and its peripherals.

    Attributes:
        interrupts: number of lines of the interrupt controller.
        reset_vector_base: where the vector table lies after reset.
        wait_states: what its cycle counter counts beside instructions; by default nothing.
        access_ports: the chip's own beside that to memory, by number: what their registers hold.
    """

    name: str
    cpu: CoreName
    interrupts: int
    reset_vector_base: int
    regions: tuple[RegionSpec, ...]
    peripherals: tuple[Peripheral, ...]
    wait_states: WaitStates | None = None
    access_ports: dict[int, dict[int, int]] = Field(default_factory=dict)


class TapSpec(Record):
    """A TAP that is there and no more: bits of its instruction register, and its IDCODE behind which of them."""

    instruction_bits: Annotated[int, Field(ge=2, le=32)]
    idcode: Annotated[int, Field(ge=0, lt=2**32)]
    idcode_instruction: Annotated[int, Field(ge=0)]


class JtagSpec(Record):
    """A board behind JTAG pins: its memory map and its peripherals.

    Attributes:
        cpu: what it executes, in the words of the toolchain: ``rv32imafc``, ``cortex-a9-neon``.
        idcode: of its core's TAP.
        taps: others, between that and TDO, the one at TDO first.
        start: where it begins after a reset.
        peripherals: ``model`` is one that the architecture has, or ``MODULE:NAME``.
        logic: what its programmable logic holds from before.
    """

    name: str
    cpu: str
    idcode: int
    taps: tuple[TapSpec, ...] = ()
    start: int
    regions: tuple[RegionSpec, ...]
    peripherals: tuple[Peripheral, ...]
    logic: str = ""
