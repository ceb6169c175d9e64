# SPDX-License-Identifier: Apache-2.0
"""Reads and compares reports of ``hil``, and writes a project that creates some."""

from pathlib import Path
from typing import Any

from utvm.hil import schemas


def read_report(reports: Path) -> dict[str, Any]:
    """Return the latest report below a folder, validated by its schema."""
    return schemas.read_report(reports / "latest" / "report.json")


def without_time_and_place(report: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a report that docs/report.md compares."""
    rest = {key: value for key, value in report.items() if key not in ("run_id", "started")}
    rest["environment"] = {key: value for key, value in report["environment"].items() if key != "place"}
    rest["tests"] = [{key: value for key, value in test.items() if key != "duration_s"} for test in report["tests"]]
    return rest


_SUITE = """
from pathlib import Path

def test_passes():
    assert Path("data.txt").read_text() == "from outside"

def test_fails():
    assert Path("data.txt").read_text() == "from here"
"""


def own_project(folder: Path) -> Path:
    """Write a project whose suite reads one of its files; one of its two tests fails."""
    project = folder / "my project"
    (project / "hil").mkdir(parents=True)
    (project / "utvm.yaml").write_text("boards: [{board: host}]\n")
    (project / "data.txt").write_text("from outside")
    (project / "hil" / "test_mine.py").write_text(_SUITE)
    return project
