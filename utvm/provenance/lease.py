# SPDX-License-Identifier: Apache-2.0
"""The lease of a farm's board, as the processes of one run pass it to each other."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from utvm.errors import ConfigError

_VARIABLE = "UTVM_LEASE"


@dataclass
class Lease:
    """The right to use a board of a farm.

    Attributes:
        board: the host's record of the board: name, kind, serial, and the path of utvm.
        service: address, username and port for SSH.
        earlier: boards that the run had before and that gave no verdict: place, host and why.
        outcome: ``verdict`` or ``infrastructure``, for the farm's health records.
    """

    place: str
    holder: str
    waited: float
    board: Mapping[str, Any]
    service: Mapping[str, Any]
    others: int = 0
    earlier: Sequence[Mapping[str, str]] = ()
    lost: str = ""
    outcome: str = ""
    _when_lost: list[Callable[[], None]] = field(default_factory=list)

    @property
    def host(self) -> str:
        return str(self.service["address"])

    @property
    def record(self) -> dict[str, Any]:
        """``lease`` in docs/report.schema.json."""
        return {
            "place": self.place,
            "host": self.host,
            "holder": self.holder,
            "waited_s": self.waited,
            "earlier": [dict(board) for board in self.earlier],
        }

    def variables(self) -> dict[str, str]:
        """Environment variable that passes the lease to another process of the run."""
        names = {item.name for item in dataclasses.fields(self)} - {"lost", "outcome", "_when_lost"}
        return {_VARIABLE: json.dumps({name: getattr(self, name) for name in sorted(names)})}

    def when_lost(self, action: Callable[[], None]) -> None:
        """Call a function when the lease is lost, or at once if it already is."""
        self._when_lost.append(action)
        if self.lost:
            action()

    def mark_lost(self, reason: str) -> None:
        self.lost = self.lost or reason
        for action in self._when_lost:
            action()


def inherited_lease() -> Lease | None:
    """The lease that the parent process holds for this one; None without one."""
    value = os.environ.get(_VARIABLE)
    if not value:
        return None
    try:
        return Lease(**json.loads(value))
    except (ValueError, TypeError):
        raise ConfigError(f"{_VARIABLE} is not a valid lease", f"unset {_VARIABLE}: utvm sets it") from None
