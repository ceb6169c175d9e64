# SPDX-License-Identifier: Apache-2.0
"""Failures at the start of a run; the fault campaign found them."""

import pytest

from tests.hil.running import Runner

pytestmark = pytest.mark.slow

_PASSING = "def test_one(board):\n    assert board.resets == 1\n"


def test_early_interrupt_reports_no_start(run_suite: Runner) -> None:
    """Other plugins start after utvm's unless it lets them go first; a run with a printed id must write a report."""
    plugin = "import signal\ndef pytest_sessionstart(): signal.raise_signal(signal.SIGTERM)\n"
    completed = run_suite(_PASSING, files={"conftest.py": plugin})
    assert (", run 2" in completed.stdout) == (completed.reports / "latest").exists()
    assert completed.exit_code != 0


def test_board_without_file_handles_is_infrastructure(run_suite: Runner) -> None:
    completed = run_suite(_PASSING, attach="no files")
    assert (completed.exit_code, completed.report["verdict"]) == (3, "infrastructure")
    assert "Too many open files" in completed.lines[-1]
    assert "INTERNALERROR" not in completed.stdout + completed.stderr
