"""From pytest's reports, phase by phase, to one result a test."""

from dataclasses import dataclass, field

import pytest

from utvm.errors import UtvmError
from utvm.hil.results import CaseResult, Outcome

_SEVERITY = (Outcome.PASSED, Outcome.SKIPPED, Outcome.FAILED, Outcome.INFRASTRUCTURE)


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

    def add(self, report: pytest.TestReport, error: BaseException | None, trouble: str) -> None:
        """Take the report on one phase.

        Args:
            error: what was raised in it.
            trouble: what is wrong with the infrastructure, if that is what the error comes from.
        """
        phases = self._phases
        phases.duration_s += report.duration
        outcome = Outcome.INFRASTRUCTURE if trouble else Outcome(report.outcome)
        if _SEVERITY.index(outcome) > _SEVERITY.index(phases.outcome):
            phases.outcome = outcome
        if trouble:
            phases.messages.append(trouble)
        elif outcome is Outcome.SKIPPED:
            phases.messages.append(_skip_reason(report))
        elif outcome is Outcome.FAILED:
            phases.messages.append(_failure(report, error))
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


def collection_failure(report: pytest.CollectReport) -> CaseResult:
    """Return a failed result for a suite that cannot be loaded."""
    lines = report.longreprtext.strip().splitlines()
    return CaseResult(
        report.nodeid,
        Outcome.FAILED,
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
