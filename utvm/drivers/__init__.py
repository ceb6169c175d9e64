# SPDX-License-Identifier: Apache-2.0
"""Opens boards of every kind.

:func:`choose` selects a board and its driver. :func:`attach` also opens it: it locks a physical board, starts the
processes that it needs (a virtual board and OpenOCD, QEMU, the console) and stops them at the end of its ``with``
block. Other packages use a board through :class:`Connection`. A driver is a module of ``builtin/`` or of an
installed package; no other code lists them.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from utvm import boards, errors, plugins
from utvm.drivers import builtin
from utvm.drivers.connection import Connection
from utvm.drivers.driver import BoardIdentity, Driver, ReachableBoard, Say, Setup, settings_of
from utvm.selection import BoardKind, BoardSelection

__all__ = ["BoardIdentity", "Connection", "Driver", "ReachableBoard", "Setup", "all_drivers", "attach"]
__all__ += ["capabilities_of", "choose", "drivers_for", "settings_of"]

GROUP = "utvm.drivers"
"""Entry point group of the drivers in other packages."""


@functools.cache
def all_drivers() -> tuple[Driver, ...]:
    """All drivers, in the order in which they are tried."""
    known = plugins.discover(builtin, "DRIVER", GROUP, Driver).values()
    return tuple(sorted(known, key=lambda driver: (driver.rank, driver.name)))


def drivers_for(board: boards.Board) -> tuple[Driver, ...]:
    """Drivers that support a board, or the one named by its setting ``driver``."""
    known = [driver.name for driver in all_drivers()]
    for name in board.drivers:
        if name not in known:
            raise errors.ConfigError(
                f"{board.directory / 'board.yaml'}: drivers.{name}: no such driver",
                f"choose from: {', '.join(known)}; is the package that provides it installed?",
            )
    supporting = tuple(driver for driver in all_drivers() if driver.supports(board))
    name = board.settings.get(boards.DRIVER, "")
    selection = tuple(driver for driver in supporting if name in ("", driver.name))
    if supporting and not selection:
        raise errors.ConfigError(
            f"{board.name}: driver cannot be {name!r}",
            f"choose from: {', '.join(driver.name for driver in supporting)}",
        )
    return selection


def choose(board: boards.Board, selection: BoardSelection) -> ReachableBoard:
    """Select a board and its driver; nothing is started."""
    drivers = drivers_for(board)
    for driver in drivers:
        reachable = driver.find(board, selection)
        if reachable is None:
            continue
        if selection.latency_us and not driver.has_latency:
            raise errors.ConfigError(f"{board.name} {driver.refusal.partition(':')[0]}: it has no probe with a latency")
        return reachable
    if not drivers:
        raise errors.ConfigError(f"no driver supports {board.name}: its file has no data for one")
    restricted = selection.kind != "auto" or selection.serial or selection.latency_us
    hint = "leave that out" if restricted else "plug it in; ./inv board.detect lists probes"
    raise errors.ConfigError(f"{board.name} {drivers[-1].refusal}", hint)


def capabilities_of(board: boards.Board) -> frozenset[str]:
    """Capabilities of the board that is selected by default."""
    return choose(board, BoardSelection()).capabilities


@contextlib.contextmanager
def attach(
    board: boards.Board,
    kind: BoardKind = "auto",
    *,
    log_directory: Path,
    serial: str = "",
    latency_us: int = 0,
    wait: float = 0.0,
    say: Say = lambda _: None,
) -> Iterator[Connection]:
    """Open a board for the length of a ``with`` block.

    Args:
        log_directory: folder for the logs of OpenOCD, the virtual board and emulators.
        kind, serial, latency_us, wait: see :class:`utvm.selection.BoardSelection`.
        say: called with a message before waiting.
    """
    selection = BoardSelection("", kind, serial, wait, latency_us=latency_us)
    with choose(board, selection).open(log_directory, say) as connection:
        yield connection
