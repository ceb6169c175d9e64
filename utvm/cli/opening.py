# SPDX-License-Identifier: Apache-2.0
"""Boards of a command line: found, checked, and opened with a model on them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm import boards, firmware
from utvm.base.log.setup import log_into
from utvm.cli.choices import CompiledChoice
from utvm.cli.compiling import compile_named
from utvm.cli.output import OUT
from utvm.compiler import Library
from utvm.drivers import Connection, ReachableBoard, choose
from utvm.errors import ConfigError
from utvm.firmware import Firmware
from utvm.runtime import Executor
from utvm.selection import BoardSelection
from utvm.session.board_holder import executor_for
from utvm.session.rpc_board import RpcBoard, start_rpc
from utvm.session.served import ModuleBoard


def find(where: BoardSelection) -> ReachableBoard:
    """Find the selected board; nothing is started."""
    return choose(boards.load(where.board), where)


def find_debugged(where: BoardSelection) -> ReachableBoard:
    """Find the selected board, and refuse one without a debug port."""
    found = find(where)
    if "debug port" not in found.capabilities:
        raise ConfigError(
            f"{found.board.name} has no debug port, and this command goes through one",
            "take a board that has, virtual ones too: --board stm32f746; ./inv board.list shows all",
        )
    return found


def check_counts(found: ReachableBoard) -> None:
    """Refuse a board without a counter, for a command that is about counts."""
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
    """Build the firmware that runs libraries on a board, by default with the executor that suits the board."""
    chosen = executor or executor_for(found.capabilities)
    return firmware.build(found.board, libraries, chosen, pipe=pipe, in_ram=in_ram, able=found.capabilities)


def print_use(image: Firmware) -> None:
    """Print how much of the board's memory an image takes."""
    for name, used in image.region_use().items():
        size = image.board.region(name).size
        OUT.print(f"{name}: {used:,} of {size:,} bytes, {100 * used / size:.1f} %")


@dataclass(frozen=True)
class Opened:
    """A model on a board that answers RPC."""

    board: RpcBoard
    library: Library
    image: Firmware


@contextlib.contextmanager
def _opened_for_rpc(
    where: BoardSelection, choice: CompiledChoice, logs: Path, log: Callable[[str], None], transport: str
) -> Iterator[tuple[Connection, Firmware]]:
    """Compile a model, link it with the RPC server, and open a board for it."""
    found = find(where)
    with log_into(logs):
        library = compile_named(found.board, choice)
        image = image_for(found, [library], "rpc", transport)
        with found.open(logs, log) as connection:
            yield connection, image


@contextlib.contextmanager
def opened(
    where: BoardSelection, choice: CompiledChoice, logs: Path, log: Callable[[str], None]
) -> Iterator[Opened]:
    """Compile a model and flash it with the RPC server, for the length of a ``with`` block; ``log`` receives the
    board's log.
    """
    with (
        _opened_for_rpc(where, choice, logs, log, "") as (connection, image),
        start_rpc(connection, image, log) as ready,
    ):
        yield Opened(ready, image.libraries[0], image)


@contextlib.contextmanager
def served(
    where: BoardSelection,
    choice: CompiledChoice,
    logs: Path,
    log: Callable[[str], None],
    transport: str,
    *,
    only_own: bool,
) -> Iterator[ModuleBoard]:
    """As :func:`opened`, for clients who may upload modules.

    Args:
        transport: of RPC; by default the console, or a process's streams.
        only_own: all clients are this user's. A board that is a process refuses the modules of others.
    """
    with (
        _opened_for_rpc(where, choice, logs, log, transport) as (connection, image),
        ModuleBoard(connection, image, log, modules=only_own or connection.kind != "process") as ready,
    ):
        yield ready
