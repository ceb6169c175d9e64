# SPDX-License-Identifier: Apache-2.0
"""``board.serve``, and boards that serve RPC for other commands."""

import contextlib
import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from utvm import compiler, drivers, errors, firmware, selection
from utvm.base.log import log_into
from utvm.base.process.peer import access_note
from utvm.base.text.quoting import printable
from utvm.cli.choices import CompiledChoice
from utvm.cli.compiling import compile_choice, find, image_for
from utvm.cli.output import OUT, logs_of, show_progress
from utvm.session import rpc, served
from utvm.session.bridge import Bridge
from utvm.tuning.measure import parse_address

_LAST_PORT = 65535


@dataclass(frozen=True)
class ModelOnBoard:
    """A model on a board that serves RPC."""

    board: rpc.RpcBoard
    library: compiler.Library
    image: firmware.Firmware


@contextlib.contextmanager
def _open_with_server(
    where: selection.BoardSelection, choice: CompiledChoice, logs: Path, log: Callable[[str], None], transport: str
) -> Iterator[tuple[drivers.Connection, firmware.Firmware]]:
    """Compile a model, link it with the RPC server, and open a board for it."""
    reachable = find(where)
    with log_into(logs):
        library = compile_choice(reachable.board, choice)
        with show_progress("linking and connecting") as step:
            image = image_for(reachable, [library], "rpc", transport)
            with reachable.open(logs, log) as connection:
                step("")
                yield connection, image


@contextlib.contextmanager
def open_for_rpc(
    where: selection.BoardSelection, choice: CompiledChoice, logs: Path, log: Callable[[str], None]
) -> Iterator[ModelOnBoard]:
    """Compile a model and flash it with the RPC server, as a context manager; ``log`` receives the board's log."""
    with (
        _open_with_server(where, choice, logs, log, "") as (connection, image),
        show_progress("flashing") as step,
        rpc.start_rpc(connection, image, log) as board,
    ):
        step("")
        yield ModelOnBoard(board, image.libraries[0], image)


@contextlib.contextmanager
def open_for_modules(
    where: selection.BoardSelection,
    choice: CompiledChoice,
    logs: Path,
    log: Callable[[str], None],
    transport: str,
    *,
    only_own: bool,
) -> Iterator[served.ModuleBoard]:
    """As :func:`open_for_rpc`, for clients who may upload modules.

    Args:
        transport: RPC transport; by default the console, or a process's streams.
        only_own: whether all clients are this user's; else a process board refuses modules.
    """
    with (
        _open_with_server(where, choice, logs, log, transport) as (connection, image),
        served.ModuleBoard(connection, image, log, modules=only_own or connection.kind != "process") as board,
    ):
        yield board


def serve_board(
    model: CompiledChoice,
    *,
    listen: str,
    port: int,
    tracker: str,
    announce: int,
    key: str,
    anyone: bool,
    transport: str,
    where: selection.BoardSelection,
) -> None:
    """Compile a model, flash it to a board and serve the board to TVM RPC clients until Ctrl-C.

    Args:
        port: TCP port, 0 for any free one.
        announce: port that the tracker gives to clients; 0 for the same.
        key: the board's RPC key; by default none, or its name with a tracker.
    """
    if not 0 <= port <= _LAST_PORT or not 0 <= announce <= _LAST_PORT:
        raise errors.ConfigError(f"--port goes from 0 to {_LAST_PORT}", "port 0 takes any free one")
    if not anyone and not _is_loopback(listen):
        raise errors.ConfigError(
            f"--listen {listen} can be reached from other computers",
            "--anyone allows that: the protocol has no passwords, and whoever connects owns the board",
        )
    address: Path | tuple[str, int] | None = None
    if tracker:
        path = tracker.removeprefix("unix:")
        address = parse_address(tracker) if path == tracker else Path(path)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            open_for_modules(where, model, logs_of("board.serve"), _log, transport, only_own=not anyone)
        )
        bridge = Bridge(
            server.connect,
            server.restart,
            key=key or (where.board if address else ""),
            packet_limit=served.UPLOAD_BYTES,
            host=listen,
            port=port,
            anyone=anyone,
            tracker=address,
            announced=announce,
            log=_log,
            check=server.board.check,
        )
        OUT.print(server.board.description)
        if server.board.unit == "instructions":
            OUT.print("a VIRTUAL board has no time: time_evaluator tells clients a second for each instruction")
        # Ctrl-C must work as soon as the line below announces it.
        with contextlib.suppress(KeyboardInterrupt):
            client = f"key {bridge.key}" if bridge.key else "any client"
            OUT.print(f"serving on {listen}:{bridge.port}, {client}; {access_note(anyone=anyone)}; Ctrl-C ends it")
            bridge.serve()


def _is_loopback(listen: str) -> bool:
    try:
        return ipaddress.ip_address(listen).is_loopback
    except ValueError:
        return listen == "localhost"


def _log(line: str) -> None:
    OUT.print(printable(line))
