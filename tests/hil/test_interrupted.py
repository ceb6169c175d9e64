# SPDX-License-Identifier: Apache-2.0
"""An interrupted run: at any moment, report, last line and exit code agree."""

import signal

import pytest

from tests.hil.running import Runner

pytestmark = pytest.mark.slow

_PASSING = "def test_one(board):\n    pass\n\ndef test_two(board):\n    pass\n"


@pytest.mark.parametrize(
    ("number", "and_again"),
    [
        (signal.SIGINT, None),
        (signal.SIGINT, 0.05),
        (signal.SIGINT, 0.15),
        (signal.SIGINT, 1.2),
        *(pytest.param(signal.SIGINT, seconds, marks=pytest.mark.nightly) for seconds in (0.01, 0.3)),
        pytest.param(signal.SIGTERM, None, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, None, marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_releases_the_board_and_completes_the_report(
    run_suite: Runner, number: signal.Signals, and_again: float | None
) -> None:
    completed = run_suite(
        "import pathlib, time\ndef test_a(board):\n    pass\n"
        "def test_b(board):\n    pathlib.Path('sleeping').touch()\n    time.sleep(60)\n"
        "def test_c(board):\n    pass\n",
        interrupt_with=number,
        and_again=and_again,
    )
    assert completed.exit_code == 3
    assert completed.report["verdict"] == "interrupted"
    assert list(completed.outcomes.values()) == ["passed", "not run", "not run"]
    assert completed.lines[-1].startswith("NO VERDICT (interrupted) on a VIRTUAL stm32f746")
    assert completed.connection_log == ("attached", "released")
    assert "Traceback" not in completed.stdout + completed.stderr
    assert not [path for path in completed.reports.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("suite", "when"),
    [
        (_PASSING, "sessionfinish(session)"),
        # The interruption counts also without a test.
        pytest.param("raise ValueError", "sessionfinish(session)", marks=pytest.mark.slow),
        # Between pytest's last message and utvm's.
        pytest.param(_PASSING, "runtestloop(session)", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_interruption_before_the_verdict_is_the_verdict(
    run_suite: Runner, suite: str, when: str, number: signal.Signals
) -> None:
    """Seen to end with exit code 3, "PASSED" and a report that passed."""
    hook = (
        "import os, pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        f"def pytest_{when}:\n    try:\n        return (yield)\n"
        f"    finally:\n        os.kill(os.getpid(), {int(number)})\n"
    )
    completed = run_suite(suite, files={"conftest.py": hook})
    assert completed.exit_code == 3
    assert completed.report["verdict"] == "interrupted"
    assert completed.lines[-1].startswith("NO VERDICT (interrupted) on a VIRTUAL stm32f746")
    assert set(completed.outcomes.values()) <= {"passed", "error"}


# Interrupts while pytest cleans up, while Python cleans up, and after Python has restored the signal handlers.
_AFTERWARDS = (
    "import atexit, os, signal, sys\n"
    "class Last:\n"
    "    def __del__(self, kill=os.kill, process=os.getpid(), number={number}):\n        kill(process, number)\n"
    "sys.last = Last()\n"
    "atexit.register(Last.__del__, None)\n"
    "def pytest_unconfigure():\n    Last.__del__(None)\n"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_after_the_verdict_changes_nothing(run_suite: Runner, number: signal.Signals) -> None:
    completed = run_suite(_PASSING, files={"conftest.py": _AFTERWARDS.format(number=int(number))}, own_python=True)
    assert completed.lines[-1].startswith("PASSED on a VIRTUAL stm32f746")
    assert (completed.exit_code, completed.report["verdict"], completed.stderr) == (0, "passed", "")


_LOST = (
    "import os, signal\n"
    "class Field:\n    def __set_name__(self, owner, name): os.kill(os.getpid(), signal.SIGTERM)\n"
    "def lose():\n    try:\n        type('Record', (), {'field': Field()})\n"
    "    except BaseException:\n        pass\n"
)


@pytest.mark.parametrize(
    ("suite", "log"),
    [
        (f"{_LOST}lose()\n{_PASSING}", ()),
        (f"{_LOST}class Record:\n    field = Field()\n{_PASSING}", ()),
        (f"{_LOST}def test_it():\n    lose()\ndef test_next(board):\n    pass\n", ("attached", "released")),
        (
            "import os, signal\nclass Last:\n    def __del__(self): os.kill(os.getpid(), signal.SIGTERM)\n"
            f"Last()\n{_PASSING}",
            (),
        ),
    ],
    ids=["lost in an import", "wrapped in an import", "lost in a test", "lost where an object goes"],
)
def test_lost_interruption_ends_the_run(run_suite: Runner, suite: str, log: tuple[str, ...]) -> None:
    """Python loses an exception in a callback from C, and before 3.12 wraps one in __set_name__."""
    completed = run_suite(suite)
    assert (completed.exit_code, completed.report["verdict"], completed.connection_log) == (3, "interrupted", log)
    assert set(completed.outcomes.values()) <= {"not run"}
    assert "Traceback" not in completed.stdout + completed.stderr
