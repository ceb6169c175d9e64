# SPDX-License-Identifier: Apache-2.0
"""Memory for a library: one or more regions, and tensors pinned to one of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from utvm.compiler.names import RESERVED
from utvm.errors import ConfigError

_TAKEN = RESERVED | {"inputs", "outputs", "turn", "rows", "code"}


@dataclass(frozen=True)
class Region:
    """A region of RAM, a parameter of ``NAME_run`` of this name; ``size_bytes`` None means as many as needed."""

    name: str
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name) or self.name in _TAKEN:
            raise ConfigError(
                f"a memory region cannot be called {self.name!r}",
                "use letters, digits and underscores, a letter first, and not a reserved word of C",
            )
        if self.size_bytes is not None and self.size_bytes < 0:
            raise ConfigError(f"memory region {self.name} cannot have {self.size_bytes} bytes", "give 0 or more")


@dataclass(frozen=True)
class Memory:
    """The regions that a plan may use; ``pins`` maps a tensor's name to its region's."""

    regions: tuple[Region, ...] = (Region("arena"),)
    pins: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [region.name for region in self.regions]
        if not names or len({name.upper() for name in names}) != len(names):
            raise ConfigError(f"memory regions need different names, not {names}", "case is ignored")
        for tensor, region in self.pins.items():
            if region not in names:
                raise ConfigError(
                    f"tensor {tensor} is pinned to region {region}, which does not exist",
                    f"regions: {', '.join(names)}",
                )

    @property
    def text(self) -> str:
        regions = [f"{region.name}={region.size_bytes}" for region in self.regions]
        return f"{regions} {sorted(self.pins.items())}"
