# SPDX-License-Identifier: Apache-2.0
"""What ``board.serve`` does: a board as a TVM RPC server, for the stock client."""

import contextlib
import ipaddress

from utvm.base.text.names import printable
from utvm.cli.choices import ExecutorChoice
from utvm.cli.opening import served
from utvm.cli.output import OUT, logs_of
from utvm.errors import ConfigError
from utvm.selection import BoardSelection
from utvm.session.bridge import Bridge
from utvm.session.files import UPLOAD_BYTES
from utvm.tuning.measure import parse_address

_LAST_PORT = 65535


def serve_board(
    choice: BoardSelection,
    asked: ExecutorChoice,
    transport: str,
    listen: str,
    ports: tuple[int, int],
    tracker: str,
    key: str,
) -> None:
    """Compile a model, put it on a board and serve the board to TVM RPC clients until Ctrl-C.

    Args:
        transport: what RPC goes through, or an empty string for the usual one.
        listen: address of the interface to listen on.
        ports: TCP port, 0 for any free one; and the one that the tracker is told, 0 for the same.
        tracker: ``HOST:PORT`` of a TVM RPC tracker, or an empty string.
        key: the board's RPC key; empty for none, and at a tracker for its name.
    """
    if not all(0 <= port <= _LAST_PORT for port in ports):
        raise ConfigError(f"--port goes from 0 to {_LAST_PORT}", "port 0 takes any free one")
    where = parse_address(tracker) if tracker else None
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(
            served(choice, asked, logs_of("board.serve"), _log, transport, only_here=_is_only_here(listen))
        )
        bridge = Bridge(
            ready.connect,
            ready.restart,
            key=key or (choice.board if where else ""),
            packet_limit=UPLOAD_BYTES,
            host=listen,
            port=ports[0],
            tracker=where,
            announced=ports[1],
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


def _is_only_here(listen: str) -> bool:
    """Return whether only this computer's own programs reach an address."""
    try:
        return ipaddress.ip_address(listen).is_loopback
    except ValueError:
        return listen == "localhost"


def _log(line: str) -> None:
    OUT.print(printable(line))
