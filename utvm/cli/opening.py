# SPDX-License-Identifier: Apache-2.0
"""What the options say of the board, for the commands that open one."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, firmware
from utvm.base.log.setup import log_into
from utvm.cli.choices import ExecutorChoice
from utvm.cli.model_library import compile_named
from utvm.compiler import Library
from utvm.drivers import Connection, ReachableBoard, choose
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.runtime import Executor
from utvm.selection import BoardSelection
from utvm.session.board_holder import executor_for
from utvm.session.rpc import RpcBoard, start_rpc
from utvm.session.served import ModuleBoard


def find(where: BoardSelection) -> ReachableBoard:
    """Decide which one of the board is meant; nothing is started."""
    return choose(boards.load(where.board), where)


def find_debugged(where: BoardSelection) -> ReachableBoard:
    """Decide as :func:`find`, and refuse a board that nobody can look into."""
    found = find(where)
    if "debug port" not in found.capabilities:
        raise ConfigError(
            f"{found.board.name} has no debug port, and this command goes through one",
            "take a board that has, virtual ones too: --board stm32f746; ./inv board.list shows all",
        )
    return found


def check_counts(found: ReachableBoard) -> None:
    """Refuse a board on which nobody counts, for a command that is about counts."""
    if found.board.cycle_counter == "none" or {"debug port"} == found.capabilities & {"debug port", "counter"}:
        raise ConfigError(
            f"{found.board.name} has no counter, and this command is about what it counts",
            "model.run and model.eval take it; cycle_counter: systick counts on a Cortex-M that has SysTick",
        )


def image_for(
    found: ReachableBoard,
    libraries: list[Library],
    executor: Executor | None = None,
    pipe: str = "",
    in_ram: bool = False,
) -> Firmware:
    """Build what runs libraries on a board.

    Args:
        executor: by default what drives that board to run models.
        pipe, in_ram: as :func:`utvm.firmware.build`.
    """
    chosen = executor or executor_for(found.capabilities)
    return firmware.build(found.board, libraries, chosen, pipe=pipe, in_ram=in_ram, able=found.capabilities)


@dataclass(frozen=True)
class Opened:
    """A model on a board that answers RPC.

    Attributes:
        clock_hz: what the board's cycle counter counts in a second.
    """

    board: RpcBoard
    library: Library
    image: Firmware
    clock_hz: int


@contextlib.contextmanager
def _programmed(
    where: BoardSelection, asked: ExecutorChoice, logs: Path, log: Callable[[str], None], transport: str
) -> Iterator[tuple[Connection, Firmware]]:
    """Compile a model, link it with the RPC server, and have a board for it."""
    found = find(where)
    with log_into(logs):
        library = compile_named(found.board, asked)
        image = image_for(found, [library], "rpc", transport)
        with found.open(logs, log) as connection:
            yield connection, image


@contextlib.contextmanager
def opened(
    where: BoardSelection, asked: ExecutorChoice, logs: Path, log: Callable[[str], None], transport: str = ""
) -> Iterator[Opened]:
    """Compile a model and put it with the RPC server on a board, for the length of a ``with`` block.

    Args:
        log: receives what the board logs.
        transport: what RPC goes through; by default the console, or a process's streams.
    """
    with (
        _programmed(where, asked, logs, log, transport) as (connection, image),
        start_rpc(connection, image, log) as ready,
    ):
        yield Opened(ready, image.libraries[0], image, connection.board.clock_hz)


@contextlib.contextmanager
def served(
    where: BoardSelection,
    asked: ExecutorChoice,
    logs: Path,
    log: Callable[[str], None],
    transport: str,
    *,
    only_own: bool,
) -> Iterator[ModuleBoard]:
    """As :func:`opened`, for clients who may upload modules.

    Args:
        only_own: all of them are this user's own. On a board that is a process, nobody else's modules run.
    """
    with (
        _programmed(where, asked, logs, log, transport) as (connection, image),
        ModuleBoard(connection, image, log, modules=only_own or connection.kind != "process") as ready,
    ):
        yield ready
