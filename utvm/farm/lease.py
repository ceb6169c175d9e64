# SPDX-License-Identifier: Apache-2.0
"""The lease holder: requests a lease of a farm's board, keeps it, and exchanges a board that gave no verdict."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType

from utvm.errors import ProvisionError
from utvm.farm.client import FarmClient, HelperEnded
from utvm.provenance.lease import Lease


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
