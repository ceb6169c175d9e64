# SPDX-License-Identifier: Apache-2.0
"""What ``board.serve`` does: a board as a TVM RPC server, for the stock client."""

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from utvm import runtime
from utvm.choice import BoardChoice
from utvm.cli.choices import ExecutorChoice
from utvm.cli.opening import opened
from utvm.cli.output import OUT, logs_of
from utvm.errors import ConfigError
from utvm.names import printable
from utvm.session.bridge import Bridge
from utvm.session.files import UPLOAD_BYTES, FilesLink
from utvm.session.rpc_board import RpcBoard
from utvm.session.worker import BoardLink

_LAST_PORT = 65535


def serve_board(
    choice: BoardChoice, asked: ExecutorChoice, transport: str, listen: str, port: int, tracker: str, key: str
) -> None:
    """Compile a model, put it on a board and serve the board to TVM RPC clients until Ctrl-C.

    Args:
        transport: what RPC goes through, or an empty string for the usual one.
        listen: address of the interface to listen on.
        port: TCP port, 0 for any free one.
        tracker: ``HOST:PORT`` of a TVM RPC tracker, or an empty string.
        key: the board's RPC key; empty for none, and at a tracker for its name.

    Raises:
        UtvmError: whatever went wrong on the way.
    """
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"--port goes from 0 to {_LAST_PORT}", "port 0 takes any free one")
    where = _address(tracker) if tracker else None
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(opened(choice, asked, logs_of("board.serve"), _log, transport))
        connect, restart, packet_limit = _with_files(ready.board, stack)
        bridge = Bridge(
            connect,
            restart,
            key=key or (choice.board if where else ""),
            packet_limit=packet_limit,
            host=listen,
            port=port,
            tracker=where,
            log=_log,
            check=ready.board.check,
        )
        OUT.print(ready.board.description)
        if ready.board.unit == "instructions":
            OUT.print("a VIRTUAL board has no time: time_evaluator tells clients a second for each instruction")
        # From the line on that promises it, not only while it serves.
        with contextlib.suppress(KeyboardInterrupt):
            whom = f"key {bridge.key}" if bridge.key else "any client"
            OUT.print(f"serving on {listen}:{bridge.port}, {whom}; Ctrl-C ends it")
            bridge.serve()


def _with_files(
    board: RpcBoard, stack: contextlib.ExitStack
) -> tuple[Callable[[], BoardLink], Callable[[], BoardLink], int]:
    """Return how a session with a board begins, and after trouble, and the longest packet of a client.

    Bitstreams are uploaded to a board that has logic for them.
    """
    limit, program = runtime.RPC_PACKET_BYTES, board.program_logic
    if program is None:
        return board.connect, board.restart, limit
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

    def begun(begin: Callable[[], BoardLink]) -> BoardLink:
        return FilesLink(begin(), program, folder, limit)

    return partial(begun, board.connect), partial(begun, board.restart), UPLOAD_BYTES


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        raise ConfigError(f"--tracker {text!r} is no HOST:PORT", "for instance 127.0.0.1:9190")
    return host, int(port)


def _log(line: str) -> None:
    OUT.print(printable(line))
