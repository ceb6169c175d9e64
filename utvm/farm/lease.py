# SPDX-License-Identifier: Apache-2.0
"""A lease: the right to a board of a farm for a while, as the processes of one run hand it to each other."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from utvm.errors import ConfigError, ProvisionError
from utvm.farm.client import FarmClient, HelperEnded

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
    def report_entry(self) -> dict[str, Any]:
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

    def mark_lost(self, why: str) -> None:
        """Note that it is lost."""
        self.lost = self.lost or why
        for then in self._when_lost:
            then()


def inherited_lease() -> Lease | None:
    """Return the lease that this process was begun with: whoever began it keeps it. None where there is none."""
    said = os.environ.get(_VARIABLE)
    if not said:
        return None
    try:
        return Lease(**json.loads(said))
    except (ValueError, TypeError):
        raise ConfigError(f"{_VARIABLE} is no lease", "it is set for you") from None


class LeaseHolder:
    """A board of a farm, for the length of a ``with`` block: waited for, and then had.

    Args:
        address: of the coordinator, HOST:PORT.
        filters: the tags that the board must have.
        wait: seconds to wait in line; None for as long as it takes.
        log: where labgrid's own words go.
        say: is told how long the line is, and who has the boards.
        but: boards that are not wanted.
    """

    def __init__(
        self,
        address: str,
        filters: Mapping[str, str],
        wait: float | None,
        log: Path,
        say: Callable[[str], None],
        but: Collection[str] = (),
    ) -> None:
        self._farm = FarmClient(address, log, say)
        self._say = say
        self._request = {"filters": dict(filters), "wait": wait, "but": sorted(but)}
        self.lease: Lease | None = None
        self._lost = ""
        self._anew = False

    def __enter__(self) -> "LeaseHolder":
        self._begin()
        return self

    def _begin(self) -> None:
        self._lost = ""
        self._farm.on_loss = self._lose
        self._farm.begin()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._farm.on_loss = lambda why: None
            if self.lease:
                # Where the farm does not answer any more, the lease ends by its deadline.
                with contextlib.suppress(ProvisionError):
                    self._farm.call("release", outcome=self.lease.outcome)
        finally:
            self._farm.end()

    def had(self) -> Lease:
        """Wait until there is one."""
        while self.lease is None:
            self._hear()
        return self.lease

    def poll(self) -> Lease | None:
        """Return it once it is there, without waiting; raises as :meth:`had`."""
        while self.lease is None and self._farm.answered:
            self._hear()
        return self.lease

    def _hear(self) -> None:
        try:
            answer = self._farm.answer(None)
        except HelperEnded:
            if self._anew:
                raise
            # Whoever kills it while it stands in line has taken nobody's board: another one does, once.
            self._anew = True
            self._farm.end()
            self._begin()
            return
        if "ready" in answer:
            self._farm.send("lease", **self._request)
        elif "place" in answer:
            self.lease = Lease(**answer)
            if self._lost:
                self.lease.mark_lost(self._lost)
        elif "away" in answer:
            self._say(f"waiting for a host: {answer['away']}")
        elif answer["busy"]:
            held = ", ".join(f"{place} by {holder}" for place, holder in answer["busy"].items())
            self._say(f"waiting for a board, place {answer['position']} in line; held: {held}")

    def _lose(self, why: str) -> None:
        self._lost = why
        if self.lease:
            self.lease.mark_lost(why)
