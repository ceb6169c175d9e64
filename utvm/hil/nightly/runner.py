# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of all boards, several in parallel, and writes the report."""

import contextlib
import datetime
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from utvm.base.process.signals import ignore_signals
from utvm.errors import ConfigError, ExitCode
from utvm.hil.display import standard_output
from utvm.hil.history_entry import iter_board_runs, remember
from utvm.hil.nightly import report
from utvm.hil.nightly.display import NightlyDisplay
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.report import previous_verdict, write_message
from utvm.hil.nightly.results import BoardResult, NightlyReport
from utvm.hil.nightly.running import PATIENCE, RunningJob, not_run_result
from utvm.hil.report import new_run_id
from utvm.provenance.checkout import read_checkout

# What one run of all suites takes at most with what it starts, TVM and the emulator included, rounded up.
_BYTES_A_BOARD = 2**30

_POLL = 0.1  # Seconds; a turn takes tens of them.


def jobs_carried() -> int:
    """Number of boards that this computer can run in parallel: one per core and per GiB of free memory.

    An emulated board keeps one core busy. At least one board runs.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, psutil.virtual_memory().available // _BYTES_A_BOARD))


def run(
    queue: Sequence[Job],
    *,
    jobs: int,
    report_root: Path,
    notify: str = "",
    advisories: Mapping[str, Any] | None = None,
) -> ExitCode:
    """Run all jobs, print their results, and write the report.

    Args:
        queue: the boards; no two of them may be the same.
        jobs: how many at once.
        report_root: directory of all nightly reports; what the processes say goes into ``logs`` in it.
        notify: the file of a message, which is there afterwards if the verdict is not that of the night before;
            empty for none.
        advisories: what the report has of those that apply to locked packages; None where nobody looked.
    """
    started = datetime.datetime.now(datetime.timezone.utc)
    run_id = new_run_id(started)
    folder = report_root / "logs" / run_id
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot be made: {error.strerror}", "make it writable, or choose another --report-dir"
        ) from error
    display = NightlyDisplay(standard_output())
    display.begin(run_id, queue, jobs)
    began, sources = time.monotonic(), read_checkout()
    results: dict[str, BoardResult] = {}
    interrupted = _run_all(queue, jobs, folder, results, display)
    ignore_signals()
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
    previous = previous_verdict(report_root)
    directory = report.write_report(night, report_root)
    if notify:
        write_message(Path(notify), night, previous)
    display.close(night, directory, remember(report_root, *iter_board_runs(directory)))
    return night.verdict.exit_code


def _run_all(
    queue: Sequence[Job], jobs: int, folder: Path, results: dict[str, BoardResult], display: NightlyDisplay
) -> bool:
    """Add the result of each job to ``results``; return True after an interruption."""

    def finish(result: BoardResult) -> None:
        results[result.label] = result
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
                    running.append(RunningJob(job, folder / job.label, stack, used_boards, display.print_note))
                for running_job in list(running):
                    result = running_job.poll()
                    if result is not None:
                        running.remove(running_job)
                        finish(result)
                display.show_progress(time.monotonic() - began, [running_job.job.label for running_job in running])
                time.sleep(_POLL)
        except KeyboardInterrupt:
            interrupted = True
            # All at once first: each takes a while to let go of its board.
            for running_job in running:
                running_job.interrupt()
            deadline = time.monotonic() + PATIENCE
            for running_job in running:
                if running_job.job.label not in results:
                    finish(running_job.interrupted_result(deadline))
    for job in queue:
        if job.label not in results:
            finish(not_run_result(job, "not run: the nightly run was interrupted before its turn"))
    return interrupted
