"""What a board is, as data: one folder a board, with ``board.yaml`` and, for a chip, ``openocd.cfg``, ``port.c``.

:func:`load_any` reads a board's folder and checks it, :func:`load` one that must have a debug port; :func:`names`
lists the boards that come with the project.
"""

from utvm.boards.board import AnyBoard, Board, ProcessBoard
from utvm.boards.loader import alternatives, chips, load, load_any, names, probed
from utvm.boards.parts import (
    Emulator,
    Identity,
    Kind,
    Layout,
    MemoryRegion,
    Physical,
    Preparation,
    ProbeMatch,
    Start,
    Timeouts,
    VirtualModel,
)

__all__ = [
    "AnyBoard",
    "Board",
    "Emulator",
    "Identity",
    "Kind",
    "Layout",
    "MemoryRegion",
    "Physical",
    "Preparation",
    "ProbeMatch",
    "ProcessBoard",
    "Start",
    "Timeouts",
    "VirtualModel",
    "alternatives",
    "chips",
    "load",
    "load_any",
    "names",
    "probed",
]
