# SPDX-License-Identifier: Apache-2.0
"""A process on this computer as a board: it has no debug port and is started with its program."""

from utvm import drivers
from utvm.boards import Board
from utvm.selection import BoardSelection


def _find(board: Board, selection: BoardSelection) -> drivers.ReachableBoard | None:
    if selection.kind != "auto" or selection.serial:
        return None

    # A model of its accelerator is linked into its programs.
    caps = frozenset({"counter", *(f"accelerator {name}" for name in board.accelerator)})

    def start(setup: drivers.Setup) -> drivers.Connection:
        return drivers.Connection(board, "process", board.title, caps, setup.logs)

    return drivers.ReachableBoard(board, drivers.BoardIdentity(board.full_name, "process"), caps, "gcc", start)


DRIVER = drivers.Driver(
    name="process",
    rank=50,
    supports=lambda board: board.kind == "process",
    find=_find,
    describe=lambda _: ("console", "its standard input and output"),
    refusal="is a process: it is neither plugged in nor virtual",
)
