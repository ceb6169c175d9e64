# SPDX-License-Identifier: Apache-2.0
"""The board of a farm that a turn of a night has: one lease for all that is run on it, another after trouble."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
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
    """The lease of one turn, for the length of a ``with`` block; to be asked for it again and again.

    Args:
        folder: where its logs are left.
        used: boards that other turns of the same entry had: this one has another, and is added.
        say: is told how long the line is.
    """

    def __init__(self, turn: Job, folder: Path, used: set[str], say: Callable[[str], None]) -> None:
        self._turn, self._folder, self._used, self._say = turn, folder, used, say
        self._stack = contextlib.ExitStack()
        self._but: set[str] = set()
        self._earlier: Sequence[Mapping[str, str]] = ()
        self._last: Lease | None = None
        self.lease: Lease | None = None

    def __enter__(self) -> "LeasedJob":
        self._begin(set())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> str:
        """What the folder of the present board's runs is called in that of the turn."""
        return f"again-{len(self._earlier)}" if self._earlier else ""

    @property
    def told(self) -> dict[str, Any] | None:
        """What the report says of it; None where there never was one."""
        last = self.lease or self._last
        return {**last.report_entry, "earlier": [dict(each) for each in self._earlier]} if last else None

    def poll(self) -> Lease | None:
        """Return the lease once it is there."""
        lease = self._leasing.poll()
        if lease and lease.place in self._used - self._but:
            # Another turn had it while this one stood in line.
            self._begin(self._used)
            return None
        if lease:
            lease.earlier = self._earlier
            self.lease = lease
            self._used.add(lease.place)
            self._say(f"leased {lease.place} at {lease.host}, after {lease.waited:.1f} s in line")
        return lease

    def ended(self, result: BoardResult) -> bool:
        """Give the board back; return whether another one is to be tried."""
        lease, self.lease, self._last = self.lease, None, self.lease
        assert lease
        trouble = result.verdict.exit_code is ExitCode.INFRASTRUCTURE
        if result.verdict is not BoardVerdict.INTERRUPTED:
            lease.outcome = "infrastructure" if trouble else "verdict"
        again = trouble and lease.others > 0 and not self._earlier
        if again:
            self._earlier = lease.failed(result.reason)
            self._say(f"{lease.place}: {result.reason}; once more, on another board")
            self._begin(self._used)
        else:
            self._stack.close()
        return again

    def _begin(self, but: set[str]) -> None:
        """Stand in line, for another board than some."""
        self._stack.close()
        entry, self._but = self._turn.entry, set(but)
        wish = required_tags(
            BoardRequest(self._turn.board, entry.kind, entry.serial), PlaceChoice("farm", tags=entry.tags)
        )
        # Nobody looks at night: it is not for ever that a board is waited for.
        wait, log = entry.wait or 60 * entry.minutes, self._folder / "labgrid.log"
        self._leasing = self._stack.enter_context(
            LeaseHolder(coordinator_address(""), wish, wait, log, self._say, self._but)
        )
