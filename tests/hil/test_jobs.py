# SPDX-License-Identifier: Apache-2.0
"""A run whose suites are shared by two virtual boards: one verdict, and the report of a run on one board."""

import signal
from pathlib import Path

import pytest

from tests.hil.running import Runner

_TWO = ("--board=stm32f746", "--virtual", "--board-jobs=2")

# Passes only beside the other suite: each waits until the other has begun.
_MEETING = """
import os, pathlib, time

RUN = os.getpid()

def test_meets_the_other(board, record_statistics):
    pathlib.Path("{own}").touch()
    for _ in range(2000):
        if pathlib.Path("{other}").exists():
            break
        time.sleep(0.01)
    assert pathlib.Path("{other}").exists()
    record_statistics("{own}", {{"count": 1}})
    {action}

def test_after(board):
    assert "{own}" != "b", "wrong answer"
"""


def _meeting(action: str = "pass") -> dict[str, str]:
    return {
        "test_suite.py": _MEETING.format(own="a", other="b", action=action),
        "test_zebra.py": _MEETING.format(own="b", other="a", action=action),
    }


@pytest.mark.slow
def test_two_boards_give_one_report_in_the_order_of_the_suites(run_suite: Runner) -> None:
    completed = run_suite("", files=_meeting(), options=_TWO)
    assert completed.exit_code == 1
    assert [test["id"] for test in completed.report["tests"]] == [
        "suite::test_meets_the_other",
        "suite::test_after",
        "zebra::test_meets_the_other",
        "zebra::test_after",
    ]
    assert [test["outcome"] for test in completed.report["tests"]] == ["passed", "passed", "passed", "failed"]
    assert "wrong answer" in completed.report["tests"][-1]["message"]
    assert [entry["name"] for entry in completed.report["statistics"]] == ["a", "b"]
    assert completed.lines[-1].endswith("3 passed, 1 failed; exit code 1")
    assert completed.connection_log.count("attached") == completed.connection_log.count("released") == 2
    assert "2 boards share the suites" in completed.stdout
    log = next((completed.reports.parent / "logs").glob("*/utvm.log")).read_text()
    assert "test test_suite.py::test_after" in log
    assert "test test_zebra.py::test_after" in log


def test_end_of_the_second_process_is_no_verdict(run_suite: Runner) -> None:
    death = "os.getpid() == RUN or os.kill(os.getpid(), 9)"
    completed = run_suite("", files=_meeting(death), options=_TWO)
    assert completed.exit_code == 3
    assert "further board ended with exit code -9" in completed.report["trouble"]
    assert sorted(test["outcome"] for test in completed.report["tests"])[0] == "not run"


@pytest.mark.slow
def test_interruption_releases_both_boards(run_suite: Runner) -> None:
    sleep = "pathlib.Path('sleeping').touch(); time.sleep(60)"
    completed = run_suite("", files=_meeting(sleep), options=_TWO, interrupt_with=signal.SIGTERM)
    assert completed.exit_code == 3
    assert completed.report["verdict"] == "interrupted"
    assert len(completed.report["tests"]) == 4
    assert completed.connection_log.count("released") == 2
    assert "Traceback" not in completed.stdout + completed.stderr


@pytest.mark.slow
def test_one_suite_needs_one_board(run_suite: Runner) -> None:
    completed = run_suite("def test_one(board):\n    pass\n", options=_TWO)
    assert completed.exit_code == 0
    assert completed.connection_log == ("attached", "released")


@pytest.mark.slow
def test_lost_board_stops_both(run_suite: Runner) -> None:
    """A board that cannot be attached again ends the run, whichever process it belongs to."""
    lost = "board.openocd_died = os.getpid() != RUN; assert not board.openocd_died"
    files = {**_meeting(lost), "test_later.py": "import time\ndef test_later(board):\n    time.sleep(1)\n"}
    completed = run_suite("", files=files, options=_TWO, attach="ok,gone")
    assert completed.exit_code == 3
    assert "the run stops" in "".join(completed.messages.values())
    assert Path(completed.directory / "index.html").exists()
