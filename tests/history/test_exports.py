# SPDX-License-Identifier: Apache-2.0
"""Exports and messages about the last nightly run, for other programs."""

import dataclasses
import datetime
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.reports import BAD, GOOD, project, report_of, write
from tests.pages.samples import nightly_report_of, run_that_passed
from utvm.hil.nightly import report as nightly
from utvm.hil.nightly.report import News, find_news, parse_targets
from utvm.hil.results import Verdict
from utvm.history import record
from utvm.history.changes import limit_crossing
from utvm.history.store import open_history

__all__ = ["project"]

_FILE = Path("build") / "history.sqlite"


def _record_nights(*tests: str) -> None:
    failed = {"test_a,b": "failed", **dict.fromkeys(tests, "passed")}
    first = report_of(1, tests=dict.fromkeys(failed, "passed"), models={"digits": {"instructions": 1000}})
    second = report_of(2, BAD, tests=failed, models={"digits": {"instructions": 1100}})
    infrastructure = report_of(2, BAD, tests={"test_a,b": "infrastructure"}, board="host", kind="process")
    assert record(_FILE, first, second, infrastructure) == ""


def test_prometheus_reads_which_boards_are_up(project: Path) -> None:
    _record_nights()
    lines = inv("history.export", "--format", "metrics").stdout.splitlines()
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}
    stm32, host = (
        f'{{name="{name}",kind="{kind}",serial=""}}' for name, kind in (("stm32f746", "virtual"), ("host", "process"))
    )
    assert samples[f"utvm_board_up{stm32}"] == samples[f"utvm_board_up_ratio{stm32}"] == 1
    assert samples[f"utvm_board_up{host}"] == samples[f"utvm_board_up_ratio{host}"] == 0
    assert samples[f"utvm_board_last_run_timestamp_seconds{stm32}"] == 1793581200  # 2026-11-02 01:00 UTC
    pattern = re.compile(r'# (HELP \w+ .+|TYPE \w+ gauge)|\w+\{(\w+="[^"]*",?)+\} [0-9.e+]+')
    assert all(pattern.fullmatch(line) for line in lines)


def test_exports_name_the_failed_test(project: Path) -> None:
    _record_nights("test_c")
    summary = inv("history.export", "--format", "summary").stdout
    assert summary.startswith("## Boards: infrastructure\n")
    assert "| it::test_a,b | VIRTUAL stm32f746 | it said 3 |" in summary
    row = f"1,000 | 1,100 +100 (+10.00 %) | {GOOD[:8]}..{BAD[:8]} |"
    assert f"| instructions, digits (host-driven) | VIRTUAL stm32f746 | {row}" in summary
    # A table in Markdown needs an empty line before it.
    assert "\n\n| changed since" in summary and "\n\n| model | board | figures |" in summary
    job = {"GITHUB_SERVER_URL": "https://x.org", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "7"}
    linked = inv("history.export", "--format", "summary", **job).stdout
    assert linked.startswith("## Boards: infrastructure ([job](https://x.org/a/b/actions/runs/7))\n")
    annotations = inv("history.export", "--format", "annotations").stdout
    assert annotations == "::error title=it%3A%3Atest_a%2Cb on VIRTUAL stm32f746::it said 3\n"
    quality = inv("history.export", "--format", "quality").stdout
    (entry,) = json.loads(quality)
    assert quality == json.dumps([entry], indent=2) + "\n"
    assert entry["description"] == "it::test_a,b on VIRTUAL stm32f746: it said 3"
    assert (entry["location"], entry["severity"]) == ({"path": "it", "lines": {"begin": 1}}, "critical")
    assert re.fullmatch("[0-9a-f]{64}", entry["fingerprint"])
    assert inv("history.export", "--format", "badge", "--output", "badge.svg").returncode == 0
    badge = ET.parse(project / "badge.svg").getroot()
    assert badge.get("aria-label") == "boards: infrastructure"
    assert inv("history.export", "--format", "poem").returncode == 2


def test_commit_range_of_a_crossed_limit(project: Path) -> None:
    _record_nights()
    with open_history(_FILE) as history:
        figure = (history, "stm32f746", "virtual", "digits", "instructions")
        assert limit_crossing(*figure, 1010) == (GOOD, BAD)
        assert limit_crossing(*figure, 1100) == (BAD, None)
        assert limit_crossing(*figure, 1) == (None, GOOD)


_SUITE = "def test_a():\n    assert {a}\n\ndef test_b():\n    assert {b}\n"


@pytest.mark.nightly  # the daily test_hosted has four nights and their messages
def test_broken_or_recovered_test_is_news_once(project: Path) -> None:
    message = project / "message.txt"
    suite = project / "hil" / "test_small.py"
    suite.parent.mkdir()
    nights = (
        (True, True, None),
        (False, True, ["1 broken", "broken: small::test_a on host"]),
        (False, False, ["1 broken, 1 still failing", "broken: small::test_b on host"]),
        (False, False, None),
        (True, False, ["1 recovered, 1 still failing", "recovered: small::test_a on host"]),
    )
    for a, b, news in nights:
        suite.write_text(_SUITE.format(a=a, b=b))
        completed = inv("nightly", "--notify", "message.txt")
        assert completed.returncode == (0 if a and b else 1), completed.stdout
        newest = json.loads((project / "build/reports/nightly/latest/nightly.json").read_text())
        if news is None:
            assert not message.exists()
            continue
        subject, empty, _, line, board = message.read_text().splitlines()
        assert [subject, empty] == [f"nightly run {newest['run_id']}: {news[0]}", ""]
        assert line == news[1]
        assert board.startswith("PROCESS host: failed; test_small.py::test_")
        message.unlink()  # As after sending it.


def test_unsent_messages_are_collected(tmp_path: Path) -> None:
    """A message that was not sent is part of the next one, in the form of every service."""
    passed = run_that_passed()
    lost = dataclasses.replace(passed, verdict=Verdict.BAD, trouble="no answer")
    targets = parse_targets(",".join(f"{name}:{tmp_path / name}" for name in ("mail", "webhook", "slack", "matrix")))
    for night, news in (
        (nightly_report_of((lost, None)), News(("stm32f746",), (), 0)),
        (nightly_report_of((lost, None)), News((), (), 1)),
        (nightly_report_of((passed, None)), News((), ("stm32f746",), 0)),
    ):
        for target in targets:
            nightly.write_message(target, night, news)
    text = (tmp_path / "mail").read_text()
    newest, _, oldest = text.partition("\n\nnightly run ")
    assert newest.splitlines()[0].endswith(": 1 recovered") and "recovered: stm32f746" in newest
    assert "1 broken" in oldest and "broken: stm32f746" in oldest
    assert json.loads((tmp_path / "slack").read_text()) == {"text": text}
    assert json.loads((tmp_path / "matrix").read_text()) == {"msgtype": "m.text", "body": text}
    assert json.loads((tmp_path / "webhook").read_text()) == {"source": "utvm", "text": text}
    assert parse_targets("a.txt") == [("mail", Path("a.txt"))]
    wrong = inv("nightly", "--notify", f"pigeon:{tmp_path / 'x'}")
    assert (wrong.returncode, "formats: mail, webhook, slack, matrix" in wrong.stderr) == (2, True)


def test_summary_has_the_limits_of_figures(project: Path) -> None:
    limits = "{file: a.onnx, samples: a.npz, accuracy: 0.5, instructions: +1 %, flash: 20000, ram: +0 %}"
    (project / "utvm.yaml").write_text(f"boards: [{{board: host}}]\nmodels:\n  digits: {limits}\n")
    baseline = "baseline: {VIRTUAL stm32f746: {digits: {instructions: 1000}}}"
    (project / "utvm-baseline.yaml").write_text(baseline)
    _record_nights()
    summary = inv("history.export", "--format", "summary").stdout
    for text in (
        "accuracy 50.00 % (at least 50.00 %)",
        "flash_bytes 12,432 (at most 20,000)",
        "instructions 1,100 (at most 1,010)",
        "ram_bytes 11,280, samples 4 ",
    ):
        assert text in summary, summary


@pytest.mark.slow
def test_old_runs_and_reports_are_removed(project: Path) -> None:
    days = [report_of(day, tests={f"test_{day}": "passed"}, models={"digits": {}}) for day in (1, 20, 21)]
    old = datetime.date.today() - datetime.date(2026, 11, 10)
    write(project, *days)
    assert record(_FILE, *days) == ""
    logs = project / "build" / "logs" / days[0]["run_id"]
    logs.mkdir(parents=True)
    (logs / "utvm.log").write_text("x" * 5000)
    (project / "build" / "reports" / "latest").symlink_to(days[2]["run_id"])
    completed = inv("history.prune", "--keep", f"{old.days}d")
    assert completed.returncode == 0, completed.stderr
    assert "1 runs removed" in completed.stdout and "1 reports removed" in completed.stdout
    assert not logs.exists() and (project / "build" / "reports" / days[1]["run_id"]).exists()
    with open_history(_FILE) as history:
        assert [row["id"] for row in history.execute("select id from test order by id")] == [
            "it::test_20",
            "it::test_21",
        ]
        assert history.execute("select count(*) from figure").fetchone()[0] == 2 * 6
    completed = inv("history.prune", "--keep", "9999d,0M")
    assert "0 runs removed" in completed.stdout and "1 reports removed" in completed.stdout
    assert [path.name for path in (project / "build" / "reports").glob("2*")] == [days[2]["run_id"]]
    for wrong in ("soon", "400d,2"):
        assert inv("history.prune", "--keep", wrong).returncode == 2


_CASES = "def test_a():\n    assert 1 == 2\n\ndef test_b():\n    assert 1 == 3\n\ndef test_c():\n    pass\n"


@pytest.mark.slow
def test_quarantined_test_fails_no_run_until_its_date(project: Path) -> None:
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text(_CASES)
    entries = [("a", "9999-12-31", ", why: timing"), ("b", "2020-01-01", "")]
    lines = [f"  - {{test: 'small::test_{name}', owner: ada, until: {day}{why}}}\n" for name, day, why in entries]
    (project / "utvm.yaml").write_text("boards: [{board: host}]\nquarantine:\n" + "".join(lines))
    assert inv("hil").returncode == 1
    tests = json.loads((project / "build" / "reports" / "latest" / "report.json").read_text())["tests"]
    assert [test["outcome"] for test in tests] == ["skipped", "failed", "passed"]
    first = "in quarantine until 9999-12-31, by ada: timing; it failed: assert 1 == 2"
    assert tests[0]["message"].startswith(first)
    assert tests[1]["message"].endswith("its quarantine, by ada, ended on 2020-01-01")
    (project / "utvm.yaml").write_text("boards: [{board: host}]\nquarantine: [{test: 'small::test_a'}]\n")
    wrong = inv("hil")
    assert (wrong.returncode, "quarantine.0.owner: Field required" in wrong.stderr) == (2, True)


_LOST_ONCE = """
from pathlib import Path
from utvm.errors import ProbeError

def test_a():
    marker = Path({marker!r})
    if not marker.exists():
        marker.touch()
        raise ProbeError("the cable is loose")
    assert {passes}
"""


@pytest.mark.slow
@pytest.mark.parametrize("passes", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_job_is_repeated_only_without_a_verdict(project: Path, passes: bool) -> None:
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text(_LOST_ONCE.format(marker=str(project / "marker"), passes=passes))
    (project / "utvm.yaml").write_text("boards: [{board: host, reruns: 2}]\n")
    completed = inv("nightly")
    assert (completed.returncode, completed.stdout.count("once more")) == (0 if passes else 1, 1), completed.stdout
    (board,) = json.loads((project / "build/reports/nightly/latest/nightly.json").read_text())["boards"]
    assert board["verdict"] == ("passed" if passes else "failed")
    assert "; before: " in board["reason"] and "the cable is loose" in board["reason"]


@pytest.mark.slow
def test_run_without_a_verdict_is_repeated_with_reruns(project: Path) -> None:
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text(_LOST_ONCE.format(marker=str(project / "marker"), passes=False))
    completed = inv("hil", "--reruns", "2")
    assert (completed.returncode, completed.stdout.count("no verdict; running again")) == (1, 1), completed.stdout
    assert len(list((project / "build/reports").glob("[0-9]*/report.json"))) == 2
    wrong = inv("hil", "--reruns", "6")
    assert (wrong.returncode, "--reruns is 6" in wrong.stderr) == (2, True)


def test_lost_board_is_news_and_interruption_is_not(tmp_path: Path) -> None:
    passed = run_that_passed()
    lost, interrupted = (
        dataclasses.replace(passed, verdict=word, trouble="no answer") for word in (Verdict.BAD, Verdict.INTERRUPTED)
    )
    assert find_news(nightly_report_of((passed, None)), tmp_path) == News((), (), 0)
    assert find_news(nightly_report_of((lost, None)), tmp_path).broken == (passed.board.name,)
    assert find_news(nightly_report_of((interrupted, None)), tmp_path) == News((), (), 0)
    nightly.write_report(nightly_report_of((lost, None)), tmp_path)
    assert find_news(nightly_report_of((lost, None)), tmp_path) == News((), (), 1)
    assert find_news(nightly_report_of((passed, None)), tmp_path).recovered == (passed.board.name,)
    (damaged,) = tmp_path.glob("[0-9]*/nightly.json")
    damaged.write_text("{")
    assert find_news(nightly_report_of((passed, None)), tmp_path) == News((), (), 0)


def test_current_failure_is_listed_once(project: Path) -> None:
    runs = ({"test_a": "failed", "test_b": "failed"}, {"test_a": "failed", "test_b": "passed"})
    # Two runs on one day.
    reports = [report_of(1, BAD, tests=tests, hour=hour) for hour, tests in enumerate(runs, 1)]
    assert record(_FILE, *reports) == ""
    assert inv("history.export", "--format", "annotations").stdout.count("::error") == 1
    assert inv("history.export", "--format", "summary").stdout.count("it::test_a") == 1


def test_interruption_does_not_reduce_uptime(project: Path) -> None:
    passed, interrupted = report_of(1, tests={"test_a": "passed"}), report_of(1, tests={}, hour=2)
    interrupted |= {"verdict": "interrupted"}
    assert record(_FILE, passed, interrupted) == ""
    lines = inv("history.export", "--format", "metrics").stdout.splitlines()
    assert {line[-1] for line in lines if line.startswith(("utvm_board_up{", "utvm_board_up_ratio{"))} == {"1"}
    assert "boards: passed" in inv("history.export", "--format", "badge").stdout


@pytest.mark.slow
def test_figure_has_the_names_of_limits_and_reports(project: Path) -> None:
    first = report_of(1, models={"digits": {"flash_bytes": 1000, "accuracy": 0.9875}})
    second = report_of(2, BAD, models={"digits": {"flash_bytes": 1100, "accuracy": 0.975}})
    assert record(_FILE, first, second) == ""
    names = [inv("history.trend", f"digits:{name}").stdout for name in ("flash", "flash_bytes")]
    assert names[0] == names[1] and "1,100" in names[0]
    wrong = inv("history.trend", "digits:flush")
    assert wrong.returncode == 2
    assert "digits has no figure 'flush'" in wrong.stderr and "accuracy, flash_bytes" in wrong.stderr
    wrong = inv("history.bisect", "digits:flush", "--board", "stm32f746")
    assert (wrong.returncode, "accuracy, flash_bytes" in wrong.stderr) == (2, True)
    changed = inv("history.changes").stdout
    assert "98.75 %" in changed and "97.50 % -1.25 points" in changed and "0.97" not in changed
