# SPDX-License-Identifier: Apache-2.0
"""The one table of ways, and what is asked of it: which one serves a board, and the board itself."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from utvm import plugins
from utvm.boards import DRIVER, Board
from utvm.drivers import builtin
from utvm.drivers.connection import Connection
from utvm.drivers.driver import Driver, DriverOptions, ReachableBoard, Say
from utvm.errors import ConfigError
from utvm.selection import BoardKind

GROUP = "utvm.ways"
"""The group of entry points under which an installed package brings further ways."""


@functools.cache
def table() -> tuple[Driver, ...]:
    """Return all ways, in the order in which they are asked: the modules of ``ways``, and installed ones."""
    known = plugins.discover(builtin, "WAY", GROUP, Driver).values()
    return tuple(sorted(known, key=lambda way: (way.rank, way.name)))


def serving(board: Board) -> tuple[Driver, ...]:
    """Return the ways that a board's file has data for, or that of them which is wanted."""
    known = [way.name for way in table()]
    for name in board.ways:
        if name not in known:
            raise ConfigError(
                f"{board.directory / 'board.yaml'}: ways.{name}: there is no such way to a board",
                f"there are: {', '.join(known)}; is the package that brings it installed?",
            )
    able = tuple(way for way in table() if way.serves(board))
    driver = board.settings.get(DRIVER)
    wanted = tuple(way for way in able if driver in (None, way.name))
    if able and not wanted:
        raise ConfigError(
            f"{board.name}: driver cannot be {driver!r}", f"it can be: {', '.join(way.name for way in able)}"
        )
    return wanted


def choose(board: Board, asked: DriverOptions) -> ReachableBoard:
    """Decide which one of a board is meant, and how it is reached; nothing is started."""
    able = serving(board)
    for way in able:
        found = way.find(board, asked)
        if found is None:
            continue
        if asked.latency_us and not way.slows:
            raise ConfigError(f"{board.name} {way.refusal.partition(':')[0]}: it has no probe that could be slow")
        if asked.waits and not (way.slows and board.model.wait_states):
            raise ConfigError(
                f"{board.full_name} has no model of waits for flash here",
                "take a virtual board that has, stm32f746; a chip waits by itself",
            )
        return found
    if not able:
        raise ConfigError(f"there is no way to {board.name}: its file has data for none")
    unwished = DriverOptions(wait=asked.wait) == asked
    hint = "plug it in; ./inv board.detect shows what is found" if unwished else "leave that out"
    raise ConfigError(f"{board.name} {able[-1].refusal}", hint)


def capabilities_of(board: Board) -> frozenset[str]:
    """Return what suites may need and what is reached without any wish has; raises as :func:`choose`."""
    return choose(board, DriverOptions()).capabilities


@contextlib.contextmanager
def attach(
    board: Board,
    wish: BoardKind = "auto",
    *,
    log_directory: Path,
    serial: str = "",
    latency_us: int = 0,
    wait: float = 0.0,
    say: Say = lambda _: None,
) -> Iterator[Connection]:
    """Put a board on the bench for the length of a ``with`` block.

    Args:
        log_directory: where OpenOCD, the virtual board and emulators keep their logs.
        wish, serial, latency_us, wait: as :class:`Asked` has them.
        say: receives a line where there is something to wait for.
    """
    with choose(board, DriverOptions(wish, serial, latency_us, wait)).opened(log_directory, say) as connection:
        yield connection
