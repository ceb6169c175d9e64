# SPDX-License-Identifier: Apache-2.0
"""Outcome of each test, from pytest's reports and the exception that ended it.

An exception may come from the board, the host, or the suite. Only the errors listed here count as failures of the
board; any other error means that there is no verdict on the board.
"""

import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

import pytest

import utvm
from utvm.errors import BoardError, UtvmError
from utvm.hil.results import CaseResult, Outcome

_OURS = Path(utvm.__file__).parent
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))

# Host problems: disk space, permissions, memory, a missing module, a failing tool.
_ENVIRONMENT = (OSError, MemoryError, ImportError, subprocess.SubprocessError, UtvmError)


def judge(error: BaseException | None, suite: Path) -> Outcome:
    """Return the outcome of a phase that ended with an exception while the board still answers.

    Args:
        error: None if pytest itself failed the test (strict xfail that passed).
    """
    if error is None or isinstance(error, BoardError):
        return Outcome.FAILED
    if isinstance(error, _ENVIRONMENT):
        return Outcome.INFRASTRUCTURE
    origin = _origin(error.__traceback__, suite)
    if origin == "utvm":
        return Outcome.INFRASTRUCTURE
    if isinstance(error, AssertionError | pytest.fail.Exception) and origin == "suite":
        return Outcome.FAILED
    return Outcome.ERROR


def judge_loading(error: BaseException, suite: Path) -> Outcome:
    # pytest wraps an error raised in an import.
    cause = error.__cause__ or error
    outcome = judge(cause, suite)
    return Outcome.ERROR if outcome is Outcome.FAILED else outcome


def cause_of(error: BaseException, output: str) -> str:
    """Return a key that is equal for errors with the same cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None:
            return f"errno {cause.errno}"
        cause = cause.__cause__
    return output


def _origin(trace: TracebackType | None, suite: Path) -> Literal["utvm", "suite", ""]:
    """Origin of the last call: utvm, or the suite with its helpers, which are not installed.

    An error raised inside numpy belongs to its caller.
    """
    origin: Literal["utvm", "suite", ""] = ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(_OURS):
            origin = "utvm"
        elif file == suite or (file.is_file() and not any(file.is_relative_to(place) for place in _INSTALLED)):
            origin = "suite"
        trace = trace.tb_next
    return origin


_SEVERITY = (Outcome.PASSED, Outcome.SKIPPED, Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE)
_PREFIXES = {Outcome.ERROR: "error in the test: "}


@dataclass
class _Phases:
    outcome: Outcome = Outcome.PASSED
    duration_s: float = 0.0
    messages: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)


class Recorder:
    """Collects the phases of the running test: setup, call, teardown."""

    def __init__(self) -> None:
        self._phases = _Phases()
        self._causes: dict[str, str] = {}

    def add(self, report: pytest.TestReport, outcome: Outcome, error: BaseException | None, trouble: str = "") -> None:
        """Add the report of one phase.

        Args:
            trouble: the board's problem, if it caused the error.
        """
        phases = self._phases
        phases.duration_s += report.duration
        if _SEVERITY.index(outcome) > _SEVERITY.index(phases.outcome):
            phases.outcome = outcome
        if trouble:
            phases.messages.append(trouble)
        elif outcome is Outcome.SKIPPED:
            phases.messages.append(_skip_reason(report))
        elif outcome is not Outcome.PASSED:
            self._explain(phases, report, outcome, error)

    def _explain(
        self, phases: _Phases, report: pytest.TestReport, outcome: Outcome, error: BaseException | None
    ) -> None:
        message = _failure(report, error)
        if outcome is Outcome.INFRASTRUCTURE and error is not None:
            # A full disk affects all following tests; report it once.
            first = self._causes.setdefault(cause_of(error, message), report.nodeid)
            if first != report.nodeid:
                phases.messages.append(f"the same trouble as in {first}")
                return
        phases.messages.append(f"{_PREFIXES.get(outcome, '')}{message}")
        if not isinstance(error, UtvmError):
            phases.details.append(report.longreprtext)
        phases.details += [f"--- {title} ---\n{text}" for title, text in report.sections]

    def take(self, test: str) -> CaseResult:
        phases, self._phases = self._phases, _Phases()
        return CaseResult(
            test,
            phases.outcome,
            phases.duration_s,
            message="\n".join(phases.messages),
            details="\n".join(phases.details),
        )


def loading_failure(report: pytest.CollectReport, outcome: Outcome) -> CaseResult:
    lines = report.longreprtext.strip().splitlines()
    return CaseResult(
        report.nodeid,
        outcome,
        0.0,
        message=f"the suite cannot be loaded: {lines[-1] if lines else 'no reason given'}",
        details=report.longreprtext,
    )


def _skip_reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext


def _failure(report: pytest.TestReport, error: BaseException | None) -> str:
    phase = "" if report.when == "call" else f"in {report.when}: "
    if isinstance(error, UtvmError):
        return phase + str(error)
    crash = getattr(report.longrepr, "reprcrash", None)
    return phase + (str(crash.message) if crash is not None else report.longreprtext)
