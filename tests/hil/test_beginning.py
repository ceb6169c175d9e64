# SPDX-License-Identifier: Apache-2.0
"""Runs that have trouble while they begin: what the fault campaign has found."""

import pytest

from tests.hil.running import Runner

pytestmark = pytest.mark.slow

_PASSING = "def test_one(board):\n    assert board.resets == 1\n"


def test_early_interrupt_reports_no_start(run_suite: Runner) -> None:
    """Other plugins begin after ours, unless it lets them go first; a run that says its name owes a report."""
    begins = "import signal\ndef pytest_sessionstart(): signal.raise_signal(signal.SIGTERM)\n"
    done = run_suite(_PASSING, files={"conftest.py": begins})
    assert (", run 2" in done.stdout) == (done.reports / "latest").exists()
    assert done.exit_code != 0


def test_a_board_for_which_no_file_can_be_opened_is_trouble(run_suite: Runner) -> None:
    done = run_suite(_PASSING, attach="no files")
    assert (done.exit_code, done.report["verdict"]) == (3, "infrastructure")
    assert "Too many open files" in done.lines[-1]
    assert "INTERNALERROR" not in done.stdout + done.stderr
