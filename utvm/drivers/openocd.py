# SPDX-License-Identifier: Apache-2.0
"""What the ways through OpenOCD share."""

from collections.abc import Sequence

from utvm.boards import Board, Identity
from utvm.drivers.driver import Setup
from utvm.errors import BoardError
from utvm.probe.console import Console
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd

WORTH_MOVING_BY_BITBANG = 256 * 1024
"""Of :class:`utvm.drivers.Connection`: OpenOCD asks for each bit by itself: some tens of KiB/s whatever
answers.
"""


def start_openocd(
    setup: Setup, board: Board, commands: Sequence[str], config: str = ""
) -> tuple[OpenOcd, GdbClient]:
    """Start OpenOCD, and connect to it.

    Args:
        commands: what it is told beyond its script.
        config: the script's name, where it is not the usual one.
    """
    script = board.directory / config if config else board.openocd_config
    openocd = setup.stack.enter_context(
        OpenOcd(script, commands=commands, log=setup.logs / "openocd.log", port=setup.gdb_port)
    )
    gdb = setup.stack.enter_context(
        GdbClient("127.0.0.1", openocd.gdb_port, breakpoint_kind=board.cpu_row.breakpoint_kind)
    )
    return openocd, gdb


def open_console(setup: Setup, board: Board, url: str) -> Console | None:
    """Open a board's serial line, if it has one."""
    if board.line is None:
        return None
    return setup.stack.enter_context(Console(url, board.console.baud, board.console.flow_control))


def check_identity(board: str, expected: Identity, gdb: GdbClient, serial: str) -> None:
    """Refuse a board of another kind before anything is programmed into it."""
    try:
        found = int.from_bytes(gdb.read_memory(expected.address, 4), "little") & expected.mask
        said = f"says {found:#x}, not {expected.value:#x}"
    except BoardError as error:
        found, said = None, f"cannot be read: {error.message}"
    if found != expected.value:
        raise BoardError(
            f"the board at probe {serial} is not {board}: {expected.register_name} {said}",
            "name the right probe with --serial (./inv board.detect lists them), or use --virtual",
        )
