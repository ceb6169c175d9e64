# SPDX-License-Identifier: Apache-2.0
"""Another driver, as a package of another author has it: one file and its entry point.

It represents a remote board: an emulated one, which it calls a board on a shelf.
"""

import dataclasses

from utvm.base.storage.config import Record
from utvm.boards import Board
from utvm.drivers import Connection, Driver, ReachableBoard, Setup, settings_of
from utvm.drivers.builtin import qemu
from utvm.selection import BoardSelection


class _Shelf(Record):
    """Settings in a board's file under ``drivers.shelf``."""

    place: int


def _find(board: Board, request: BoardSelection) -> ReachableBoard | None:
    place = settings_of(board, "shelf", _Shelf).place
    if request.serial not in ("", f"SHELF-{place}"):
        return None
    emulated = qemu.DRIVER.find(board, BoardSelection())
    assert emulated

    def start(setup: Setup) -> Connection:
        connection = emulated.start(setup)
        connection.model, connection.serial = f"VIRTUAL board on shelf {place}", f"SHELF-{place}"
        return connection

    identity = dataclasses.replace(emulated.identity, serial=f"SHELF-{place}")
    return dataclasses.replace(emulated, start=start, identity=identity)


DRIVER = Driver(
    name="shelf",
    rank=5,
    supports=lambda board: "shelf" in board.drivers,
    find=_find,
    describe=lambda board: ("on a shelf", f"in place {settings_of(board, 'shelf', _Shelf).place}"),
    refusal="is on a shelf: nothing else of it is here",
)
