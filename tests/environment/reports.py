# SPDX-License-Identifier: Apache-2.0
"""Reading reports of ``hil``, and what two of them are compared by."""

from pathlib import Path
from typing import Any

from utvm.hil.reading import read


def read_report(reports: Path) -> dict[str, Any]:
    """The latest report below a folder, which is what its schema says."""
    return read(reports / "latest" / "report.json")


def without_time_and_place(report: dict[str, Any]) -> dict[str, Any]:
    """What docs/report.md says that reports are compared by."""
    rest = {key: value for key, value in report.items() if key not in ("run_id", "started")}
    rest["environment"] = {key: value for key, value in report["environment"].items() if key != "place"}
    rest["tests"] = [
        {key: value for key, value in test.items() if key != "duration_s"} for test in report["tests"]
    ]
    return rest
