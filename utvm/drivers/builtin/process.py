# SPDX-License-Identifier: Apache-2.0
"""A process on this computer as a board: it has no debug port and is started with its program."""

from utvm.boards import Board
from utvm.drivers import connection, driver
from utvm.selection import BoardSelection


def _find(board: Board, selection: BoardSelection) -> driver.ReachableBoard | None:
    if selection.kind != "auto" or selection.serial:
        return None

    # A model of its accelerator is linked into its programs.
    caps = frozenset({"counter", *(f"accelerator {name}" for name in board.accelerator)})

    def start(setup: driver.Setup) -> connection.Connection:
        return connection.Connection(board, "process", board.title, caps, setup.logs)

    return driver.ReachableBoard(board, driver.BoardIdentity(board.full_name, "process"), caps, "gcc", start)


DRIVER = driver.Driver(
    name="process",
    rank=50,
    supports=lambda board: board.kind == "process",
    find=_find,
    describe=lambda _: ("console", "its standard input and output"),
    refusal="is a process: it is neither plugged in nor virtual",
)
