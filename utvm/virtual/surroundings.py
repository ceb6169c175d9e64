# SPDX-License-Identifier: Apache-2.0
"""What a peripheral finds around it on its board."""

import pkgutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from utvm.errors import ConfigError
from utvm.virtual.bus import Bus, Device, MemoryBank
from utvm.virtual.cortex_m.clock import Clock
from utvm.virtual.spec import Peripheral


@dataclass(frozen=True)
class Surroundings:
    """What a peripheral is connected to.

    Attributes:
        set_line: drives its interrupt line.
        lines: drive its interrupt lines, where it has several.
        send: takes what the console sends.
        logic: returns what the programmable logic holds, nothing where it is empty.
    """

    bus: Bus
    clock: Clock
    set_line: Callable[[bool], None]
    lines: tuple[Callable[[bool], None], ...]
    send: Callable[[bytes], None]
    logic: Callable[[], str] = lambda: "part of the chip"

    def flash(self, controller: str) -> tuple[MemoryBank, Callable[[int, int], None]]:
        """Return the flash, and what is to be told the first address and the address after a change of it."""
        flashes = [m for m in self.bus.memories if m.region.kind == "flash" and not m.region.alias_of]
        if len(flashes) != 1 or not flashes[0].region.sectors:
            raise ConfigError(f"{controller} needs exactly one flash region with sectors")
        flash = flashes[0]
        aliases = [m for m in self.bus.memories if m.region.alias_of == flash.region.name]

        def changed(start: int, end: int) -> None:
            for shown in (flash, *aliases):
                self.bus.on_memory_change(start - flash.start + shown.start, end - flash.start + shown.start)

        return flash, changed


def maker_of(board: str, model: str, known: Collection[str]) -> Callable[[Peripheral, Surroundings], Device]:
    """Return what makes a peripheral whose model is ``MODULE:NAME``."""
    try:
        if ":" in model:
            return cast(Callable[[Peripheral, Surroundings], Device], pkgutil.resolve_name(model))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{board}: no model named {model!r}: {error}", "is the package that brings it installed?"
        ) from error
    hint = f"there are: {', '.join(sorted(known))}; MODULE:NAME is a further one"
    raise ConfigError(f"{board}: no model named {model!r}", hint)
