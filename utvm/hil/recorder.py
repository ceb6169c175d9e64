# SPDX-License-Identifier: Apache-2.0
"""From pytest's reports, phase by phase, to one result a test."""

from dataclasses import dataclass, field

import pytest

from utvm.errors import UtvmError
from utvm.hil.judge import cause_of
from utvm.hil.results import CaseResult, Outcome

_SEVERITY = (Outcome.PASSED, Outcome.SKIPPED, Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE)
_WHOSE = {Outcome.ERROR: "error in the test: "}


@dataclass
class _Phases:
    outcome: Outcome = Outcome.PASSED
    duration_s: float = 0.0
    messages: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)


class Recorder:
    """Collects the phases of the test that is running: set-up, call, tear-down."""

    def __init__(self) -> None:
        self._phases = _Phases()
        self._causes: dict[str, str] = {}

    def add(
        self, report: pytest.TestReport, outcome: Outcome, error: BaseException | None, trouble: str = ""
    ) -> None:
        """Take the report on one phase.

        Args:
            error: what was raised in it.
            trouble: what is wrong with the board, if that is what the error comes from.
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
            # One disk is full for all tests that follow, and is said to be so once.
            first = self._causes.setdefault(cause_of(error, message), report.nodeid)
            if first != report.nodeid:
                phases.messages.append(f"the same trouble as in {first}")
                return
        phases.messages.append(f"{_WHOSE.get(outcome, '')}{message}")
        if not isinstance(error, UtvmError):
            phases.details.append(report.longreprtext)
        phases.details += [f"--- {title} ---\n{text}" for title, text in report.sections]

    def take(self, test: str) -> CaseResult:
        """Return the result of the test that has ended, and be ready for the next."""
        phases, self._phases = self._phases, _Phases()
        return CaseResult(
            test,
            phases.outcome,
            phases.duration_s,
            message="\n".join(phases.messages),
            details="\n".join(phases.details),
        )


def loading_failure(report: pytest.CollectReport, outcome: Outcome) -> CaseResult:
    """Return the result for a suite that cannot be loaded."""
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
