# SPDX-License-Identifier: Apache-2.0
"""One board's turn while it runs: its health check, then its suites, each as ``./inv hil`` in its own process."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from utvm.choice import BoardChoice, PlaceChoice, ReportChoice, SuiteChoice, Wish
from utvm.errors import ConfigError, ExitCode, ProbeError
from utvm.hil.nightly.plan import Turn
from utvm.hil.nightly.results import BoardResult, BoardVerdict
from utvm.hil.reading import first_trouble, read
from utvm.options import words
from utvm.process import Job

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
    """

    def __init__(self, turn: Turn, folder: Path, stack: contextlib.ExitStack) -> None:
        self.turn = turn
        self._folder = folder
        self._stack = stack
        self._began = time.monotonic()
        self._step_began = self._began
        self._late = False
        self._healthy: Mapping[str, Any] | None = None
        self._job = self._start(HEALTH, turn.choice, [HEALTH])

    def poll(self) -> BoardResult | None:
        """Go on where the board has got to; return the result once there is one."""
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
        return ended

    def interrupt(self) -> None:
        """Tell the process to end, without waiting for it."""
        self._job.ask_to_end()

    def interrupted(self, deadline: float) -> BoardResult:
        """Return what there is of a result, after :meth:`interrupt`.

        Args:
            deadline: until when to wait for the process, by the monotonic clock.
        """
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
        kind = "auto" if health.kind == "process" else cast(Wish, health.kind)
        choice = dataclasses.replace(self.turn.choice, kind=kind, serial=serial)
        self._job = self._start("suites", choice, self.turn.entry.suites or ())

    def _start(self, step: str, choice: BoardChoice, suites: Sequence[str]) -> Job:
        folder = self._folder / step
        command = [
            *(sys.executable, "-c", _START, "hil"),
            *words(choice),
            *words(PlaceChoice(self.turn.entry.place)),
        ]
        command += [*words(ReportChoice(str(folder / "reports"))), *words(SuiteChoice(",".join(suites)))]
        job = Job(f"the {step} run", command, log=folder / "output.txt", error=ProbeError)
        return self._stack.enter_context(job)

    def _ended(self) -> BoardResult:
        """Return what the process that has ended left: its verdict, or why there is none."""
        code = self._job.exit_code
        source = self._job.log.parent / "reports" / "latest"
        content = None
        with contextlib.suppress(ConfigError):
            content = read(source / "report.json")
        verdict, reason = BoardVerdict.INFRASTRUCTURE, ""
        if self._late:
            reason = f"took longer than {self.turn.entry.minutes:g} minutes and was ended"
        elif content is None:
            reason = self._last_words(code)
        elif content["exit_code"] != code:
            reason = f"ended with exit code {code}, but its report says {content['exit_code']}"
        else:
            verdict = BoardVerdict(content["verdict"])
            reason = content["trouble"] or first_trouble(content)
        if self._healthy is None and verdict is not BoardVerdict.PASSED:
            verdict, reason = BoardVerdict.BAD, f"health check: {reason}"
        return self._result(verdict, reason, content, source if content else None)

    def _last_words(self, code: int) -> str:
        """Return why the process ended before it could report: its error, or else the end of what it said."""
        said = self._job.log_tail()
        _, error, words = said.rpartition("error: ")
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
            board=self.turn.board.spoken,
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
        )


def not_run(turn: Turn, reason: str) -> BoardResult:
    """Return the result of a turn that never began."""
    return BoardResult(
        label=turn.label,
        board=turn.board.spoken,
        kind=turn.kind,
        serial=turn.entry.serial,
        place=turn.entry.place,
        suites=turn.entry.suites or (),
        verdict=BoardVerdict.NOT_RUN,
        reason=reason,
    )
