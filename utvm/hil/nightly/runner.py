# SPDX-License-Identifier: Apache-2.0
"""Gives each board its turn, as many at once as the machine carries, and reports on all of them."""

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
from utvm.environment import checkout
from utvm.errors import ConfigError, ExitCode
from utvm.hil.display import standard_output
from utvm.hil.history_entry import remember, turns_of
from utvm.hil.nightly import report
from utvm.hil.nightly.display import NightlyDisplay
from utvm.hil.nightly.notify import verdict_before, write_message
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.results import BoardResult, NightlyReport
from utvm.hil.nightly.running import PATIENCE, RunningTurn, not_run
from utvm.hil.report import new_run_id

# What one run of all suites takes at most with what it starts, TVM and the emulator included, rounded up.
_BYTES_A_BOARD = 2**30

_POLL = 0.1  # Seconds; a turn takes tens of them.


def jobs_carried() -> int:
    """Return how many boards this machine carries at once: one for each core, and each with 1 GiB of free memory.

    An emulated board keeps one core busy. At least one board runs.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, psutil.virtual_memory().available // _BYTES_A_BOARD))


def run(
    turns: Sequence[Job],
    *,
    jobs: int,
    report_root: Path,
    notify: str = "",
    advisories: Mapping[str, Any] | None = None,
) -> ExitCode:
    """Give each board its turn, print what comes of it, and write the report.

    Args:
        turns: the boards; no two of them may be the same.
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
    display.begin(run_id, turns, jobs)
    began, sources = time.monotonic(), checkout.read_checkout()
    results: dict[str, BoardResult] = {}
    interrupted = _run_all(turns, jobs, folder, results, display)
    ignore_signals()
    whole = NightlyReport(
        run_id=run_id,
        started=f"{started:%Y-%m-%dT%H:%M:%SZ}",
        checkout=sources,
        jobs=jobs,
        duration_s=time.monotonic() - began,
        boards=tuple(results[turn.label] for turn in turns),
        interrupted=interrupted,
        advisories=advisories,
    )
    before = verdict_before(report_root)
    directory = report.write(whole, report_root)
    if notify:
        write_message(Path(notify), whole, before)
    display.close(whole, directory, remember(report_root, *turns_of(directory)))
    return whole.verdict.exit_code


def _run_all(
    turns: Sequence[Job], jobs: int, folder: Path, results: dict[str, BoardResult], display: NightlyDisplay
) -> bool:
    """Fill in the result of each turn, and return whether somebody interrupted it."""

    def ended(result: BoardResult) -> None:
        results[result.label] = result
        display.ended(result)

    interrupted = False
    began = time.monotonic()
    waiting, running = list(turns), list[RunningTurn]()
    used: defaultdict[int, set[str]] = defaultdict(set)
    with contextlib.ExitStack() as stack:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    turn = waiting.pop(0)
                    had = used[id(turn.entry)]
                    running.append(RunningTurn(turn, folder / turn.label, stack, had, display.note))
                for begun in list(running):
                    result = begun.poll()
                    if result is not None:
                        running.remove(begun)
                        ended(result)
                display.look(time.monotonic() - began, [begun.turn.label for begun in running])
                time.sleep(_POLL)
        except KeyboardInterrupt:
            interrupted = True
            # All at once first: each takes a while to let go of its board.
            for begun in running:
                begun.interrupt()
            deadline = time.monotonic() + PATIENCE
            for begun in running:
                if begun.turn.label not in results:
                    ended(begun.interrupted(deadline))
    for turn in turns:
        if turn.label not in results:
            ended(not_run(turn, "not run: the nightly run was interrupted before its turn"))
    return interrupted
