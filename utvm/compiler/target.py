# SPDX-License-Identifier: Apache-2.0
"""What a library is compiled for: the record by which a board's CPU chooses kernels."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A CPU, as kernels and schedules see it; without anything named, any CPU with a C99 compiler.

    Whatever it is, the library runs anywhere, and gives the same results: it is only fastest here.

    Attributes:
        core: as its maker calls it, ``cortex-m7``.
        extensions: what kernels may use beyond plain C, as toolchain files name it (``dsp``); kept sorted.
        row: the toolchain's file and its row of the CPU, ``arm-none-eabi/cortex-m7-fpv5-sp``.
    """

    core: str = ""
    extensions: tuple[str, ...] = ()
    row: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "extensions", tuple(sorted(set(self.extensions))))

    @property
    def spoken(self) -> str:
        """What it is called in reports."""
        name = self.core or "any CPU"
        return f"{name} with {', '.join(self.extensions)}" if self.extensions else name


ANY = Target()
"""Any CPU with a C99 compiler."""
