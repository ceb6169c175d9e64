"""What a board is, as data: one folder a board, with ``board.yaml`` and, for a chip, ``openocd.cfg``, ``port.c``.

:func:`load_any` reads a board's folder and checks it, :func:`load` one that must have a debug port; :func:`names`
lists the boards that can be named: the project's, and those in the folders of :func:`search_also`.
"""

from utvm.boards.board import AnyBoard, Board, ProcessBoard
from utvm.boards.loader import alternatives, chips, load, load_any, names, probed, project_names, split_name
from utvm.boards.parts import (
    Emulator,
    Identity,
    Kind,
    Layout,
    MemoryRegion,
    Physical,
    Preparation,
    ProbeMatch,
    Simulator,
    Start,
    Timeouts,
    VirtualModel,
)
from utvm.boards.places import PATH_VARIABLE, search_also

__all__ = [
    "PATH_VARIABLE",
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
    "Simulator",
    "Start",
    "Timeouts",
    "VirtualModel",
    "alternatives",
    "chips",
    "load",
    "load_any",
    "names",
    "probed",
    "project_names",
    "search_also",
    "split_name",
]
