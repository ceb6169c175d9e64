# SPDX-License-Identifier: Apache-2.0
"""The specification of a virtual board: its core, memory map and peripherals."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from utvm.base.storage.config import Record
from utvm.errors import ConfigError

CoreName = Literal[
    "cortex-m0",
    "cortex-m0plus",
    "cortex-m3",
    "cortex-m4",
    "cortex-m7",
    "cortex-m7-dp",
    "cortex-m33",
    "cortex-m33-secure",
]
"""The Cortex-M cores with a model, each a row of :mod:`utvm.virtual.cortex_m.kinds`."""
NOMINAL_MILLIVOLTS = 3300
WAITS = ("load", "flash", "branch")
"""Kinds of waits: modelled cycles that issue no instruction, in the order of ``enum wait`` in ``cycles.h``."""
WAITS_REGISTER = 0xE0001F00
"""Register of virtual boards only, in the DWT: 0 if CYCCNT counts all modelled cycles, N for those of a wait."""
FLASH_BYTES = len(WAITS) + 1
"""Value of that register for bytes of data read from flash instead of cycles."""
MAX_CACHE_LINES = 512
SERIAL_NUMBER = re.compile(r"[!-~]{1,32}")
"""Serial numbers that all protocols of the virtual probes can transmit."""


class RegionSpec(Record):
    """A region of memory.

    Attributes:
        size: in bytes, a multiple of 1 KiB.
        kind: ``flash`` is written only through the flash controller, ``rom`` not at all.
        sectors: size in bytes of each erase unit of a flash, in address order.
        alias_of: name of the flash region that this read-only region mirrors.
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
        model: a name in :data:`utvm.virtual.machine.MODELS`, or ``MODULE:NAME`` of a factory like those.
        irq: number of its interrupt line.
        irqs: numbers of its interrupt lines, if it has several.
        settings: parameters of the model.
    """

    model: str
    address: int
    irq: int | None = None
    irqs: tuple[int, ...] = ()
    settings: dict[str, int] = Field(default_factory=dict)


class CacheSpec(Record):
    """A set-associative cache in front of flash.

    Attributes:
        lines, ways: number of lines, and of those that an address can be in.
        line: size in bytes.
        part: bytes of a line that are filled at a time; by default all.
        wait: cycles to fill a part.
    """

    lines: Annotated[int, Field(gt=0, le=MAX_CACHE_LINES)]
    ways: Annotated[int, Field(gt=0)]
    line: Annotated[int, Field(gt=0)]
    part: Annotated[int, Field(gt=0)] | None = None
    wait: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _check_sizes(self) -> "CacheSpec":
        sets, part = self.lines / self.ways, self.part or self.line
        if not all(number.is_integer() and int(number).bit_count() == 1 for number in (sets, self.line / 1, part / 1)):
            raise ValueError("lines / ways, line and part must be powers of two")
        if not part <= self.line <= 8 * part:
            raise ValueError("line has 1 to 8 parts")
        return self


_NO_CACHE = CacheSpec(lines=1, ways=1, line=32, wait=0)


class TimingSpec(Record):
    """A model of the cycles that a core takes with the memory of a board.

    Attributes:
        clock_hz: clock for which the waits are valid.
        error: percent by which published programs differ at most (docs/time.md); None if none was tried.
        code, data: caches for fetches from flash, and for loads from it.
        unified: both are the same cache.
        cached: the data cache, for boards whose port leaves it off.
        states: wait states of the flash, by the highest clock in MHz.
    """

    clock_hz: Annotated[int, Field(gt=0, lt=2**32)]
    error: Annotated[int, Field(gt=0, le=100)] | None = None
    code: CacheSpec = _NO_CACHE
    data: CacheSpec = _NO_CACHE
    unified: bool = False
    cached: CacheSpec | None = None
    states: dict[int, Annotated[int, Field(ge=0, lt=64)]] = Field(default_factory=dict)

    def with_settings(self, settings: Mapping[str, str]) -> "TimingSpec":
        """Return the model with values of :data:`TRIALS`; if they change it, its error is unknown."""
        clock, states = self.clock_hz, self._states(self.clock_hz // 1000000)
        if "clock" in settings:
            clock = 1000000 * _number("clock", settings, "MHz")
        now = self._states(clock // 1000000)
        if "waits" in settings:
            now = _number("waits", settings, "wait states")
        result = {}
        for name, moved in (("code", "code"), ("data", "weights")):
            cache: CacheSpec = getattr(self, name)
            if name == "data" and settings.get("cache") == "on":
                cache = self.cached or cache
            wait = cache.wait + now - states if now or now == states else 0
            lone = {"lines": 1, "ways": 1} if settings.get("cache") == "off" else {}
            if settings.get(moved) == "ram":
                wait = 0
            result[name] = cache.model_copy(update={"wait": wait, **lone})
        unified = self.unified and result["code"] == result["data"]
        changed = self.model_copy(update={"clock_hz": clock, "unified": unified, **result})
        return changed if changed == self else changed.model_copy(update={"error": None})

    def _states(self, mhz: int) -> int:
        states = [count for limit, count in sorted(self.states.items()) if mhz <= limit]
        if self.states and not states:
            raise ConfigError(f"clock: {mhz} MHz is too fast for the flash", f"at most {max(self.states)}")
        return states[0] if states else 0


TRIALS: Mapping[str, Sequence[str]] = {
    "clock": (),
    "waits": (),
    "cache": ("on", "off"),
    "code": ("flash", "ram"),
    "weights": ("flash", "ram"),
}
"""Settings of a chip that the model of cycles can try, and their values; empty for numbers."""


def _number(name: str, settings: Mapping[str, str], unit: str) -> int:
    text = settings[name]
    if not text.isdecimal() or not 0 <= int(text) < 4000 or (name == "clock" and not int(text)):
        raise ConfigError(f"{name} cannot be {text!r}", f"give a number of {unit}")
    return int(text)


class MachineSpec(Record):
    """A board with a Cortex-M.

    Attributes:
        interrupts: number of external interrupt lines.
        reset_vector_base: address of the vector table after reset.
        timing: modelled by the cycle counter, which otherwise counts instructions.
        access_ports: registers of the chip's further access ports, by number.
        blocks: the chip's peripherals, as :mod:`utvm.virtual.blocks` reads them.
    """

    name: str
    cpu: CoreName
    interrupts: int
    reset_vector_base: int
    regions: tuple[RegionSpec, ...]
    peripherals: tuple[Peripheral, ...]
    timing: TimingSpec | None = None
    access_ports: dict[int, dict[int, int]] = Field(default_factory=dict)
    blocks: str = ""


class TapSpec(Record):
    """A TAP with IDCODE, selected by ``idcode_instruction``, as its only data register besides BYPASS."""

    instruction_bits: Annotated[int, Field(ge=2, le=32)]
    idcode: Annotated[int, Field(ge=0, lt=2**32)]
    idcode_instruction: Annotated[int, Field(ge=0)]


class JtagSpec(Record):
    """A board with a JTAG port.

    Attributes:
        cpu: instruction set, as in the toolchain: ``rv32imafc``, ``cortex-a9-neon``.
        idcode: IDCODE of the core's TAP.
        taps: the other TAPs, between the core's and TDO, the one at TDO first.
        start: reset address.
        peripherals: ``model`` is a model of the architecture, or ``MODULE:NAME``.
        logic: name of the bitstream in the programmable logic at start.
    """

    name: str
    cpu: str
    idcode: int
    taps: tuple[TapSpec, ...] = ()
    start: int
    regions: tuple[RegionSpec, ...]
    peripherals: tuple[Peripheral, ...]
    logic: str = ""
