# SPDX-License-Identifier: Apache-2.0
"""A lease: the right to use a board of a farm for a while; and the lease holder, which requests and keeps it."""

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
    """The right to use a board of a farm.

    Attributes:
        place: its name in the farm.
        holder: the holder's name in labgrid.
        waited: seconds spent in the queue.
        board: its host's record of it: name, kind, serial number, and the checkout there.
        service: address, username and port for ssh.
        others: number of further healthy boards that match the request.
        earlier: boards that this run had before and that gave no verdict: place, host and reason.
        lost: why the lease was lost; empty while it is held.
        outcome: of the run: ``verdict`` or ``infrastructure``.
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
        """Address of the board's host, for ssh."""
        return str(self.service["address"])

    @property
    def report_entry(self) -> dict[str, Any]:
        """Its entry in reports: ``lease`` in docs/report.schema.json."""
        return {
            "place": self.place,
            "host": self.host,
            "holder": self.holder,
            "waited_s": self.waited,
            "earlier": [dict(attempt) for attempt in self.earlier],
        }

    def variables(self) -> dict[str, str]:
        """Environment variable that hands the lease to another process of the run."""
        names = {field.name for field in dataclasses.fields(self)} - {"lost", "outcome", "_when_lost"}
        return {_VARIABLE: json.dumps({name: getattr(self, name) for name in sorted(names)})}

    def when_lost(self, action: Callable[[], None]) -> None:
        """Run an action as soon as the lease is lost."""
        self._when_lost.append(action)
        if self.lost:
            action()

    def mark_lost(self, reason: str) -> None:
        """Mark the lease as lost; the holder stops its run."""
        self.lost = self.lost or reason
        for action in self._when_lost:
            action()


def inherited_lease() -> Lease | None:
    """Lease that the parent process holds and handed to this one, or None."""
    text = os.environ.get(_VARIABLE)
    if not text:
        return None
    try:
        return Lease(**json.loads(text))
    except (ValueError, TypeError):
        raise ConfigError(f"{_VARIABLE} is not a lease", "unset it: utvm sets it for its own processes") from None


class LeaseHolder:
    """A board of a farm, for the length of a ``with`` block: queued for, then leased.

    A board that gives no verdict is exchanged for another one, once: :meth:`retry`.

    Args:
        address: of the coordinator, HOST:PORT.
        filters: the tags that the board must have.
        wait: seconds to wait in the queue; None for no limit.
        log: file for labgrid's own messages.
        say: receives the position in the queue, and who holds the boards.

    Attributes:
        earlier: boards that gave no verdict: place, host and reason.
    """

    def __init__(
        self,
        address: str,
        filters: Mapping[str, str],
        wait: float | None,
        log: Path,
        say: Callable[[str], None],
    ) -> None:
        self._farm = FarmClient(address, log, say)
        self._filters, self._wait, self._say = filters, wait, say
        self._excluded: Collection[str] = ()
        self.lease: Lease | None = None
        self.earlier: tuple[Mapping[str, str], ...] = ()
        self._lost = ""
        self._restarted = False

    def __enter__(self) -> "LeaseHolder":
        self._start()
        return self

    def _start(self) -> None:
        self._lost = ""
        self._farm.on_loss = self._on_loss
        self._farm.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the board back, or leave the queue."""
        lease, self.lease = self.lease, None
        try:
            self._farm.on_loss = lambda reason: None
            if lease:
                # If the farm no longer answers, the lease ends by its deadline.
                with contextlib.suppress(ProvisionError):
                    self._farm.call("release", outcome=lease.outcome)
        finally:
            self._farm.stop()

    def exchange(self, excluded: Collection[str]) -> None:
        """Give the board back and queue for one that is not among the excluded places."""
        self.release()
        self._excluded = set(excluded)
        self._start()

    def retry(self, reason: str, excluded: Collection[str] = ()) -> bool:
        """Exchange a board that gave no verdict for another one, once; False if there is no other one.

        Args:
            excluded: places to avoid, beside this one.
        """
        assert self.lease
        if self.earlier or not self.lease.others:
            return False
        brief = reason.partition("\n")[0].rstrip(":")
        self.earlier = ({"place": self.lease.place, "host": self.lease.host, "why": brief},)
        self.exchange({self.lease.place, *excluded})
        return True

    def wait(self) -> Lease:
        """Wait for the lease."""
        while self.lease is None:
            self._read_reply()
        return self.lease

    def poll(self) -> Lease | None:
        """Lease, or None while still in the queue. Raises as :meth:`wait`."""
        while self.lease is None and self._farm.has_unread_reply:
            self._read_reply()
        return self.lease

    def _read_reply(self) -> None:
        try:
            reply = self._farm.read_reply(None)
        except HelperEnded:
            if self._restarted:
                raise
            # A helper that is killed in the queue holds no board: start another one, once.
            self._restarted = True
            self._farm.stop()
            self._start()
            return
        if "ready" in reply:
            request = {"filters": dict(self._filters), "wait": self._wait, "excluded": sorted(self._excluded)}
            self._farm.send("lease", **request)
        elif "place" in reply:
            self.lease = Lease(**reply, earlier=self.earlier)
            if self._lost:
                self.lease.mark_lost(self._lost)
        elif "away" in reply:
            self._say(f"waiting for a host: {reply['away']}")
        elif reply["busy"]:
            held = ", ".join(f"{place} by {holder}" for place, holder in reply["busy"].items())
            self._say(f"waiting for a board, place {reply['position']} in line; held: {held}")

    def _on_loss(self, reason: str) -> None:
        self._lost = reason
        if self.lease:
            self.lease.mark_lost(reason)
