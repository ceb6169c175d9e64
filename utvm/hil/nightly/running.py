# SPDX-License-Identifier: Apache-2.0
"""A running job: the health check of one board, then its suites, each as ``./inv hil`` in its own process.

For a board of a farm, this process holds one lease for both, and passes it to them.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from utvm.base.process.interpreter import python_command
from utvm.base.process.service import Subprocess
from utvm.drivers import BoardIdentity
from utvm.errors import ConfigError, ExitCode, ProbeError, UtvmError
from utvm.farm.client import coordinator_address
from utvm.farm.lease import LeaseHolder
from utvm.farm.location import required_tags
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.results import BoardResult, BoardVerdict
from utvm.hil.schemas import first_trouble, read_report
from utvm.options import words
from utvm.provenance.lease import Lease
from utvm.selection import BoardKind, BoardSelection, PlaceChoice, ReportChoice, SuiteChoice


class JobLease:
    """The lease of one job, for the length of a ``with`` block.

    Args:
        folder: where its logs are left.
        used: boards that other jobs of the same entry had; this job takes another one, and adds it.
        say: receives the position in the queue.
    """

    def __init__(self, job: Job, folder: Path, used: set[str], say: Callable[[str], None]) -> None:
        entry = job.entry
        tags = required_tags(PlaceChoice("farm", tags=entry.tags), job.board, job.choice)
        # An unattended run must not wait for ever.
        wait = entry.wait or 60 * entry.minutes
        self._holder = LeaseHolder(coordinator_address(), tags, wait, folder / "labgrid.log", say)
        self._used, self._say = used, say
        self._stack = contextlib.ExitStack()
        self._excluded: set[str] = set()
        self._last: Lease | None = None
        self.lease: Lease | None = None

    def __enter__(self) -> "JobLease":
        self._stack.enter_context(self._holder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> str:
        """Subfolder for the runs of the current board."""
        return f"again-{len(self._holder.earlier)}" if self._holder.earlier else ""

    @property
    def record(self) -> dict[str, Any] | None:
        """``lease`` of the report; None if there was no lease."""
        last = self.lease or self._last
        return {**last.record, "earlier": [dict(board) for board in self._holder.earlier]} if last else None

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

    def finish(self, result: BoardResult) -> bool:
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


HEALTH = "health"

# How long a run may take to let go of its board and to write its report, once it has been told to end.
PATIENCE = 30.0


class RunningJob:
    """One board's turn while it runs; to be asked again and again by :meth:`poll`.

    Args:
        folder: where its processes leave what they say and their reports.
        stack: ends its processes when it closes.
        used: boards of a farm that other turns of the same entry had; it adds its own.
        say: is told what there is to say meanwhile.
    """

    def __init__(
        self,
        job: Job,
        folder: Path,
        stack: contextlib.ExitStack,
        used: set[str],
        say: Callable[[str], None],
    ) -> None:
        self.job = job
        self._folder = folder
        self._stack = stack
        self._used = used
        self._say = lambda line: say(f"{job.label}: {line}")
        self._started = time.monotonic()
        self._step_started = self._started
        self._late = False
        self._healthy: Mapping[str, Any] | None = None
        self._leased: JobLease | None = None
        self._process: Subprocess | None = None
        if job.entry.place == "farm":
            self._leased = stack.enter_context(JobLease(job, folder, used, self._say))
        else:
            self._process = self._start(HEALTH, job.choice, [HEALTH])

    def poll(self) -> BoardResult | None:
        """Go on where the board has got to; return the result once there is one."""
        if self._process is None:
            return self._await_board()
        if self._process.running:
            if not self._late and time.monotonic() > self._step_started + 60 * self.job.entry.minutes:
                self._late = True
                self._process.ask_to_end()
                self._step_started = time.monotonic()
            elif self._late and time.monotonic() > self._step_started + PATIENCE:
                self._process.stop()
            return None
        result = self._read_result()
        if self._healthy is None and result.verdict is BoardVerdict.PASSED:
            self._healthy = result.content
            self._start_suites(result)
            return None
        if self._leased is None:
            return result
        again = self._leased.finish(result)
        if again:
            self._healthy, self._process, self._late = None, None, False
        return None if again else result

    def _await_board(self) -> BoardResult | None:
        assert self._leased
        try:
            lease = self._leased.poll()
        except UtvmError as error:
            return self._result(BoardVerdict.INFRASTRUCTURE, error.message, None, None)
        if lease:
            self._step_started = time.monotonic()
            self._process = self._start(HEALTH, self.job.choice, [HEALTH])
            lease.when_lost(self._process.ask_to_end)
        return None

    def interrupt(self) -> None:
        """Tell the process to end, without waiting for it."""
        if self._process:
            self._process.ask_to_end()

    def interrupted_result(self, deadline: float) -> BoardResult:
        """Result of the interrupted job, after :meth:`interrupt`.

        Args:
            deadline: until when to wait for the process, by the monotonic clock.
        """
        if self._process is None:
            return self._result(BoardVerdict.INTERRUPTED, "interrupted while it waited for a board", None, None)
        while self._process.running and time.monotonic() < deadline:
            time.sleep(0.05)
        self._process.stop()
        # It may have ended by itself a moment before.
        result = self._read_result()
        if self._healthy is not None and result.verdict.exit_code is not ExitCode.INFRASTRUCTURE:
            return result
        phase = "its suites" if self._healthy is not None else "its health check"
        return self._result(BoardVerdict.INTERRUPTED, f"interrupted during {phase}", result.content, result.source)

    def _start_suites(self, health: BoardResult) -> None:
        """Start the suites on the very board that was healthy: one that vanishes is not replaced by another."""
        # That of a virtual board on USB is the one that was asked for.
        serial = health.board.serial if health.board.kind == "physical" else self.job.entry.serial
        self._step_started = time.monotonic()
        kind = "auto" if health.board.kind == "process" else cast(BoardKind, health.board.kind)
        choice = dataclasses.replace(self.job.choice, kind=kind, serial=serial)
        self._process = self._start("suites", choice, self.job.entry.suites or ())
        if self._leased and self._leased.lease:
            self._leased.lease.when_lost(self._process.ask_to_end)

    def _start(self, step: str, choice: BoardSelection, suites: Sequence[str]) -> Subprocess:
        folder = self._folder / (self._leased.folder if self._leased else "") / step
        command = [
            *python_command("utvm", "hil"),
            *words(choice),
            *words(PlaceChoice(self.job.entry.place)),
        ]
        command += [*words(ReportChoice(str(folder / "reports"))), *words(SuiteChoice(",".join(suites)))]
        lease = self._leased.lease if self._leased else None
        if lease:
            command = ["env", *(f"{name}={value}" for name, value in lease.variables().items()), *command]
        process = Subprocess(f"the {step} run", command, log=folder / "output.txt", error=ProbeError)
        return self._stack.enter_context(process)

    def _read_result(self) -> BoardResult:
        """Read the result of the finished process: its verdict, or the reason for none."""
        assert self._process
        code = self._process.exit_code
        source = self._process.log.parent / "reports" / "latest"
        content = None
        with contextlib.suppress(ConfigError):
            content = read_report(source / "report.json")
        verdict, reason = BoardVerdict.INFRASTRUCTURE, ""
        lease = self._leased.lease if self._leased else None
        if lease and lease.lost:
            reason = f"the lease of {lease.place} was lost: {lease.lost}"
        elif self._late:
            reason = f"took longer than {self.job.entry.minutes:g} minutes and was ended"
        elif content is None:
            reason = self._failure_reason(code)
        elif content["exit_code"] != code:
            reason = f"ended with exit code {code}, but its report says {content['exit_code']}"
        else:
            verdict = BoardVerdict(content["verdict"])
            reason = content["trouble"] or first_trouble(content)
        lost = lease is not None and lease.lost
        if self._healthy is None and verdict is not BoardVerdict.PASSED and not lost:
            verdict, reason = BoardVerdict.BAD, f"health check: {reason}"
        return self._result(verdict, reason, content, source if content else None)

    def _failure_reason(self, code: int) -> str:
        assert self._process
        output = self._process.log_tail()
        _, error, message = f"\n{output}".rpartition("\nerror: ")
        return (
            message
            if error
            else f"ended with exit code {code} and without a report; its output ends with:\n{output}"
        )

    def _result(
        self, verdict: BoardVerdict, reason: str, content: Mapping[str, Any] | None, source: Path | None
    ) -> BoardResult:
        entry = self.job.entry
        known = content or self._healthy
        now = time.monotonic()
        return BoardResult(
            label=self.job.label,
            board=BoardIdentity(
                self.job.board.full_name,
                known["board"]["kind"] if known else self.job.kind,
                serial=known["board"]["serial"] if known else entry.serial,
            ),
            place=entry.place,
            suites=entry.suites or (),
            verdict=verdict,
            reason=reason,
            duration_s=now - self._started,
            suites_s=0.0 if self._healthy is None else now - self._step_started,
            content=content,
            source=source.resolve() if source else None,
            lease=self._leased.record if self._leased else None,
        )


def not_run_result(job: Job, reason: str) -> BoardResult:
    """Return the result of a turn that never began."""
    return BoardResult(
        label=job.label,
        board=BoardIdentity(job.board.full_name, job.kind, serial=job.entry.serial),
        place=job.entry.place,
        suites=job.entry.suites or (),
        verdict=BoardVerdict.NOT_RUN,
        reason=reason,
    )
