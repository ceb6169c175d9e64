"""The C that runs on boards: start-up code, fault handlers, the cycle counter and the executors.

``include/utvm.h`` is what board ports and programs are written against. ``host_driven/`` and ``rpc/`` are the
executors: one of them is in an image. ``cortex_m/`` and ``host/`` have what one architecture needs, and in a
folder named after an executor what only that one needs of it; the C files beside this one are for every image.
``portable/`` has what becomes a part of libraries. This module only says where they are.
"""

from pathlib import Path
from typing import Literal

DIRECTORY = Path(__file__).resolve().parent
INCLUDE = DIRECTORY / "include"
PORTABLE = DIRECTORY / "portable"

Executor = Literal["host_driven", "rpc"]
"""What is in an image beside the programs: the debug port drives it, or RPC does."""


def sources(architecture: str, executor: Executor) -> tuple[Path, ...]:
    """Return the C and assembler files of the runtime for an architecture, in a fixed order."""
    folder = DIRECTORY / architecture
    return tuple(
        path
        for pattern in ("*.S", "*.c")
        for where in (DIRECTORY, DIRECTORY / executor, folder, folder / executor)
        for path in sorted(where.glob(pattern))
    )


def include(architecture: str, executor: Executor) -> tuple[Path, ...]:
    """Return the folders of header files that these sources need."""
    return (INCLUDE, DIRECTORY / architecture, DIRECTORY / executor)
