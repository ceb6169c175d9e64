"""What a board is, as data: one folder a board, with ``board.yaml``, ``openocd.cfg`` and ``port.c``.

:func:`load` reads a board's folder and checks it; :func:`names` lists the boards that come with the project.
"""

from utvm.boards.board import Board, Layout, MemoryRegion, ProbeMatch, ProcessBoard, Timeouts
from utvm.boards.loader import is_process, load, load_process, names

__all__ = [
    "Board",
    "Layout",
    "MemoryRegion",
    "ProbeMatch",
    "ProcessBoard",
    "Timeouts",
    "is_process",
    "load",
    "load_process",
    "names",
]
