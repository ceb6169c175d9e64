# SPDX-License-Identifier: Apache-2.0
"""Which bitstream is in the programmable logic of an emulated board: it stays there between commands.

A physical board keeps its own until its power goes. ``cache.prune`` takes an emulated one's away.
"""

from pathlib import Path

from utvm.base.storage.cache_entries import cache_root
from utvm.base.storage.files import write_whole
from utvm.boards import Board
from utvm.errors import ConfigError


def loaded_bitstream(board: Board) -> str:
    """Return its name; nothing where there is none."""
    try:
        return _place(board).read_text(encoding="utf-8")
    except OSError:
        return ""


def remember_bitstream(board: Board, name: str) -> None:
    """Remember it."""
    place = _place(board)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, name.encode())
    except OSError as error:
        raise ConfigError(f"{place}: cannot be written: {error.strerror}", "is the disk full?") from error


def _place(board: Board) -> Path:
    return cache_root() / "logic" / board.name
