# SPDX-License-Identifier: Apache-2.0
"""A run that somebody ends: at whatever moment, the report, the last line and the exit code say one thing."""

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
def test_ctrl_c_lets_go_of_the_board_and_leaves_a_whole_report(
    run_suite: Runner, number: signal.Signals, and_again: float | None
) -> None:
    done = run_suite(
        "import pathlib, time\ndef test_a(board):\n    pass\n"
        "def test_b(board):\n    pathlib.Path('sleeping').touch()\n    time.sleep(60)\n"
        "def test_c(board):\n    pass\n",
        interrupt_with=number,
        and_again=and_again,
    )
    assert done.exit_code == 3
    assert done.report["verdict"] == "interrupted"
    assert list(done.outcomes.values()) == ["passed", "not run", "not run"]
    assert done.lines[-1].startswith("NO VERDICT (interrupted) on a VIRTUAL stm32f746")
    assert done.bench_log == ("attached", "released")
    assert "Traceback" not in done.stdout + done.stderr
    assert not [path for path in done.reports.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("suite", "when"),
    [
        (_PASSING, "sessionfinish(session)"),
        # No test runs: it is interrupted there all the same.
        pytest.param("raise ValueError", "sessionfinish(session)", marks=pytest.mark.slow),
        # Between pytest's words for a run's end and ours.
        pytest.param(_PASSING, "runtestloop(session)", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_interruption_before_the_verdict_is_the_verdict(
    run_suite: Runner, suite: str, when: str, number: signal.Signals
) -> None:
    """Seen to end with exit code 3, "PASSED" and a report that says passed."""
    hook = (
        "import os, pytest\n@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        f"def pytest_{when}:\n    try:\n        return (yield)\n"
        f"    finally:\n        os.kill(os.getpid(), {int(number)})\n"
    )
    done = run_suite(suite, files={"conftest.py": hook})
    assert done.exit_code == 3
    assert done.report["verdict"] == "interrupted"
    assert done.lines[-1].startswith("NO VERDICT (interrupted) on a VIRTUAL stm32f746")
    assert set(done.outcomes.values()) <= {"passed", "error"}


# Interrupts while pytest puts its things away, while Python does, and when Python has given its handlers back.
_AFTERWARDS = (
    "import atexit, os, signal, sys\n"
    "class Last:\n"
    "    def __del__(self, kill=os.kill, process=os.getpid(), number={number}):\n        kill(process, number)\n"
    "sys.last = Last()\n"
    "atexit.register(Last.__del__, None)\n"
    "def pytest_unconfigure():\n    Last.__del__(None)\n"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_after_the_verdict_changes_nothing(run_suite: Runner, number: signal.Signals) -> None:
    done = run_suite(_PASSING, files={"conftest.py": _AFTERWARDS.format(number=int(number))}, own_python=True)
    assert done.lines[-1].startswith("PASSED on a VIRTUAL stm32f746")
    assert (done.exit_code, done.report["verdict"], done.stderr) == (0, "passed", "")


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
def test_an_interruption_that_is_not_handed_on_ends_the_run(
    run_suite: Runner, suite: str, log: tuple[str, ...]
) -> None:
    """As Python loses one that comes in a callback from C, or before 3.12 wraps one that comes in __set_name__."""
    done = run_suite(suite)
    assert (done.exit_code, done.report["verdict"], done.bench_log) == (3, "interrupted", log)
    assert set(done.outcomes.values()) <= {"not run"}
    assert "Traceback" not in done.stdout + done.stderr
