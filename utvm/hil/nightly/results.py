# SPDX-License-Identifier: Apache-2.0
"""Results of a nightly run: of each board, of each test, and the verdict on the run."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm.drivers import BoardIdentity
from utvm.errors import ExitCode
from utvm.hil.results import Outcome, Verdict, board_entry
from utvm.provenance.checkout import Checkout

SCHEMA_VERSION = 4


class BoardVerdict(str, enum.Enum):
    """Verdict on one job. ``BAD``: the board failed its health check."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    INFRASTRUCTURE = "infrastructure"
    BAD = "bad"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"

    @property
    def exit_code(self) -> ExitCode:
        if self in (BoardVerdict.PASSED, BoardVerdict.FAILED, BoardVerdict.ERROR):
            return Verdict(self.value).exit_code
        return ExitCode.INFRASTRUCTURE


@dataclass(frozen=True)
class BoardResult:
    """Result of one job.

    Attributes:
        label: its name in the report, and of its folder there.
        board: its kind is ``auto`` where the run ended before that was known.
        suites: those that were asked for; none means all.
        reason: why it has not simply passed; an empty string where the tests say it.
        duration_s: of the whole turn, health check included, by this computer's clock.
        suites_s: of its suites alone; 0 where they did not begin.
        content: what its ``report.json`` holds: that of the suites, or else of the health check; None without one.
        source: the folder with that report; None without one.
        lease: of a board of a farm, with those that were tried before; None elsewhere, and where it had none.
    """

    label: str
    board: BoardIdentity
    place: str
    suites: tuple[str, ...]
    verdict: BoardVerdict
    reason: str
    duration_s: float = 0.0
    suites_s: float = 0.0
    content: Mapping[str, Any] | None = None
    source: Path | None = None
    lease: Mapping[str, Any] | None = None

    @property
    def spoken(self) -> str:
        """Board for a line of output, with its kind in capitals, and its location unless that is the host."""
        return self.board.spoken + ("" if self.place == "host" else f" in {self.place}")

    @property
    def models(self) -> Sequence[Mapping[str, Any]]:
        return self.content["models"] if self.content else ()

    def count(self, outcome: Outcome) -> int:
        return sum(test["outcome"] == outcome.value for test in self.content["tests"]) if self.content else 0

    def as_json(self) -> dict[str, object]:
        return {
            "label": self.label,
            **board_entry(self.board.name),
            "kind": self.board.kind,
            "serial": self.board.serial,
            "place": self.place,
            "suites": list(self.suites),
            "verdict": self.verdict.value,
            "exit_code": int(self.verdict.exit_code),
            "reason": self.reason,
            "duration_s": round(self.duration_s, 1),
            "suites_s": round(self.suites_s, 1),
            "counts": {outcome.value: self.count(outcome) for outcome in Outcome},
            "models": list(self.models),
            "environment": self.content["environment"]["digest"] if self.content else "",
            "report": f"{self.label}/report.json" if self.content else "",
            "lease": self.lease,
        }


@dataclass(frozen=True)
class NightlyReport:
    """Everything that is reported about one nightly run. ``started`` is in UTC, ISO 8601.

    ``advisories`` are those that apply to locked packages; None where nobody looked. They change no verdict.
    """

    run_id: str
    started: str
    checkout: Checkout
    jobs: int
    duration_s: float
    boards: tuple[BoardResult, ...]
    interrupted: bool
    advisories: Mapping[str, Any] | None = None

    @property
    def verdict(self) -> Verdict:
        """Worst verdict; a board without a verdict counts as worse than a failed test, as in a single run."""
        codes = {result.verdict.exit_code for result in self.boards}
        if self.interrupted:
            return Verdict.INTERRUPTED
        if ExitCode.INFRASTRUCTURE in codes:
            return Verdict.INFRASTRUCTURE
        if ExitCode.USAGE in codes:
            return Verdict.ERROR
        return Verdict.FAILED if ExitCode.FAILED in codes else Verdict.PASSED

    def count(self, verdict: BoardVerdict) -> int:
        return sum(result.verdict is verdict for result in self.boards)

    def as_json(self) -> dict[str, object]:
        """Contents of ``nightly.json``: see docs/nightly.schema.json."""
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.run_id,
            "started": self.started,
            "source": {"commit": self.checkout.commit, "dirty": self.checkout.dirty},
            "hostname": self.checkout.hostname,
            "jobs": self.jobs,
            "duration_s": round(self.duration_s, 1),
            "boards": [result.as_json() for result in self.boards],
            **({} if self.advisories is None else {"advisories": dict(self.advisories)}),
            "verdict": self.verdict.value,
            "exit_code": int(self.verdict.exit_code),
        }


_WORST_FIRST = (
    Outcome.INFRASTRUCTURE,
    Outcome.ERROR,
    Outcome.FAILED,
    Outcome.NOT_RUN,
    Outcome.PASSED,
    Outcome.SKIPPED,
)


@dataclass(frozen=True)
class TestOfNight:
    """One test.

    Attributes:
        id: as in all reports.
        boards: the labels of the boards on which it ended so.
    """

    __test__ = False  # For pytest, which looks at names.

    id: str
    boards: Mapping[Outcome, Sequence[str]]

    @property
    def suite(self) -> str:
        return self.id.partition("::")[0]

    @property
    def name(self) -> str:
        return self.id.partition("::")[2] or self.id

    @property
    def outcome(self) -> Outcome:
        """Worst outcome; a pass on one board outweighs skips on others."""
        return next(outcome for outcome in _WORST_FIRST if outcome in self.boards)

    @property
    def spoken(self) -> str:
        """Outcomes with numbers of boards; boards without a pass are named."""
        parts = []
        for outcome in _WORST_FIRST:
            where = self.boards.get(outcome, ())
            if where and outcome is Outcome.PASSED:
                parts.append(f"passed on {len(where)}")
            elif where:
                parts.append(f"{outcome.value} on {', '.join(where)}")
        return "; ".join(parts)


def tests_of(results: Sequence[BoardResult]) -> list[TestOfNight]:
    """Collect the tests of all boards' reports, in order of their first appearance."""
    outcomes: dict[str, dict[Outcome, list[str]]] = {}
    for result in results:
        for test in result.content["tests"] if result.content else ():
            outcomes.setdefault(test["id"], {}).setdefault(Outcome(test["outcome"]), []).append(result.label)
    return [TestOfNight(name, boards) for name, boards in outcomes.items()]
