# SPDX-License-Identifier: Apache-2.0
"""Results of a nightly run, its report, and the message on changed tests.

A report is ``nightly.json``, ``junit.xml``, ``index.html``, and the report of each board. Its directory appears by
one atomic rename; names sort by start time.
"""

import contextlib
import itertools
import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utvm import drivers, errors, pages
from utvm.base import fields_of
from utvm.base.storage.files import write_whole
from utvm.hil import display, figures, html, limits, schemas
from utvm.hil.report import FILES, logs_beside, publish, write_texts, xml_document
from utvm.hil.results import Outcome, Verdict, board_entry, first_line
from utvm.provenance.location import Checkout

SCHEMA_VERSION = 5


@dataclass(frozen=True)
class BoardResult:
    """Result of one job.

    Attributes:
        board: kind ``auto`` if the run ended before the kind was known.
        content: ``report.json`` of the suites, else of the health check; None without a report.
        lease: lease of a farm's board, with those tried earlier; else None.
    """

    label: str
    board: drivers.BoardIdentity
    place: str
    suites: tuple[str, ...]
    verdict: Verdict
    reason: str
    duration_s: float = 0.0
    suites_s: float = 0.0
    content: Mapping[str, Any] | None = None
    source: Path | None = None
    lease: Mapping[str, Any] | None = None

    @property
    def full_name(self) -> str:
        """Board for a line of output, with its location unless that is the host."""
        return self.board.full_name + ("" if self.place == "host" else f" in {self.place}")

    @property
    def models(self) -> Sequence[Mapping[str, Any]]:
        return self.content["models"] if self.content else ()

    def count(self, outcome: Outcome) -> int:
        return sum(test["outcome"] == outcome.value for test in self.content["tests"]) if self.content else 0

    def as_json(self) -> dict[str, object]:
        return {
            "label": self.label,
            **board_entry(self.board.name),
            **fields_of(self.board, "kind", "serial"),
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
    """Contents of the report on a nightly run. ``started`` is in UTC, ISO 8601.

    ``advisories`` apply to locked packages (None if not checked) and do not change the verdict.
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
        """Worst verdict; as in a single run, no verdict is worse than a failed test."""
        codes = {result.verdict.exit_code for result in self.boards}
        if self.interrupted:
            return Verdict.INTERRUPTED
        if errors.ExitCode.INFRASTRUCTURE in codes:
            return Verdict.INFRASTRUCTURE
        if errors.ExitCode.USAGE in codes:
            return Verdict.ERROR
        return Verdict.FAILED if errors.ExitCode.FAILED in codes else Verdict.PASSED

    def count(self, verdict: Verdict) -> int:
        return sum(result.verdict is verdict for result in self.boards)

    def as_json(self) -> dict[str, object]:
        return {
            "schema_version": SCHEMA_VERSION,
            **fields_of(self, "run_id", "started"),
            "source": fields_of(self.checkout, "commit", "dirty"),
            "hostname": self.checkout.hostname,
            "jobs": self.jobs,
            "duration_s": round(self.duration_s, 1),
            "boards": [result.as_json() for result in self.boards],
            **({} if self.advisories is None else {"advisories": dict(self.advisories)}),
            "verdict": self.verdict.value,
            "exit_code": int(self.verdict.exit_code),
        }


_WORST_FIRST = tuple(map(Outcome, ("infrastructure", "error", "failed", "not run", "passed", "skipped")))


@dataclass(frozen=True)
class TestOfNight:
    """A test and its outcomes on the boards."""

    __test__ = False  # pytest would collect the class by its name.

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
    def summary(self) -> str:
        """Outcomes with the number of boards that passed and the names of the others."""
        parts = []
        for outcome in _WORST_FIRST:
            boards = self.boards.get(outcome, ())
            if boards and outcome is Outcome.PASSED:
                parts.append(f"passed on {len(boards)}")
            elif boards:
                parts.append(f"{outcome.value} on {', '.join(boards)}")
        return "; ".join(parts)


def tests_of(results: Sequence[BoardResult]) -> list[TestOfNight]:
    outcomes: dict[str, dict[Outcome, list[str]]] = {}
    for result in results:
        for test in result.content["tests"] if result.content else ():
            outcomes.setdefault(test["id"], {}).setdefault(Outcome(test["outcome"]), []).append(result.label)
    return [TestOfNight(name, boards) for name, boards in outcomes.items()]


# The page must stay under 300 KB.
_TESTS = 600


def write_report(report: NightlyReport, root: Path) -> Path:
    """Write a report below ``root``, point ``root/latest`` at it, and return its directory."""
    content = report.as_json()
    schemas.check_schema(content, schemas.NIGHTLY)

    def fill(temporary: Path) -> None:
        for result in report.boards:
            if result.source is not None:
                (temporary / result.label).mkdir()
                _copy(result.source, temporary / result.label, root / report.run_id / result.label)
        write_texts(
            temporary,
            {
                "nightly.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
                "junit.xml": render_junit(report),
                "index.html": render_html(report, root),
            },
        )

    return publish(root, report.run_id, fill)


def _copy(source: Path, target: Path, final: Path) -> None:
    """Copy a board's report and adapt the links to its logs, which are not moved."""
    for file in FILES:
        shutil.copyfile(source / file, target / file)
    logs = logs_beside(source.parent) / source.name
    old, new = (f'href="{html.href_from(logs, folder)}' for folder in (source, final))
    page = target / "index.html"
    page.write_text(page.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")


def render_html(report: NightlyReport, root: Path) -> str:
    """Render the page: troubled boards, all boards, models, and tests."""

    def output_of(result: BoardResult) -> list[html.LogTail]:
        tails = html.log_tails(root / "logs" / report.run_id / result.label, root / report.run_id)
        return [tail for tail in tails if tail.name.endswith("output.txt")]

    tests = sorted(tests_of(report.boards), key=lambda test: not test.outcome.has_trouble)
    suites: dict[str, list[TestOfNight]] = {}
    for test in tests[:_TESTS]:
        suites.setdefault(test.suite, []).append(test)
    models: dict[str, list[tuple[BoardResult, object]]] = {}
    for result in report.boards:
        for model in result.models:
            models.setdefault(model["name"], []).append((result, model))
    template = pages.pages_of("utvm.hil").get_template("nightly.html.j2")
    return template.render(
        report=report,
        facts=tuple(_facts(report)),
        troubled=[result for result in report.boards if result.verdict is not Verdict.PASSED],
        output=output_of,
        suites=suites,
        open_suites=html.open_suites(suites),
        counts=[(outcome.value, sum(test.outcome is outcome for test in tests)) for outcome in Outcome],
        left_out=max(0, len(tests) - _TESTS),
        headline=html.HEADLINES[report.verdict],
        outcomes=Outcome,
        models=models,
        figures=figures.present_figures(model for result in report.boards for model in result.models),
    )


def _facts(report: NightlyReport) -> Iterator[tuple[str, str]]:
    for verdict in Verdict:
        if report.count(verdict) or verdict is Verdict.PASSED:
            yield verdict.value, f"{report.count(verdict)} of {len(report.boards)} boards"
    yield from html.facts_of_run(report.verdict, report.checkout, report.started, report.duration_s)


def render_junit(report: NightlyReport) -> str:
    """Return JUnit XML with one suite per board, named by its label.

    A board that did not pass but has no failing case gets one extra case.
    """
    root = ET.Element("testsuites")
    for result in report.boards:
        suite = _suite(result)
        suite.set("name", result.label)
        root.append(suite)
    return xml_document(root)


def _suite(result: BoardResult) -> ET.Element:
    existing = ET.parse(result.source / "junit.xml").getroot().find("testsuite") if result.source else None
    counters = ("tests", "failures", "errors", "skipped")
    suite = ET.Element("testsuite", dict.fromkeys(counters, "0")) if existing is None else existing
    is_open = any(suite.get(counter, "0") != "0" for counter in ("failures", "errors"))
    if result.verdict is not Verdict.PASSED and not is_open:
        kind = "failure" if result.verdict.exit_code is errors.ExitCode.FAILED else "error"
        case = ET.SubElement(suite, "testcase", classname="nightly", name=result.verdict.value, time="0.000")
        ET.SubElement(case, kind, message=result.reason)
        for counter in ("tests", f"{kind}s"):
            suite.set(counter, str(int(suite.get(counter, "0")) + 1))
    return suite


def last_line(report: NightlyReport) -> str:
    """Return the verdict in one line: counts per verdict, boards with trouble, exit code."""
    counts = [f"{report.count(verdict)} {verdict.value}" for verdict in Verdict if report.count(verdict)]
    troubled = [f"{result.label} {result.verdict.value}" for result in report.boards if result.verdict.exit_code]
    return (
        f"{display.VERDICTS[report.verdict][0]}: {len(report.boards)} boards, {', '.join(counts)}"
        + (f" ({', '.join(troubled)})" if troubled else "")
        + f"; exit code {int(report.verdict.exit_code)}"
    )


_NIGHTS = 30  # How many nights to search for a test's last outcome.
_DECISIVE = ("passed", "failed", "error")
State = dict[tuple[str, str], str]
"""Label of a board and test -> outcome. The empty test is ``failed`` on a board without a verdict."""


def _state(boards: Iterable[tuple[str, str, Mapping[str, Any] | None]]) -> State:
    """Return the state of boards, given by label, verdict and ``report.json``."""
    state = {}
    for label, verdict, content in boards:
        if verdict not in ("interrupted", "not run"):
            state[label, ""] = "passed" if verdict in _DECISIVE else "failed"
        for test in content.get("tests", ()) if content else ():
            if test["outcome"] in _DECISIVE:
                state[label, test["id"]] = test["outcome"]
    return state


@dataclass(frozen=True)
class News:
    """Tests and boards that differ from their last state in earlier nightly reports.

    Attributes:
        broken: failing tests that did not fail before, and boards that no longer have a verdict.
        recovered: tests and boards that were broken before and no longer are.
        failing: number of tests and boards that were broken before and still are.
    """

    broken: tuple[str, ...]
    recovered: tuple[str, ...]
    failing: int


def find_news(report: NightlyReport, root: Path) -> News:
    """Compare a nightly run with earlier ones in the history and in the reports below ``root``."""
    now = _state((result.label, result.verdict.value, result.content) for result in report.boards)
    before: State = {}
    nights = sorted(root.glob("[0-9]*/nightly.json"), reverse=True)[:_NIGHTS]
    known = itertools.islice(limits.earlier_boards(root, report.started), _NIGHTS * len(report.boards))
    for board in itertools.chain(known, *map(_read_boards, nights)):
        before = _state([board]) | before
        if before.keys() >= now.keys():
            break
    was = {key: before.get(key, "passed") == "passed" for key in now}
    return News(
        tuple(_name(key) for key in now if now[key] != "passed" and was[key]),
        tuple(_name(key) for key in now if now[key] == "passed" and not was[key]),
        sum(now[key] != "passed" and not was[key] for key in now),
    )


def _name(key: tuple[str, str]) -> str:
    label, test = key
    return f"{test} on {label}" if test else label


def _read_boards(path: Path) -> Iterator[tuple[str, str, Mapping[str, Any] | None]]:
    """Yield the boards of a nightly report; none if the file is damaged."""
    for board in _read(path).get("boards", ()):
        yield board["label"], board["verdict"], _read(path.parent / board["report"]) if board["report"] else None


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}


# Key of the text in a service's JSON, and its other keys; a mail is plain text, without JSON. Sources:
# api.slack.com/messaging/webhooks; spec.matrix.org, m.room.message.
_SERVICES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "mail": ("", {}),
    "webhook": ("text", {"source": "utvm"}),
    "slack": ("text", {}),
    "matrix": ("body", {"msgtype": "m.text"}),
}


def parse_targets(notify: str) -> list[tuple[str, Path]]:
    """Return formats and files of ``--notify``: ``FILE``, or ``FORMAT:FILE``, separated by commas."""
    targets = []
    for word in filter(None, notify.split(",")):
        name, colon, file = word.partition(":")
        if colon and name not in _SERVICES:
            raise errors.ConfigError(f"--notify {word}: no format {name}", f"formats: {', '.join(_SERVICES)}")
        targets.append((name, Path(file)) if colon else ("mail", Path(word)))
    return targets


def write_message(target: tuple[str, Path], report: NightlyReport, news: News) -> None:
    """Write a message on changed tests, above messages in the file that were not delivered yet."""
    if not news.broken and not news.recovered:
        return
    key, more = _SERVICES[target[0]]
    text, path = _message(report, news), target[1]
    if path.is_file():
        before = path.read_text(encoding="utf-8", errors="replace")
        text += "\n" + str(_read(path).get(key, before) if key else before)
    write_whole(path, json.dumps({**more, key: text}) + "\n" if key else text)


def _message(report: NightlyReport, news: News) -> str:
    counts = (("broken", len(news.broken)), ("recovered", len(news.recovered)), ("still failing", news.failing))
    subject = ", ".join(f"{count} {word}" for word, count in counts if count)
    lines = [f"nightly run {report.run_id}: {subject}", "", last_line(report)]
    lines += [f"broken: {name}" for name in news.broken]
    lines += [f"recovered: {name}" for name in news.recovered]
    lines += [
        f"{result.full_name}: {result.verdict.value}; {first_line(result.reason)}".removesuffix("; ")
        for result in report.boards
        if result.verdict.exit_code
    ]
    return "".join(f"{line}\n" for line in lines)
