# SPDX-License-Identifier: Apache-2.0
"""What a peripheral finds around it on its board."""

from collections.abc import Callable
from dataclasses import dataclass

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, MemoryBank
from utvm.virtual.cortex_m.clock import Clock


@dataclass(frozen=True)
class Surroundings:
    """What a peripheral is connected to.

    Attributes:
        set_line: drives its interrupt line.
        lines: drive its interrupt lines, where it has several.
        send: takes what the console sends.
    """

    bus: Bus
    clock: Clock
    set_line: Callable[[bool], None]
    lines: tuple[Callable[[bool], None], ...]
    send: Callable[[bytes], None]

    def flash(self, controller: str) -> tuple[MemoryBank, Callable[[int, int], None]]:
        """Return the flash, and what is to be told the first address and the address after a change of it.

        Raises:
            ConfigError: the board's file has another number of them, or one without sectors.
        """
        flashes = [m for m in self.bus.memories if m.region.kind == "flash" and not m.region.alias_of]
        if len(flashes) != 1 or not flashes[0].region.sectors:
            raise ConfigError(f"{controller} needs exactly one flash region with sectors")
        flash = flashes[0]
        aliases = [m for m in self.bus.memories if m.region.alias_of == flash.region.name]

        def changed(start: int, end: int) -> None:
            for shown in (flash, *aliases):
                self.bus.on_memory_change(start - flash.start + shown.start, end - flash.start + shown.start)

        return flash, changed
