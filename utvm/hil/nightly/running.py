# SPDX-License-Identifier: Apache-2.0
"""One board's turn while it runs: its health check, then its suites, each as ``./inv hil`` in its own process.

Both have one lease where the board is a farm's: this process keeps it, and hands it to them.
"""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from utvm.base.process.service import Subprocess
from utvm.errors import ConfigError, ExitCode, ProbeError, UtvmError
from utvm.hil.nightly.leased_job import LeasedTurn
from utvm.hil.nightly.plan import Job
from utvm.hil.nightly.results import BoardResult, BoardVerdict
from utvm.hil.reading import first_trouble, read
from utvm.options import words
from utvm.selection import BoardKind, BoardSelection, PlaceChoice, ReportChoice, SuiteChoice

HEALTH = "health"

# As python -m utvm, which would look for utvm in the current folder first.
_START = "import sys; del sys.path[0]; from utvm.__main__ import main; main()"

# How long a run may take to let go of its board and to write its report, once it has been told to end.
PATIENCE = 30.0


class RunningTurn:
    """One board's turn while it runs; to be asked again and again by :meth:`poll`.

    Args:
        folder: where its processes leave what they say and their reports.
        stack: ends its processes when it closes.
        used: boards of a farm that other turns of the same entry had; it adds its own.
        say: is told what there is to say meanwhile.
    """

    def __init__(
        self,
        turn: Job,
        folder: Path,
        stack: contextlib.ExitStack,
        used: set[str],
        say: Callable[[str], None],
    ) -> None:
        self.turn = turn
        self._folder = folder
        self._stack = stack
        self._used = used
        self._say = lambda line: say(f"{turn.label}: {line}")
        self._began = time.monotonic()
        self._step_began = self._began
        self._late = False
        self._healthy: Mapping[str, Any] | None = None
        self._leased: LeasedTurn | None = None
        self._job: Subprocess | None = None
        if turn.entry.place == "farm":
            self._leased = stack.enter_context(LeasedTurn(turn, folder, used, self._say))
        else:
            self._job = self._start(HEALTH, turn.choice, [HEALTH])

    def poll(self) -> BoardResult | None:
        """Go on where the board has got to; return the result once there is one."""
        if self._job is None:
            return self._await_board()
        if self._job.running:
            if not self._late and time.monotonic() > self._step_began + 60 * self.turn.entry.minutes:
                self._late = True
                self._job.ask_to_end()
                self._step_began = time.monotonic()
            elif self._late and time.monotonic() > self._step_began + PATIENCE:
                self._job.stop()
            return None
        ended = self._ended()
        if self._healthy is None and ended.verdict is BoardVerdict.PASSED:
            self._healthy = ended.content
            self._begin_suites(ended)
            return None
        if self._leased is None:
            return ended
        again = self._leased.ended(ended)
        if again:
            self._healthy, self._job, self._late = None, None, False
        return None if again else ended

    def _await_board(self) -> BoardResult | None:
        """Begin once a board of the farm is there; return the result where there is none to be had."""
        assert self._leased
        try:
            lease = self._leased.poll()
        except UtvmError as error:
            return self._result(BoardVerdict.INFRASTRUCTURE, error.message, None, None)
        if lease:
            self._step_began = time.monotonic()
            self._job = self._start(HEALTH, self.turn.choice, [HEALTH])
            lease.when_lost(self._job.ask_to_end)
        return None

    def interrupt(self) -> None:
        """Tell the process to end, without waiting for it."""
        if self._job:
            self._job.ask_to_end()

    def interrupted(self, deadline: float) -> BoardResult:
        """Return what there is of a result, after :meth:`interrupt`.

        Args:
            deadline: until when to wait for the process, by the monotonic clock.
        """
        if self._job is None:
            return self._result(BoardVerdict.INTERRUPTED, "interrupted while it waited for a board", None, None)
        while self._job.running and time.monotonic() < deadline:
            time.sleep(0.05)
        self._job.stop()
        # It may have ended by itself a moment before.
        ended = self._ended()
        if self._healthy is not None and ended.verdict.exit_code is not ExitCode.INFRASTRUCTURE:
            return ended
        phase = "its suites" if self._healthy is not None else "its health check"
        return self._result(BoardVerdict.INTERRUPTED, f"interrupted during {phase}", ended.content, ended.source)

    def _begin_suites(self, health: BoardResult) -> None:
        """Start the suites on the very board that was healthy: one that vanishes is not replaced by another."""
        # That of a virtual board on USB is the one that was asked for.
        serial = health.serial if health.kind == "physical" else self.turn.entry.serial
        self._step_began = time.monotonic()
        kind = "auto" if health.kind == "process" else cast(BoardKind, health.kind)
        choice = dataclasses.replace(self.turn.choice, kind=kind, serial=serial)
        self._job = self._start("suites", choice, self.turn.entry.suites or ())
        if self._leased and self._leased.lease:
            self._leased.lease.when_lost(self._job.ask_to_end)

    def _start(self, step: str, choice: BoardSelection, suites: Sequence[str]) -> Subprocess:
        folder = self._folder / (self._leased.folder if self._leased else "") / step
        command = [
            *(sys.executable, "-c", _START, "hil"),
            *words(choice),
            *words(PlaceChoice(self.turn.entry.place)),
        ]
        command += [*words(ReportChoice(str(folder / "reports"))), *words(SuiteChoice(",".join(suites)))]
        lease = self._leased.lease if self._leased else None
        if lease:
            command = ["env", *(f"{name}={value}" for name, value in lease.variables().items()), *command]
        job = Subprocess(f"the {step} run", command, log=folder / "output.txt", error=ProbeError)
        return self._stack.enter_context(job)

    def _ended(self) -> BoardResult:
        """Return what the process that has ended left: its verdict, or why there is none."""
        assert self._job
        code = self._job.exit_code
        source = self._job.log.parent / "reports" / "latest"
        content = None
        with contextlib.suppress(ConfigError):
            content = read(source / "report.json")
        verdict, reason = BoardVerdict.INFRASTRUCTURE, ""
        lease = self._leased.lease if self._leased else None
        if lease and lease.lost:
            reason = f"the lease of {lease.place} was lost: {lease.lost}"
        elif self._late:
            reason = f"took longer than {self.turn.entry.minutes:g} minutes and was ended"
        elif content is None:
            reason = self._last_words(code)
        elif content["exit_code"] != code:
            reason = f"ended with exit code {code}, but its report says {content['exit_code']}"
        else:
            verdict = BoardVerdict(content["verdict"])
            reason = content["trouble"] or first_trouble(content)
        lost = lease is not None and lease.lost
        if self._healthy is None and verdict is not BoardVerdict.PASSED and not lost:
            verdict, reason = BoardVerdict.BAD, f"health check: {reason}"
        return self._result(verdict, reason, content, source if content else None)

    def _last_words(self, code: int) -> str:
        """Return why the process ended before it could report: its error, or else the end of what it said."""
        assert self._job
        said = self._job.log_tail()
        _, error, words = f"\n{said}".rpartition("\nerror: ")
        return (
            words if error else f"ended with exit code {code} and without a report; its output ends with:\n{said}"
        )

    def _result(
        self, verdict: BoardVerdict, reason: str, content: Mapping[str, Any] | None, source: Path | None
    ) -> BoardResult:
        entry = self.turn.entry
        known = content or self._healthy
        now = time.monotonic()
        return BoardResult(
            label=self.turn.label,
            board=self.turn.board.full_name,
            kind=known["board"]["kind"] if known else self.turn.kind,
            serial=known["board"]["serial"] if known else entry.serial,
            place=entry.place,
            suites=entry.suites or (),
            verdict=verdict,
            reason=reason,
            duration_s=now - self._began,
            suites_s=0.0 if self._healthy is None else now - self._step_began,
            content=content,
            source=source.resolve() if source else None,
            lease=self._leased.told if self._leased else None,
        )


def not_run(turn: Job, reason: str) -> BoardResult:
    """Return the result of a turn that never began."""
    return BoardResult(
        label=turn.label,
        board=turn.board.full_name,
        kind=turn.kind,
        serial=turn.entry.serial,
        place=turn.entry.place,
        suites=turn.entry.suites or (),
        verdict=BoardVerdict.NOT_RUN,
        reason=reason,
    )
