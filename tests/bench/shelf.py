# SPDX-License-Identifier: Apache-2.0
"""A sixth way to a board, as a package of somebody else's would bring it: one file, and its entry point.

It stands in for a board that is fetched from elsewhere: an emulated one, which it says is on a shelf.
"""

import dataclasses

from utvm.bench import Asked, Bench, Found, Setup, Way, block_of
from utvm.bench.ways import qemu
from utvm.boards import Board
from utvm.config import Record


class _Shelf(Record):
    """What a board's file says below ``ways.shelf``."""

    place: int


def _find(board: Board, asked: Asked) -> Found | None:
    place = block_of(board, "shelf", _Shelf).place
    if asked.serial not in ("", f"SHELF-{place}"):
        return None
    emulated = qemu.WAY.find(board, Asked())
    assert emulated

    def start(setup: Setup) -> Bench:
        bench = emulated.start(setup)
        bench.model, bench.serial = f"VIRTUAL board on shelf {place}", f"SHELF-{place}"
        return bench

    return dataclasses.replace(emulated, start=start, serial=f"SHELF-{place}")


WAY = Way(
    name="shelf",
    rank=5,
    serves=lambda board: "shelf" in board.ways,
    find=_find,
    tell=lambda board: ("on a shelf", f"in place {block_of(board, 'shelf', _Shelf).place}"),
    refusal="is on a shelf: nothing else of it is here",
)
