"""What a board is, as data: one folder a board, with ``board.yaml`` and, for a chip, ``openocd.cfg``, ``port.c``.

:func:`load_any` reads a board's folder and checks it, :func:`load` one that must have a debug port; :func:`names`
lists the boards that come with the project.
"""

from utvm.boards.board import (
    AnyBoard,
    Board,
    Emulator,
    Layout,
    MemoryRegion,
    OpenOcdBoard,
    ProbeMatch,
    ProcessBoard,
    QemuBoard,
    Timeouts,
)
from utvm.boards.loader import chips, load, load_any, names, probed

__all__ = [
    "AnyBoard",
    "Board",
    "Emulator",
    "Layout",
    "MemoryRegion",
    "OpenOcdBoard",
    "ProbeMatch",
    "ProcessBoard",
    "QemuBoard",
    "Timeouts",
    "chips",
    "load",
    "load_any",
    "names",
    "probed",
]
