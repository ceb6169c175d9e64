# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that replaces the board by a FakeConnection, to test the handling of failures.

The environment variable ``FAKE_ATTACH`` has the result of each attempt to attach, comma-separated: ``ok``, ``gone``,
``busy`` or ``no files``; the last one is repeated. ``FAKE_RELEASE`` is the duration of the release in seconds;
``FAKE_LOG`` is a file that records every attachment and release.
"""

import errno
import functools
import os
import time
from pathlib import Path

from utvm.boards import Board
from utvm.drivers import BoardIdentity, ReachableBoard, Setup
from utvm.errors import BoardError, ProbeError
from utvm.selection import BoardSelection
from utvm.session import board_holder


class FakeConnection:
    """The part of a connection that the plugin uses; a test can make it fail."""

    def __init__(self, board: Board, number: int) -> None:
        self.board = board
        self.number = number
        self.kind = "virtual"
        self.probe = "fake probe"
        self.serial = "FAKE-1"
        self.has_debug_port = True
        self.console = None
        self.openocd_died = False
        self.silent = False
        self.resets = 0

    def describe(self) -> str:
        return f"{self.board.name}: VIRTUAL board, a fake"

    def check(self) -> None:
        if self.openocd_died:
            raise ProbeError("OpenOCD ended unexpectedly", "look at its log")

    def read_memory(self, address: int, size: int) -> bytes:
        if self.silent:
            raise BoardError(f"no answer at {address:#x}")
        return bytes(size)

    def clear_breakpoints(self) -> None:
        pass

    def reset(self, *, halt: bool) -> None:
        assert halt
        self.resets += 1


def _log(text: str) -> None:
    with Path(os.environ["FAKE_LOG"]).open("a", encoding="utf-8") as log:
        log.write(text + "\n")


_attempts = 0


def _start(board: Board, setup: Setup) -> FakeConnection:
    global _attempts  # noqa: PLW0603  one process, one fake board
    script = os.environ.get("FAKE_ATTACH", "ok").split(",")
    result = script[min(_attempts, len(script) - 1)]
    _attempts += 1
    if result == "gone":
        raise ProbeError("no device found", "plug it in")
    if result == "no files":
        raise OSError(errno.EMFILE, "Too many open files")
    if result == "busy":
        raise BoardError(f"{board.name} is busy, held by pid 1 (since 2026-01-01)", "wait")
    _log("attached")
    setup.stack.callback(_log, "released")
    # Ending OpenOCD takes a moment.
    setup.stack.callback(time.sleep, float(os.environ.get("FAKE_RELEASE", "0")))
    return FakeConnection(board, _attempts)


def _choose(board: Board, _request: BoardSelection) -> ReachableBoard:
    start = functools.partial(_start, board)
    identity = BoardIdentity(board.full_name, "virtual", serial=board.model.serial_number)
    return ReachableBoard(board, identity, board.capabilities, "openocd", start)


def pytest_configure() -> None:
    board_holder.choose = _choose  # type: ignore[assignment]
