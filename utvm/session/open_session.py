# SPDX-License-Identifier: Apache-2.0
"""The one way to a session on a board: whatever the board is, and whatever drives it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from utvm.base.log.setup import log_into
from utvm.drivers import Connection, ReachableBoard
from utvm.firmware import Firmware
from utvm.runtime import Executor
from utvm.session.host_driven import HostDriven
from utvm.session.rpc import RpcSession
from utvm.session.rpc_board import on_bench
from utvm.session.running import Session


def executor_for(capabilities: frozenset[str]) -> Executor:
    """Return what drives a board to run its models: its debug port, or RPC where that is all it has."""
    return "host_driven" if "debug port" in capabilities else "rpc"


@contextlib.contextmanager
def session_on(connection: Connection, firmware: Firmware) -> Iterator[Session]:
    """Put a firmware on the bench's board, and run its models by what it was built for."""
    with contextlib.ExitStack() as stack:
        if firmware.pipe is None:
            yield stack.enter_context(HostDriven(connection, firmware))
        else:
            served = stack.enter_context(on_bench(connection, firmware))
            yield stack.enter_context(RpcSession(served, firmware.libraries))


@contextlib.contextmanager
def open_session(
    found: ReachableBoard, firmware: Firmware, logs: Path, say: Callable[[str], None]
) -> Iterator[Session]:
    """Open a board and a session on it, for the length of a ``with`` block.

    Args:
        say: receives lines for whoever waits: what the board is, before it is programmed.
    """
    with log_into(logs), found.opened(logs, say) as connection:
        say(connection.describe())
        with session_on(connection, firmware) as session:
            yield session
