# SPDX-License-Identifier: Apache-2.0
"""utvm takes a trained model to a microcontroller board and proves, on that board, that it works.

The rooms, in the order a model passes through them:

- :mod:`utvm.compiler`: a model file becomes a library of C sources.
- :mod:`utvm.runtime`: the C that runs on boards.
- :mod:`utvm.firmware`: libraries and runtime become an image for one board.
- :mod:`utvm.boards`, :mod:`utvm.toolchain.compiler`: what a board and a cross compiler are, as data.
- :mod:`utvm.probe`: finding debug probes and driving them through OpenOCD.
- :mod:`utvm.virtual`: software models of boards, driven by the same OpenOCD.
- :mod:`utvm.drivers`: puts a board on the bench, physical or virtual.
- :mod:`utvm.vta`: operators for the accelerator VTA, and a model that runs them.
- :mod:`utvm.session`: runs a model on that board.
- :mod:`utvm.hil`: suites, verdicts and reports.

:func:`open` is the door for Python programs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from utvm.selection import BoardKind
    from utvm.session.open_board import OpenBoard

__version__ = "0.2.0"


def open(board: str, *, kind: "BoardKind" = "auto", serial: str = "", wait: float = 0.0) -> "OpenBoard":  # noqa: A001
    """Open a board: for a ``with`` block, or until it is closed.

    Args:
        board: its name, or the path of its folder; settings behind a colon.
        kind: ``physical`` insists on one that is plugged in, ``virtual`` on a software model; ``auto`` takes the
            first where there is one.
        serial: of the probe, where several are plugged in.
        wait: seconds to wait in line for a physical board that somebody else uses.

    Raises:
        UtvmError: there is no such board, or none of it can be had.
    """
    # TVM and much else takes long to import, and most of utvm does without.
    from utvm.drivers import DriverOptions
    from utvm.session.open_board import OpenBoard

    return OpenBoard(board, DriverOptions(kind, serial, wait=wait))
