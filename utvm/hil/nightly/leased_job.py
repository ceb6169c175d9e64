# SPDX-License-Identifier: Apache-2.0
"""The farm board of a nightly job: one lease for its health check and its suites, another board after trouble."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from utvm.environment.remote import BoardRequest
from utvm.errors import ExitCode
from utvm.farm.client import coordinator_address
from utvm.farm.lease import Lease, LeaseHolder
from utvm.farm.location import required_tags
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.results import BoardResult, BoardVerdict
from utvm.selection import PlaceChoice


class LeasedJob:
    """The lease of one job, for the length of a ``with`` block.

    Args:
        folder: where its logs are left.
        used: boards that other jobs of the same entry had; this job takes another one, and adds it.
        say: receives the position in the queue.
    """

    def __init__(self, job: Job, folder: Path, used: set[str], say: Callable[[str], None]) -> None:
        entry = job.entry
        tags = required_tags(
            BoardRequest(job.board, entry.kind, entry.serial), PlaceChoice("farm", tags=entry.tags)
        )
        # An unattended run must not wait for ever.
        wait = entry.wait or 60 * entry.minutes
        self._holder = LeaseHolder(coordinator_address(""), tags, wait, folder / "labgrid.log", say)
        self._used, self._say = used, say
        self._excluded: set[str] = set()
        self._last: Lease | None = None
        self._stack = contextlib.ExitStack()
        self.lease: Lease | None = None

    def __enter__(self) -> "LeasedJob":
        self._stack.enter_context(self._holder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> str:
        """Name of the folder of the current board's runs, inside the job's folder."""
        return f"again-{len(self._holder.earlier)}" if self._holder.earlier else ""

    @property
    def report_entry(self) -> dict[str, Any] | None:
        """The lease's entry in the report; None if there never was one."""
        last = self.lease or self._last
        earlier = [dict(attempt) for attempt in self._holder.earlier]
        return {**last.report_entry, "earlier": earlier} if last else None

    def poll(self) -> Lease | None:
        """Lease, or None while still in the queue."""
        lease = self._holder.poll()
        if lease and lease.place in self._used - self._excluded:
            # Another job took it while this one was in the queue.
            self._excluded = set(self._used)
            self._holder.exchange(self._excluded)
            return None
        if lease:
            self.lease = lease
            self._used.add(lease.place)
            self._say(f"leased {lease.place} at {lease.host}, after {lease.waited:.1f} s in line")
        return lease

    def retry_after(self, result: BoardResult) -> bool:
        """Give the board back; True if another board was requested for a retry."""
        lease, self.lease, self._last = self.lease, None, self.lease
        assert lease
        trouble = result.verdict.exit_code is ExitCode.INFRASTRUCTURE
        if result.verdict is not BoardVerdict.INTERRUPTED:
            lease.outcome = "infrastructure" if trouble else "verdict"
        if trouble and self._holder.retry(result.reason, self._used):
            self._excluded = set(self._used)
            self._say(f"{lease.place}: {result.reason}; once more, on another board")
            return True
        self._stack.close()
        return False
