# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of all boards, several in parallel, and writes the report.

A job is the health check of one board, then its suites, each as ``./inv hil`` in its own process. For a farm's
board, this process holds one lease and passes it to both.
"""

import contextlib
import dataclasses
import datetime
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import psutil

from utvm.base.process import Subprocess, interpreter, signals
from utvm.drivers import BoardIdentity
from utvm.errors import ConfigError, ExitCode, ProbeError, UtvmError
from utvm.farm import client, location
from utvm.hil import limits, schemas
from utvm.hil.display import standard_output
from utvm.hil.nightly import plan, report
from utvm.hil.nightly.display import NightlyDisplay
from utvm.hil.nightly.report import BoardResult, NightlyReport, find_news, parse_targets, write_message
from utvm.hil.progress import RunProgress
from utvm.hil.report import new_run_id
from utvm.hil.results import Verdict
from utvm.provenance.location import Lease, read_checkout
from utvm.selection import BoardKind, BoardSelection, PlaceChoice, ReportChoice, SuiteChoice, words


class JobLease(client.LeaseHolder):
    """The lease of one job, as a context manager.

    Args:
        used: boards leased by other jobs of the same entry; excluded here and extended.
    """

    def __init__(self, job: plan.Job, folder: Path, used: set[str], say: Callable[[str], None]) -> None:
        entry = job.entry
        tags = location.required_tags(PlaceChoice("farm", tags=entry.tags), job.board, job.choice)
        # An unattended run must not wait forever.
        wait = entry.wait or 60 * entry.minutes
        super().__init__(client.coordinator_address(), tags, wait, folder / "labgrid.log", say)
        self._used = used
        self._last: Lease | None = None

    @property
    def folder(self) -> str:
        return f"again-{len(self.earlier)}" if self.earlier else ""

    @property
    def record(self) -> dict[str, Any] | None:
        last = self.lease or self._last
        return {**last.record, "earlier": [dict(board) for board in self.earlier]} if last else None

    def poll(self) -> Lease | None:
        lease = super().poll()
        if lease and lease.place in self._used.difference(self._excluded):
            # Another job leased it while this one was queued.
            self.exchange(self._used)
            return None
        if lease:
            self._used.add(lease.place)
            self._say(f"leased {lease.place} at {lease.host}, after {lease.waited:.1f} s in line")
        return lease

    def finish(self, result: BoardResult) -> bool:
        """Give the board back; True if another board was requested for a retry."""
        lease = self._last = self.lease
        assert lease
        trouble = result.verdict.exit_code is ExitCode.INFRASTRUCTURE
        if result.verdict is not Verdict.INTERRUPTED:
            lease.outcome = "infrastructure" if trouble else "verdict"
        if trouble and self.retry(result.reason, self._used):
            self._say(f"{lease.place}: {result.reason}; once more, on another board")
            return True
        self.release()
        return False


HEALTH = "health"
_BEFORE = "; before: "

# Seconds for an interrupted run to release its board and write its report.
PATIENCE = 30.0


class RunningJob:
    """One running job; call :meth:`poll` repeatedly.

    Args:
        used: boards leased by other jobs of the same entry; extended here.
    """

    def __init__(
        self, job: plan.Job, folder: Path, stack: contextlib.ExitStack, used: set[str], say: Callable[[str], None]
    ) -> None:
        self.job = job
        self._folder = folder
        self._stack = stack
        self._used = used
        self._say: Callable[[str], None] = lambda line: say(f"{job.label}: {line}")
        self._started = time.monotonic()
        self._step_started = self._started
        self._timed_out = False
        self._health_report: Mapping[str, Any] | None = None
        self._job_lease: JobLease | None = None
        self._failures: list[str] = []  # reasons of runs without a verdict, on this computer
        self._process: Subprocess | None = None
        if job.entry.place == "farm":
            self._job_lease = JobLease(job, folder, used, self._say)
            stack.enter_context(self._job_lease)
        else:
            self._process = self._start(HEALTH, job.choice, [HEALTH])

    def poll(self) -> BoardResult | None:
        """Advance the job; return the result once it has finished."""
        if self._process is None:
            return self._await_board()
        if self._process.running:
            if not self._timed_out and time.monotonic() > self._step_started + 60 * self.job.entry.minutes:
                self._timed_out = True
                self._process.ask_to_end()
                self._step_started = time.monotonic()
            elif self._timed_out and time.monotonic() > self._step_started + PATIENCE:
                self._process.stop()
            return None
        result = self._read_result()
        if self._health_report is None and result.verdict is Verdict.PASSED:
            self._health_report = result.content
            self._start_suites(result)
            return None
        if self._job_lease is None:
            if result.verdict.exit_code is not ExitCode.INFRASTRUCTURE or len(self._failures) >= self.job.entry.reruns:
                return result
            self._failures.append(result.reason.partition(_BEFORE)[0])
            self._say(f"{self._failures[-1]}; once more")
            self._health_report, self._timed_out = None, False
            self._step_started = time.monotonic()
            self._process = self._start(HEALTH, self.job.choice, [HEALTH])
            return None
        is_repeated = self._job_lease.finish(result)
        if is_repeated:
            self._health_report, self._process, self._timed_out = None, None, False
        return None if is_repeated else result

    def _await_board(self) -> BoardResult | None:
        assert self._job_lease
        try:
            lease = self._job_lease.poll()
        except UtvmError as error:
            return self._result(Verdict.INFRASTRUCTURE, error.message, None, None)
        if lease:
            self._step_started = time.monotonic()
            self._process = self._start(HEALTH, self.job.choice, [HEALTH])
            lease.when_lost(self._process.ask_to_end)
        return None

    def interrupt(self) -> None:
        if self._process:
            self._process.ask_to_end()

    def interrupted_result(self, deadline: float) -> BoardResult:
        if self._process is None:
            return self._result(Verdict.INTERRUPTED, "interrupted while it waited for a board", None, None)
        while self._process.running and time.monotonic() < deadline:
            time.sleep(0.05)
        self._process.stop()
        # It may have ended just before.
        result = self._read_result()
        if self._health_report is not None and result.verdict.exit_code is not ExitCode.INFRASTRUCTURE:
            return result
        phase = "its suites" if self._health_report is not None else "its health check"
        return self._result(Verdict.INTERRUPTED, f"interrupted during {phase}", result.content, result.source)

    def _start_suites(self, health: BoardResult) -> None:
        """Start the suites on exactly the board that passed the health check."""
        # A virtual board on USB keeps the requested serial number.
        serial = health.board.serial if health.board.kind == "physical" else self.job.entry.serial
        self._step_started = time.monotonic()
        kind = "auto" if health.board.kind == "process" else cast(BoardKind, health.board.kind)
        choice = dataclasses.replace(self.job.choice, kind=kind, serial=serial)
        self._process = self._start("suites", choice, self.job.entry.suites or ())
        if self._job_lease and self._job_lease.lease:
            self._job_lease.lease.when_lost(self._process.ask_to_end)

    def _start(self, step: str, choice: BoardSelection, suites: Sequence[str]) -> Subprocess:
        rerun = f"again-{len(self._failures)}" if self._failures else ""
        folder = self._folder / (self._job_lease.folder if self._job_lease else rerun) / step
        command = [
            *interpreter.python_command("utvm", "hil"),
            *words(choice),
            *words(PlaceChoice(self.job.entry.place)),
        ]
        command += [*words(ReportChoice(str(folder / "reports"))), *words(SuiteChoice(",".join(suites), jobs=1))]
        lease = self._job_lease.lease if self._job_lease else None
        if lease:
            command = ["env", *(f"{name}={value}" for name, value in lease.variables().items()), *command]
        process = Subprocess(f"the {step} run", command, log=folder / "output.txt", error=ProbeError)
        return self._stack.enter_context(process)

    def _read_result(self) -> BoardResult:
        assert self._process
        code = self._process.exit_code
        source = self._process.log.parent / "reports" / "latest"
        content = None
        with contextlib.suppress(ConfigError):
            content = schemas.read_report(source / "report.json")
        verdict, reason = Verdict.INFRASTRUCTURE, ""
        lease = self._job_lease.lease if self._job_lease else None
        if lease and lease.lost:
            reason = f"the lease of {lease.place} was lost: {lease.lost}"
        elif self._timed_out:
            reason = f"took longer than {self.job.entry.minutes:g} minutes and was ended"
        elif content is None:
            output = self._process.log_tail()
            _, error, reason = f"\n{output}".rpartition("\nerror: ")
            if not error:
                reason = f"ended with exit code {code} and without a report; its output ends with:\n{output}"
        elif content["exit_code"] != code:
            reason = f"ended with exit code {code}, but its report says {content['exit_code']}"
        else:
            verdict = Verdict(content["verdict"])
            reason = content["trouble"] or schemas.first_trouble(content)
        lease_lost = lease is not None and lease.lost
        if self._health_report is None and verdict is not Verdict.PASSED and not lease_lost:
            verdict, reason = Verdict.BAD, f"health check: {reason}"
        return self._result(verdict, reason, content, source if content else None)

    def _result(
        self, verdict: Verdict, reason: str, content: Mapping[str, Any] | None, source: Path | None
    ) -> BoardResult:
        entry = self.job.entry
        description = content or self._health_report
        now = time.monotonic()
        return dataclasses.replace(
            not_run_result(
                self.job, _BEFORE.join((reason or "it ran again", *self._failures)) if self._failures else reason
            ),
            board=BoardIdentity(
                self.job.board.full_name,
                description["board"]["kind"] if description else self.job.kind,
                serial=description["board"]["serial"] if description else entry.serial,
            ),
            verdict=verdict,
            duration_s=now - self._started,
            suites_s=0.0 if self._health_report is None else now - self._step_started,
            content=content,
            source=source.resolve() if source else None,
            lease=self._job_lease.record if self._job_lease else None,
        )


def not_run_result(job: plan.Job, reason: str) -> BoardResult:
    return BoardResult(
        label=job.label,
        board=BoardIdentity(job.board.full_name, job.kind, serial=job.entry.serial),
        place=job.entry.place,
        suites=job.entry.suites or (),
        verdict=Verdict.NOT_RUN,
        reason=reason,
    )


# Maximum memory of a run of all suites, with TVM and the emulator, rounded up.
_BYTES_PER_BOARD = 2**30

_POLL = 0.1  # Seconds; a job takes tens of seconds.


def count_parallel_jobs(requested: int = 0) -> int:
    """Return the requested number of boards in parallel; of 0, one per core and GiB of free memory, at least 1.

    An emulated board keeps one core busy. Raises ConfigError for a negative number.
    """
    if requested < 0:
        raise ConfigError(f"--jobs is {requested}", "give 1 or more; without it, as many as the machine can run")
    if requested:
        return requested
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, psutil.virtual_memory().available // _BYTES_PER_BOARD))


def run(
    queue: Sequence[plan.Job],
    *,
    jobs: int,
    report_root: Path,
    notify: str = "",
    advisories: Mapping[str, Any] | None = None,
) -> ExitCode:
    """Run all jobs, print their results, and write the report.

    Args:
        notify: files for a message, as in :func:`parse_targets`; written if a test or board broke or recovered.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    run_id = new_run_id(started)
    folder = report_root / "logs" / run_id
    with ConfigError.on_os_error(f"{folder}: cannot be created", "make it writable, or choose another --report-dir"):
        folder.mkdir(parents=True)
    display = NightlyDisplay(standard_output())
    display.begin(run_id, queue, jobs)
    began, sources = time.monotonic(), read_checkout()
    results: dict[str, BoardResult] = {}
    progress = RunProgress(
        folder,
        boards={job.label: "not run" for job in queue},
        started=started.timestamp(),
        report=str(report_root / run_id / "index.html"),
    )
    interrupted = _run_all(queue, jobs, folder, results, display, progress.state["boards"])
    signals.ignore_signals()
    night = NightlyReport(
        run_id=run_id,
        started=f"{started:%Y-%m-%dT%H:%M:%SZ}",
        checkout=sources,
        jobs=jobs,
        duration_s=time.monotonic() - began,
        boards=tuple(results[job.label] for job in queue),
        interrupted=interrupted,
        advisories=advisories,
    )
    news = find_news(night, report_root)
    directory = report.write_report(night, report_root)
    for target in parse_targets(notify):
        write_message(target, night, news)
    progress.close(night.verdict.value)
    display.close(night, directory, limits.remember(report_root, *limits.iter_board_runs(directory)))
    return night.verdict.exit_code


def _run_all(
    queue: Sequence[plan.Job],
    jobs: int,
    folder: Path,
    results: dict[str, BoardResult],
    display: NightlyDisplay,
    verdicts: dict[str, str],
) -> bool:
    """Add the result of each job to ``results``, and its state to ``verdicts``; return True after an interruption."""

    def finish(result: BoardResult) -> None:
        results[result.label] = result
        verdicts[result.label] = result.verdict.value
        display.finish(result)

    interrupted = False
    began = time.monotonic()
    waiting, running = list(queue), list[RunningJob]()
    used: defaultdict[int, set[str]] = defaultdict(set)
    with contextlib.ExitStack() as stack:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    job = waiting.pop(0)
                    used_boards = used[id(job.entry)]
                    verdicts[job.label] = "running"
                    running.append(RunningJob(job, folder / job.label, stack, used_boards, display.print_line))
                for running_job in list(running):
                    result = running_job.poll()
                    if result is not None:
                        running.remove(running_job)
                        finish(result)
                display.show_progress(time.monotonic() - began, [running_job.job.label for running_job in running])
                time.sleep(_POLL)
        except KeyboardInterrupt:
            interrupted = True
            # Interrupt all first: each takes a while to release its board.
            for running_job in running:
                running_job.interrupt()
            deadline = time.monotonic() + PATIENCE
            for running_job in running:
                if running_job.job.label not in results:
                    finish(running_job.interrupted_result(deadline))
    for job in queue:
        if job.label not in results:
            finish(not_run_result(job, "not run: the nightly run was interrupted before this job started"))
    return interrupted
