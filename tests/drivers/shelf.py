# SPDX-License-Identifier: Apache-2.0
"""A sixth way to a board, as a package of somebody else's would bring it: one file, and its entry point.

It stands in for a board that is fetched from elsewhere: an emulated one, which it says is on a shelf.
"""

import dataclasses

from utvm.base.storage.config import Record
from utvm.boards import Board
from utvm.drivers import Connection, Driver, DriverOptions, ReachableBoard, Setup, block_of
from utvm.drivers.builtin import qemu


class _Shelf(Record):
    """What a board's file says below ``ways.shelf``."""

    place: int


def _find(board: Board, asked: DriverOptions) -> ReachableBoard | None:
    place = block_of(board, "shelf", _Shelf).place
    if asked.serial not in ("", f"SHELF-{place}"):
        return None
    emulated = qemu.WAY.find(board, DriverOptions())
    assert emulated

    def start(setup: Setup) -> Connection:
        connection = emulated.start(setup)
        connection.model, connection.serial = f"VIRTUAL board on shelf {place}", f"SHELF-{place}"
        return connection

    return dataclasses.replace(emulated, start=start, serial=f"SHELF-{place}")


WAY = Driver(
    name="shelf",
    rank=5,
    serves=lambda board: "shelf" in board.ways,
    find=_find,
    tell=lambda board: ("on a shelf", f"in place {block_of(board, 'shelf', _Shelf).place}"),
    refusal="is on a shelf: nothing else of it is here",
)
