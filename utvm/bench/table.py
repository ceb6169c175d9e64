# SPDX-License-Identifier: Apache-2.0
"""The one table of ways, and what is asked of it: which one serves a board, and the board itself."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from utvm import kinds
from utvm.bench import ways
from utvm.bench.bench import Bench
from utvm.bench.way import Asked, Found, Say, Way
from utvm.boards import DRIVER, Board
from utvm.choice import Wish
from utvm.errors import ConfigError

GROUP = "utvm.ways"
"""The group of entry points under which an installed package brings further ways."""


@functools.cache
def table() -> tuple[Way, ...]:
    """Return all ways, in the order in which they are asked: the modules of ``ways``, and installed ones.

    Raises:
        ConfigError: what an installed package brings is no way, or has the name of another one.
    """
    known = kinds.found(ways, "WAY", GROUP, Way).values()
    return tuple(sorted(known, key=lambda way: (way.rank, way.name)))


def serving(board: Board) -> tuple[Way, ...]:
    """Return the ways that a board's file has data for, or that of them which is wanted.

    Raises:
        ConfigError: it has data for one that there is not, or none for the one that is wanted.
    """
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


def choose(board: Board, asked: Asked) -> Found:
    """Decide which one of a board is meant, and how it is reached; nothing is started.

    Raises:
        ConfigError: the wish cannot be told from what is plugged in, or is nothing that the board has.
        ProbeError: the probe that was asked for is not plugged in, or cannot be used.
    """
    able = serving(board)
    for way in able:
        found = way.find(board, asked)
        if found is None:
            continue
        if asked.latency_us and not way.slows:
            raise ConfigError(f"{board.name} {way.refusal.partition(':')[0]}: it has no probe that could be slow")
        if asked.waits and not (way.slows and board.model.wait_states):
            raise ConfigError(
                f"{board.spoken} has no model of waits for flash here",
                "take a virtual board that has, stm32f746; a chip waits by itself",
            )
        return found
    if not able:
        raise ConfigError(f"there is no way to {board.name}: its file has data for none")
    unwished = Asked(wait=asked.wait) == asked
    hint = "plug it in; ./inv board.detect shows what is found" if unwished else "leave that out"
    raise ConfigError(f"{board.name} {able[-1].refusal}", hint)


def capabilities_of(board: Board) -> frozenset[str]:
    """Return what suites may need and what is reached without any wish has; raises as :func:`choose`."""
    return choose(board, Asked()).capabilities


@contextlib.contextmanager
def attach(
    board: Board,
    wish: Wish = "auto",
    *,
    log_directory: Path,
    serial: str = "",
    latency_us: int = 0,
    wait: float = 0.0,
    say: Say = lambda _: None,
) -> Iterator[Bench]:
    """Put a board on the bench for the length of a ``with`` block.

    Args:
        log_directory: where OpenOCD, the virtual board and emulators keep their logs.
        wish, serial, latency_us, wait: as :class:`Asked` has them.
        say: receives a line where there is something to wait for.

    Raises:
        UtvmError: as :func:`choose` and :meth:`Found.opened`.
    """
    with choose(board, Asked(wish, serial, latency_us, wait)).opened(log_directory, say) as bench:
        yield bench
