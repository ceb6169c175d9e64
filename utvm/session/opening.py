# SPDX-License-Identifier: Apache-2.0
"""The one way to a session on a board: whatever the board is, and whatever drives it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from utvm.bench import Bench, Found
from utvm.firmware import Firmware
from utvm.log import kept_in
from utvm.runtime import Executor
from utvm.session.host_driven import HostDriven
from utvm.session.rpc import RpcSession
from utvm.session.rpc_board import on_bench
from utvm.session.running import Session


def executor_for(capabilities: frozenset[str]) -> Executor:
    """Return what drives a board to run its models: its debug port, or RPC where that is all it has."""
    return "host_driven" if "debug port" in capabilities else "rpc"


@contextlib.contextmanager
def session_on(bench: Bench, firmware: Firmware) -> Iterator[Session]:
    """Put a firmware on the bench's board, and run its models by what it was built for.

    Raises:
        UtvmError: as the sessions themselves.
    """
    with contextlib.ExitStack() as stack:
        if firmware.pipe is None:
            yield stack.enter_context(HostDriven(bench, firmware))
        else:
            served = stack.enter_context(on_bench(bench, firmware))
            yield stack.enter_context(RpcSession(served, firmware.libraries))


@contextlib.contextmanager
def open_session(found: Found, firmware: Firmware, logs: Path, say: Callable[[str], None]) -> Iterator[Session]:
    """Open a board and a session on it, for the length of a ``with`` block.

    Args:
        say: receives lines for whoever waits: what the board is, before it is programmed.

    Raises:
        UtvmError: whatever went wrong on the way.
    """
    with kept_in(logs), found.opened(logs, say) as bench:
        say(bench.describe())
        with session_on(bench, firmware) as session:
            yield session
