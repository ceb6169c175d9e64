# SPDX-License-Identifier: Apache-2.0
"""What others read of the last night."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.reports import BAD, GOOD, project, report_of
from tests.pages.samples import a_night, run_that_passed
from utvm.hil.nightly import report as nightly
from utvm.hil.nightly.report import previous_verdict, write_message
from utvm.history import record
from utvm.history.changes import limit_crossing
from utvm.history.store import open_history

__all__ = ["project"]

_FILE = Path("build") / "history.sqlite"


def _nights(*tests: str) -> None:
    failed = {"test_a,b": "failed", **dict.fromkeys(tests, "passed")}
    first = report_of(1, tests=dict.fromkeys(failed, "passed"), models={"digits": {"instructions": 1000}})
    second = report_of(2, BAD, tests=failed, models={"digits": {"instructions": 1100}})
    lost = report_of(2, BAD, tests={"test_a,b": "infrastructure"}, board="host", kind="process")
    assert record(_FILE, first, second, lost) == ""


def test_prometheus_reads_which_boards_are_up(project: Path) -> None:
    _nights()
    lines = inv("history.export", "--format", "metrics").stdout.splitlines()
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}
    stm32, host = (
        f'{{name="{name}",kind="{kind}",serial=""}}'
        for name, kind in (("stm32f746", "virtual"), ("host", "process"))
    )
    assert samples[f"utvm_board_up{stm32}"] == samples[f"utvm_board_up_ratio{stm32}"] == 1
    assert samples[f"utvm_board_up{host}"] == samples[f"utvm_board_up_ratio{host}"] == 0
    assert samples[f"utvm_board_last_run_timestamp_seconds{stm32}"] == 1793581200  # 2026-11-02 01:00 UTC
    form = re.compile(r'# (HELP \w+ .+|TYPE \w+ gauge)|\w+\{(\w+="[^"]*",?)+\} [0-9.e+]+')
    assert all(form.fullmatch(line) for line in lines)


def test_a_summary_annotations_and_a_badge_say_what_failed(project: Path) -> None:
    _nights("test_c")
    summary = inv("history.export", "--format", "summary").stdout
    assert summary.startswith("## Boards: infrastructure\n")
    assert "| it::test_a,b | VIRTUAL stm32f746 | it said 3 |" in summary
    row = f"1000 | 1100 +100 (+10.00 %) | {GOOD[:8]}..{BAD[:8]} |"
    assert f"| instructions, digits (host-driven) | VIRTUAL stm32f746 | {row}" in summary
    said = inv("history.export", "--format", "annotations").stdout
    assert said == "::error title=it%3A%3Atest_a%2Cb on VIRTUAL stm32f746::it said 3\n"
    (entry,) = json.loads(inv("history.export", "--format", "quality").stdout)
    assert entry["description"] == "it::test_a,b on VIRTUAL stm32f746: it said 3"
    assert (entry["location"], entry["severity"]) == ({"path": "it", "lines": {"begin": 1}}, "critical")
    assert re.fullmatch("[0-9a-f]{64}", entry["fingerprint"])
    assert inv("history.export", "--format", "badge", "--output", "badge.svg").returncode == 0
    badge = ET.parse(project / "badge.svg").getroot()
    assert badge.get("aria-label") == "boards: infrastructure"
    assert inv("history.export", "--format", "poem").returncode == 2


def test_commit_range_of_a_crossed_limit_is_known(project: Path) -> None:
    _nights()
    with open_history(_FILE) as history:
        asked = (history, "stm32f746", "virtual", "digits", "instructions")
        assert limit_crossing(*asked, 1010) == (GOOD, BAD)
        assert limit_crossing(*asked, 1100) == (BAD, None)
        assert limit_crossing(*asked, 1) == (None, GOOD)


@pytest.mark.slow
def test_a_night_is_told_of_only_if_its_verdict_is_another(project: Path) -> None:
    message = project / "message.txt"
    root = project / "build" / "reports" / "nightly"
    nightly.write_report(a_night((run_that_passed(), None)), root)
    (project / "hil").mkdir()
    (project / "hil" / "test_small.py").write_text("def test_it():\n    assert 3 == 4\n")
    done = inv("nightly", "--notify", "message.txt")
    assert done.returncode == 1, done.stdout
    said = message.read_text().splitlines()
    newest = json.loads((root / "latest" / "nightly.json").read_text())
    assert said[0] == f"nightly run {newest['run_id']}: failed, passed before"
    assert any(line.startswith("PROCESS host: failed; test_small.py::test_it: ") for line in said)
    write_message(message, a_night((run_that_passed(), None)), "passed")
    assert not message.exists()


def test_the_first_night_is_told_of_if_it_has_not_passed(tmp_path: Path) -> None:
    assert previous_verdict(tmp_path / "nothing") == "passed"
