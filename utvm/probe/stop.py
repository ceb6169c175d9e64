# SPDX-License-Identifier: Apache-2.0
"""Why a target stopped, as a GDB server tells it.

Source: GDB manual, section "Stop Reply Packets".
"""

from dataclasses import dataclass
from typing import Literal

from utvm.errors import ProbeError

Access = Literal["write", "read", "access"]

_WATCH_STOPS: dict[str, Access] = {"watch": "write", "rwatch": "read", "awatch": "access"}


@dataclass(frozen=True)
class Stop:
    """Why the target stopped.

    Attributes:
        signal: number of the signal the server reports: 2 interrupted, 5 breakpoint, watchpoint or step.
        watchpoint: kind of the watchpoint that was hit, or None.
        address: data address of that watchpoint, or None.
    """

    signal: int
    watchpoint: Access | None = None
    address: int | None = None


def parse_stop(packet: bytes) -> Stop:
    """Return what a ``T`` or ``S`` packet says."""
    try:
        signal = int(packet[1:3], 16)
        for pair in packet[3:].decode(errors="replace").split(";"):
            key, _, value = pair.partition(":")
            if key in _WATCH_STOPS:
                return Stop(signal, _WATCH_STOPS[key], int(value, 16))
    except ValueError as error:
        raise ProbeError(f"the GDB server sent a malformed stop reply: {packet[:60]!r}") from error
    return Stop(signal)
