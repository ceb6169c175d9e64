# SPDX-License-Identifier: Apache-2.0
"""A lease: the right to a board of a farm for a while, as the processes of one run hand it to each other."""

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
    """The right to a board of a farm.

    Attributes:
        place: what the farm calls it.
        holder: who has it, as labgrid tells everybody.
        waited: seconds in line.
        board: what its host says of it: name, kind, serial and where utvm is there.
        service: where to log in: address, username, port.
        others: how many more boards the wish fits that are well and there.
        earlier: boards that the run had before, and that gave no verdict: place, host and why.
        lost: why it is no longer ours; empty while it is.
        outcome: of the run, for who looks after the boards: ``verdict`` or ``infrastructure``.
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
        """Where its board is: what ssh is told."""
        return str(self.service["address"])

    @property
    def told(self) -> dict[str, Any]:
        """What a report says of it: ``lease`` in docs/report.schema.json."""
        return {
            "place": self.place,
            "host": self.host,
            "holder": self.holder,
            "waited_s": self.waited,
            "earlier": [dict(each) for each in self.earlier],
        }

    def failed(self, why: str) -> tuple[Mapping[str, str], ...]:
        """Return what ``earlier`` of the next one is, where this one gave no verdict: the first line of why."""
        brief = why.partition("\n")[0].rstrip(":")
        return (*self.earlier, {"place": self.place, "host": self.host, "why": brief})

    def variables(self) -> dict[str, str]:
        """Return the variable by which another process of the run knows it."""
        known = {each.name for each in dataclasses.fields(self)} - {"lost", "outcome", "_when_lost"}
        return {_VARIABLE: json.dumps({name: getattr(self, name) for name in sorted(known)})}

    def when_lost(self, then: Callable[[], None]) -> None:
        """Have something done as soon as it is lost: at once, where it is."""
        self._when_lost.append(then)
        if self.lost:
            then()

    def lose(self, why: str) -> None:
        """Note that it is lost."""
        self.lost = self.lost or why
        for then in self._when_lost:
            then()


def handed() -> Lease | None:
    """Return the lease that this process was begun with: whoever began it keeps it. None where there is none."""
    said = os.environ.get(_VARIABLE)
    if not said:
        return None
    try:
        return Lease(**json.loads(said))
    except (ValueError, TypeError):
        raise ConfigError(f"{_VARIABLE} is no lease", "it is set for you") from None
