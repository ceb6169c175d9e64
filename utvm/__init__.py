# SPDX-License-Identifier: Apache-2.0
"""utvm runs your trained model on a microcontroller and checks the outputs bit for bit.

The packages, in the order of a model's path:

- :mod:`utvm.compiler`: compiles a model file to a library of C sources.
- :mod:`utvm.runtime`: the C that runs on boards.
- :mod:`utvm.firmware`: links libraries and runtime into an image for one board.
- :mod:`utvm.boards`, :mod:`utvm.toolchain.compiler`: boards and cross compilers as data.
- :mod:`utvm.probe`: finds debug probes and drives them through OpenOCD.
- :mod:`utvm.virtual`: software models of boards, driven by the same OpenOCD.
- :mod:`utvm.drivers`: opens a board, physical or virtual.
- :mod:`utvm.vta`: operators for the accelerator VTA, and a model that runs them.
- :mod:`utvm.session`: runs a model on that board.
- :mod:`utvm.hil`: suites, verdicts and reports.

:func:`load` and :func:`open` are the entry points for Python programs.
"""

import sys
from typing import TYPE_CHECKING

from utvm.version import VERSION

if sys.platform == "win32":
    raise ImportError("utvm needs Linux or macOS; on Windows, install it in WSL 2 (docs/hosts.md)")

if TYPE_CHECKING:
    from pathlib import Path

    from utvm.selection import BoardKind
    from utvm.session.open_board import LoadedModel, OpenBoard

__version__ = VERSION


def open(board: str, *, kind: "BoardKind" = "auto", serial: str = "", wait: float = 0.0) -> "OpenBoard":  # noqa: A001
    """Open a board: as a context manager, or until it is closed.

    Args:
        board: name, or path of its folder; settings follow a colon.
        kind: ``physical`` requires a plugged-in board, ``virtual`` a software model; ``auto`` prefers a physical
            one.
        serial: serial number of the probe, if several are plugged in.
        wait: seconds to wait for a busy physical board.

    Raises:
        UtvmError: the board does not exist, or is not available.
    """
    # TVM and other modules are slow to import, and most commands do not need them.
    from utvm.selection import BoardSelection
    from utvm.session.open_board import OpenBoard

    return OpenBoard(BoardSelection(board, kind, serial, wait))


def load(
    model: "str | Path", board: str = "host", *, kind: "BoardKind" = "auto", serial: str = "", wait: float = 0.0
) -> "LoadedModel":
    """Compile a model and load it onto a board; the default board is a process on this computer.

    The board is open until the model is closed, as a context manager or by ``close()``. Arguments are those of
    :func:`open`.

    Raises:
        UtvmError: the model cannot be read or compiled, or the board is not available.
    """
    opened = open(board, kind=kind, serial=serial, wait=wait)
    try:
        loaded = opened.load(model)
    except BaseException:
        opened.close()
        raise
    loaded.board = opened
    return loaded
