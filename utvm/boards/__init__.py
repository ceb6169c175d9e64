# SPDX-License-Identifier: Apache-2.0
"""What a board is, as data: one folder a board, with ``board.yaml`` and, for a chip, ``openocd.cfg``, ``port.c``.

:func:`load` reads a board's folder and checks it, :func:`load_chip` one that must have a memory map; :func:`names`
lists the boards that can be named: the project's, and those in the folders of :func:`set_board_path`.
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
