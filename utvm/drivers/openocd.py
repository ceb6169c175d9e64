# SPDX-License-Identifier: Apache-2.0
"""Functions of the drivers that use OpenOCD."""

import socket
from collections.abc import Sequence

from utvm.boards import Board, Identity
from utvm.drivers.driver import Setup
from utvm.errors import BoardError
from utvm.probe.console import Console
from utvm.probe.gdb import GdbClient
from utvm.probe.openocd import OpenOcd

WORTH_MOVING_BY_BITBANG = 256 * 1024
"""Of :class:`utvm.drivers.Connection`: OpenOCD transfers bit by bit: some tens of KiB/s.
"""


def start_openocd(
    setup: Setup, board: Board, commands: Sequence[str], config: str = "", within: Sequence[str] = ()
) -> tuple[OpenOcd, GdbClient]:
    """Start OpenOCD, and connect to it.

    Args:
        commands: what it is told beyond its script.
        config: the script's name, where it is not the usual one.
        within: command that runs it elsewhere, to stand before its own.
    """
    script = board.directory / config if config else board.openocd_config
    openocd = setup.stack.enter_context(
        OpenOcd(script, commands=commands, log=setup.logs / "openocd.log", within=within)
    )
    gdb = setup.stack.enter_context(GdbClient(openocd.gdb, breakpoint_kind=board.cpu_row.breakpoint_kind))
    return openocd, gdb


def open_console(setup: Setup, board: Board, line: str | socket.socket) -> Console | None:
    """Open a board's serial line, if it has one: its URL, or the socket that it is."""
    if board.line is None:
        return None
    return setup.stack.enter_context(Console(line, board.console.baud, board.console.flow_control))


def check_identity(board: str, expected: Identity, gdb: GdbClient, serial: str) -> None:
    """Raise BoardError if the chip's identity register has another value."""
    try:
        value = int.from_bytes(gdb.read_memory(expected.address, 4), "little") & expected.mask
        mismatch = f"says {value:#x}, not {expected.value:#x}"
    except BoardError as error:
        value, mismatch = None, f"cannot be read: {error.message}"
    if value != expected.value:
        raise BoardError(
            f"the board at probe {serial} is not {board}: {expected.register_name} {mismatch}",
            "name the right probe with --serial (./inv board.detect lists them), or use --virtual",
        )
