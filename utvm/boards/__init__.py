# SPDX-License-Identifier: Apache-2.0
"""Boards as data: one folder a board, with ``board.yaml`` and, for a chip, ``openocd.cfg`` and ``port.c``.

:func:`load` reads and checks a board's folder, :func:`load_chip` one that must have a memory map; :func:`names`
lists the boards of the project and of the board path.
"""

from utvm.boards.board import DRIVER, Board
from utvm.boards.loader import (
    PATH_VARIABLE,
    alternatives,
    chips,
    load,
    load_chip,
    names,
    probe_boards,
    project_names,
    set_board_path,
)
from utvm.boards.parts import (
    Emulator,
    Identity,
    JtagModel,
    Kind,
    Layout,
    MemoryRegion,
    Physical,
    Preparation,
    ProbeMatch,
    SpikePart,
    Start,
    Timeouts,
    VirtualModel,
)

__all__ = [
    "DRIVER",
    "PATH_VARIABLE",
    "Board",
    "Emulator",
    "Identity",
    "JtagModel",
    "Kind",
    "Layout",
    "MemoryRegion",
    "Physical",
    "Preparation",
    "ProbeMatch",
    "SpikePart",
    "Start",
    "Timeouts",
    "VirtualModel",
    "alternatives",
    "chips",
    "load",
    "load_chip",
    "names",
    "probe_boards",
    "project_names",
    "set_board_path",
]
