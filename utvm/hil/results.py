# SPDX-License-Identifier: Apache-2.0
"""Records of a run's report, and the rules for its verdict."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from utvm import drivers, errors
from utvm.base import fields_of
from utvm.base.text.quoting import encodable_tree
from utvm.firmware import Firmware
from utvm.provenance.location import Checkout

SCHEMA_VERSION = 5


class Outcome(str, enum.Enum):
    """Outcome of one test.

    ``FAILED``: the board gave a wrong answer. ``ERROR``: a mistake in the test itself. ``INFRASTRUCTURE``: no
    answer, because the probe, OpenOCD, the board or the host failed. ``SKIPPED``: this board cannot run it.
    ``NOT_RUN``: the run ended before or during it.
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_RUN = "not run"
    ERROR = "error"
    INFRASTRUCTURE = "infrastructure"

    @property
    def has_trouble(self) -> bool:
        """True if the report shows its message: failed, error or infrastructure."""
        return self in (Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE)


class Verdict(str, enum.Enum):
    """Verdict on a run, or on the job of a nightly run; ``BAD``: its board failed the health check."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    INFRASTRUCTURE = "infrastructure"
    BAD = "bad"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"

    @property
    def exit_code(self) -> errors.ExitCode:
        return _EXIT_CODES.get(self, errors.ExitCode.INFRASTRUCTURE)


_EXIT_CODES = {
    Verdict.PASSED: errors.ExitCode.PASSED,
    Verdict.FAILED: errors.ExitCode.FAILED,
    # Like wrong usage: the suite itself must be corrected.
    Verdict.ERROR: errors.ExitCode.USAGE,
}


@dataclass(frozen=True)
class CaseResult:
    """One test of a suite: pytest's node id, outcome, and reason.

    ``message`` is a few lines; ``details`` is a traceback or captured output.
    """

    node: str
    outcome: Outcome
    duration_s: float
    message: str = ""
    details: str = ""

    @property
    def id(self) -> str:
        return case_id(self.node)

    @property
    def suite(self) -> str:
        return self.node.partition("::")[0].rpartition("/")[2]

    @property
    def name(self) -> str:
        return self.node.partition("::")[2] or self.suite


@dataclass(frozen=True)
class ModelResult:
    """A model that a suite ran on the board.

    Attributes:
        id: :attr:`utvm.compiler.Model.digest`, independent of the compiler; None without a model file.
        outputs_sha256: hex digest over the bytes of all outputs of all samples, in order.
        confusion: ``confusion[label][prediction]`` in samples; empty without labels.
    """

    id: str | None
    name: str
    executor: str
    outputs_sha256: str
    figures: Mapping[str, Any]
    firmware: Firmware
    confusion: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Whereabouts:
    """Location of the run and its installed packages, which differ from computer to computer.

    Attributes:
        kind: one of :data:`utvm.provenance.location.LocationKind`.
        environment: digest of the checkout's locks if exactly these packages are installed (*frozen*), else empty.
        lease: :attr:`utvm.provenance.location.Lease.record` of a farm's board; else None.
    """

    kind: str
    environment: str
    installed: str
    hostname: str
    tools: dict[str, str]
    lease: Mapping[str, Any] | None = None

    @property
    def frozen(self) -> bool:
        return bool(self.environment)

    @property
    def title(self) -> str:
        """Location for a line of output; empty on an unfrozen host."""
        if self.frozen:
            return f"in {self.kind}, environment {self.environment[:12]}"
        return "" if self.kind == "host" else f"in {self.kind}, with other tools than the lock's"


@dataclass(frozen=True)
class Environment:
    """Requested environment, the same in all locations, and the location of the run.

    ``digest`` is a SHA-256 over the locks and the sources of firmware; ``lock`` is over the locks alone.
    """

    digest: str
    lock: str
    place: Whereabouts


@dataclass(frozen=True)
class RunReport:
    """Contents of the report on one run.

    ``statistics`` are the counters of a board by name (docs/rpc.md). ``started`` is in UTC, ISO 8601. ``trouble``
    is the reason if the verdict does not follow from the tests alone: a board error, no tests, an interruption.
    ``duration_s`` is host wall time, for display only; 0 if not measured.
    """

    run_id: str
    started: str
    checkout: Checkout
    board: drivers.BoardIdentity
    environment: Environment
    cases: tuple[CaseResult, ...]
    models: tuple[ModelResult, ...]
    verdict: Verdict
    trouble: str
    statistics: tuple[tuple[str, Mapping[str, int | str]], ...] = ()
    duration_s: float = 0.0

    def count(self, outcome: Outcome) -> int:
        return sum(case.outcome is outcome for case in self.cases)

    def as_json(self) -> dict[str, object]:
        """Contents of ``report.json``: see docs/report.schema.json."""
        place = self.environment.place
        content = {
            "schema_version": SCHEMA_VERSION,
            **fields_of(self, "run_id", "started"),
            "source": fields_of(self.checkout, "commit", "dirty"),
            "board": board_entry(self.board.name) | fields_of(self.board, "kind", "probe", "serial"),
            "environment": {
                **fields_of(self.environment, "digest", "lock"),
                "place": fields_of(place, "kind", "hostname", "frozen", "environment", "installed", "tools", "lease"),
            },
            "tests": [
                fields_of(case, "id", "node", "outcome", "duration_s", "message")
                | {"outcome": case.outcome.value, "duration_s": round(case.duration_s, 3)}
                for case in self.cases
            ],
            "models": [
                fields_of(model, "id", "name", "executor", "outputs_sha256")
                | {"image_sha256": model.firmware.digest, **model.figures}
                for model in self.models
            ],
            "statistics": [{"name": name, "values": dict(values)} for name, values in self.statistics],
            "verdict": self.verdict.value,
            "trouble": self.trouble,
            "exit_code": int(self.verdict.exit_code),
        }
        # Tests may put invalid Unicode into messages and names; files and the history hold UTF-8.
        return dict(encodable_tree(content))


def case_id(node: str) -> str:
    """Return the id of a test in all reports: ``SUITE::TEST[PARAMETERS]``.

    The suite is its file name without folders, ``test_`` and ``.py``: pytest's node id has a path that depends on
    the folder pytest started in.
    """
    file, separator, name = node.partition("::")
    return file.rpartition("/")[2].removeprefix("test_").removesuffix(".py") + separator + name


def board_entry(spelling: str) -> dict[str, object]:
    """Return ``board`` of a report from the board's name with settings."""
    name, _, kind = spelling.partition(":")
    settings = dict(pair.split("=", 1) for pair in kind.split(",") if pair)
    return {"id": spelling, "name": name, "settings": settings}


def decide(cases: Iterable[CaseResult], *, trouble: str, interrupted: bool) -> tuple[Verdict, str]:
    """Return the verdict on a run, and its reason if the tests alone do not give it.

    An incomplete run takes precedence, since a test without an answer might have failed. Next comes an error in
    the suite; a run without tests is such an error.

    Args:
        trouble: error of probe, board or host outside the tests, or empty.
    """
    first = {case.outcome: case for case in reversed(list(cases))}
    if interrupted:
        return Verdict.INTERRUPTED, "interrupted before the end"
    if Outcome.INFRASTRUCTURE in first:
        trouble = f"infrastructure trouble in {_brief(first[Outcome.INFRASTRUCTURE])}"
    if trouble:
        return Verdict.INFRASTRUCTURE, trouble
    if Outcome.ERROR in first:
        return Verdict.ERROR, _brief(first[Outcome.ERROR])
    if Outcome.FAILED in first:
        return Verdict.FAILED, ""
    if Outcome.PASSED not in first:
        return Verdict.ERROR, "no test ran"
    return Verdict.PASSED, ""


def first_line(text: str) -> str:
    """Return the first line of a message, without a trailing clause that introduces the next lines."""
    first = text.partition("\n")[0]
    return first.rpartition("; ")[0] or first[:-1] if first.endswith(":") else first


def _brief(case: CaseResult) -> str:
    return f"{case.node}: {first_line(case.message)}"
