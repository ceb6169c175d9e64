"""The C that runs on boards: start-up code, fault handlers, the cycle counter and the host-driven executor.

``include/utvm.h`` is what board ports and programs are written against. ``cortex_m/`` has what one
architecture needs; the C files beside this one are for every board. This module only says where they are.
"""

from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent
INCLUDE = DIRECTORY / "include"


def sources(architecture: str) -> tuple[Path, ...]:
    """Return the C and assembler files of the runtime for an architecture, in a fixed order."""
    common = sorted(DIRECTORY.glob("*.c"))
    folder = DIRECTORY / architecture
    return (*common, *sorted(folder.glob("*.S")), *sorted(folder.glob("*.c")))
