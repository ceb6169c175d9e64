# SPDX-License-Identifier: Apache-2.0
"""Which bitstream is in the programmable logic of an emulated board: it stays there between commands.

A physical board keeps its own until its power goes. ``cache.prune`` takes an emulated one's away.
"""

import os
from pathlib import Path

from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import open_regular, write_whole
from utvm.boards import Board
from utvm.errors import ConfigError


def loaded_bitstream(board: Board) -> str:
    """Return its name; nothing where there is none."""
    try:
        with open(_place(board), "rb", opener=open_regular) as file:
            return os.fsdecode(file.read())
    except OSError:
        return ""


def remember_bitstream(board: Board, name: str) -> None:
    """Remember it."""
    place = _place(board)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, os.fsencode(name))
    except OSError as error:
        raise ConfigError(f"{place}: cannot be written: {error.strerror}", "is the disk full?") from error


def _place(board: Board) -> Path:
    return cache_root() / "logic" / board.name
