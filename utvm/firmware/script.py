# SPDX-License-Identifier: Apache-2.0
"""Linker scripts: an image's sections in the regions that the board's data names, or at addresses of our own."""

from collections.abc import Collection, Mapping

from utvm.base.text.quoting import linker_name
from utvm.boards import Board
from utvm.firmware.sources import render

# What start-up code forbids below a stack: a region of the core's memory protection, as large as its alignment.
_GUARD_BYTES = 256


def by_region(board: Board) -> str:
    """Return the script for an image that starts by itself: each section in the region that the layout names."""
    regions = [board.region(name) for name in dict.fromkeys(board.layout.regions)]
    return _script(board, regions=regions, addresses={}, constants=(), heap=())


def by_address(
    board: Board,
    addresses: Mapping[str, int],
    constants: Collection[str] = (),
    heap: tuple[int, int] = (0, 0),
) -> str:
    """Return the script for an image that a debugger loads.

    Args:
        addresses: section name to address; a section without one lies anywhere.
        constants: names of read-only sections that are not to become a part of ``.rodata``.
        heap: where memory for clients begins and ends.
    """
    return _script(board, regions=(), addresses=addresses, constants=constants, heap=heap)


def _script(board: Board, **values: object) -> str:
    return render(
        "linker.ld.j2",
        board=board,
        fault_stack_size=board.cpu_row.handler_stack,
        guard_size=_GUARD_BYTES if board.guards_stack else 0,
        linker_name=linker_name,
        **values,
    )
