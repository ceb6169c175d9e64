# SPDX-License-Identifier: Apache-2.0
"""The outcomes of a run: passes, failures and infrastructure errors, up to the exit code."""

import pytest

from tests.hil.running import FinishedRun, Runner

pytestmark = pytest.mark.slow

_PASSING = """
def test_one(board):
    assert board.resets == 1

def test_two(board):
    pass
"""

_MIXED = """
import pytest
from utvm.errors import BoardError
from utvm.session import DeviceFault, FaultRecord
from utvm.session.fault import ARCHITECTURES
from utvm.session.fault.meaning import Meaning

def test_passes(board):
    pass

def test_fails(board):
    print("captured output")
    assert 6 * 7 == 41

def test_skips(board):
    pytest.skip("not for this board")

@pytest.mark.xfail(reason="known")
def test_expected_to_fail(board):
    assert False

def test_faults(board):
    bus_fault = Meaning("BusFault", ("PRECISERR: bus error on a data access",), 0xDEADBEEF, "CFSR=0x00008200")
    record = FaultRecord(bus_fault, {"sp": 0x20001000, "pc": 0x08000100}, ARCHITECTURES["cortex_m"])
    raise DeviceFault(record, "poke at poke.c:3")

def test_board_refuses(board):
    raise BoardError("address refused", "look at the memory map")

def test_calls_it_failed(board):
    pytest.fail("not as it should be")

"""

_ERRORS = """
import subprocess
import pytest
from utvm.errors import BoardError, CompileError, ConfigError
from utvm.firmware import Firmware

def test_passes(board):
    pass

def test_fails(board):
    assert 6 * 7 == 41

@pytest.fixture
def broken():
    raise ValueError("set-up went wrong")

def test_with_broken_setup(board, broken):
    pass

def test_with_an_error(board):
    None + 1

def test_with_a_numpy_error(board):
    import numpy
    numpy.zeros((2, 3)) @ numpy.zeros((2, 3))

def test_without_its_fixture(board, no_such_fixture):
    pass
"""

_ENVIRONMENT = """
import errno, pytest, subprocess
from utvm.errors import ConfigError
from utvm.compiler import from_onnx
from utvm.firmware.image import Firmware

@pytest.fixture(scope="module")
def image():
    try:
        raise OSError(errno.ENOSPC, "No space left on device", "/cache/.draft-1")
    except OSError as error:
        raise ConfigError("/cache: cannot be written") from error

def test_before(board):
    pass

def test_fails(board):
    assert False

def test_one(board, image):
    pass

def test_two(board, image):
    pass

def test_three(board):
    raise OSError(errno.ENOSPC, "No space left on device", "/cache/.draft-2")

def test_memory(board):
    raise MemoryError

def test_module(board):
    import no_such_module

def test_tool(board):
    subprocess.run(["false"], check=True)

def test_ours(board):
    # An error in our own code, called by a test.
    Firmware.binary.fget(None)
"""

_TROUBLE = """
import pytest
from utvm.errors import BoardError, ProbeError, TransportError

def test_before(board):
    assert board.number == 1

def test_with_trouble(board):
    {trouble}

def test_after(board):
    assert board.number == 2
"""


def test_all_passed(run_suite: Runner) -> None:
    completed = run_suite(_PASSING)
    assert completed.exit_code == 0, completed.stdout + completed.stderr
    assert completed.report["verdict"] == "passed"
    assert completed.outcomes == {"test_one": "passed", "test_two": "passed"}
    assert "VIRTUAL" in completed.lines[0]
    assert "stm32f746" in completed.lines[0]
    assert completed.lines[-1] == "PASSED on a VIRTUAL stm32f746: 2 passed; exit code 0"
    assert completed.report["board"] == {
        "id": "stm32f746",
        "name": "stm32f746",
        "settings": {},
        "kind": "virtual",
        "probe": "fake probe",
        "serial": "FAKE-1",
    }
    assert completed.connection_log == ("attached", "released")


@pytest.fixture(scope="module")
def mixed_run(run_suite: Runner) -> FinishedRun:
    return run_suite(_MIXED)


def test_failure_fails_the_run(mixed_run: FinishedRun) -> None:
    assert mixed_run.exit_code == 1
    assert mixed_run.report["verdict"] == "failed"
    assert mixed_run.lines[-1] == "FAILED on a VIRTUAL stm32f746: 1 passed, 4 failed, 2 skipped; exit code 1"


def test_each_outcome_and_its_reason(mixed_run: FinishedRun) -> None:
    assert mixed_run.outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_expected_to_fail": "skipped",
        "test_faults": "failed",
        "test_board_refuses": "failed",
        "test_calls_it_failed": "failed",
    }
    assert "6 * 7" in mixed_run.messages["test_fails"]
    assert mixed_run.messages["test_skips"] == "not for this board"
    assert any("test_skips" in line and line.endswith("not for this board") for line in mixed_run.lines)
    assert mixed_run.messages["test_expected_to_fail"] == "expected to fail: known"
    assert "BusFault" in mixed_run.messages["test_faults"]
    assert "poke.c:3" in mixed_run.messages["test_faults"]
    assert mixed_run.messages["test_board_refuses"] == "address refused\n  hint: look at the memory map"


def test_error_in_a_test_is_its_own_outcome(run_suite: Runner) -> None:
    completed = run_suite(_ERRORS)
    wrong = ("with_broken_setup", "with_an_error", "with_a_numpy_error", "without_its_fixture")
    assert completed.outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        **{f"test_{name}": "error" for name in wrong},
    }
    assert completed.messages["test_with_broken_setup"] == "error in the test: in setup: ValueError: set-up went wrong"
    assert "fixture 'no_such_fixture' not found" in completed.messages["test_without_its_fixture"]
    assert completed.exit_code == 2
    assert completed.report["verdict"] == "error"
    assert completed.lines[-1].startswith(
        "NO VERDICT (error in the suite) on a VIRTUAL stm32f746: 1 passed, 1 failed, 4 error; "
        "test_suite.py::test_with_broken_setup: error in the test: in setup: ValueError"
    )
    assert (completed.junit.get("failures"), completed.junit.get("errors")) == ("1", "4")
    # The board works: it is not attached again.
    assert completed.connection_log == ("attached", "released")


def test_host_trouble_is_named_once(run_suite: Runner) -> None:
    completed = run_suite(_ENVIRONMENT)
    assert completed.outcomes == {
        "test_before": "passed",
        "test_fails": "failed",
        **{f"test_{name}": "infrastructure" for name in ("one", "two", "three", "memory", "module", "tool", "ours")},
    }
    assert completed.messages["test_one"] == "in setup: /cache: cannot be written"
    for name in ("test_two", "test_three"):
        assert completed.messages[name] == "the same trouble as in test_suite.py::test_one"
    assert completed.stdout.count("cannot be written") == 3  # at the cause, in its consequence, and in the verdict
    assert "no_such_module" in completed.messages["test_module"]
    assert "AttributeError" in completed.messages["test_ours"]
    assert completed.exit_code == 3
    assert "infrastructure trouble in test_suite.py::test_one: in setup: /cache: cannot be" in completed.lines[-1]
    assert completed.connection_log == ("attached", "released")


def test_junit_separates_failures_from_skips(mixed_run: FinishedRun) -> None:
    assert {name: mixed_run.junit.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7",
        "failures": "4",
        "errors": "0",
        "skipped": "2",
    }
    (fails,) = mixed_run.junit.iterfind("testcase[@name='test_fails']/failure")
    assert "captured output" in (fails.text or "")


@pytest.mark.parametrize(
    "trouble",
    [
        "board.openocd_died = True; assert False, 'noticed by an assertion'",
        pytest.param("raise ProbeError('the probe was unplugged')", marks=pytest.mark.slow),
        pytest.param("raise TransportError('the console broke')", marks=pytest.mark.nightly),
        pytest.param("board.openocd_died = True; raise BoardError('as the test sees it')", marks=pytest.mark.slow),
        pytest.param("board.silent = True; raise BoardError('does not answer')", marks=pytest.mark.nightly),
    ],
)
def test_trouble_is_neither_failed_nor_passed(run_suite: Runner, trouble: str) -> None:
    completed = run_suite(_TROUBLE.format(trouble=trouble))
    assert completed.outcomes == {
        "test_before": "passed",
        "test_with_trouble": "infrastructure",
        "test_after": "passed",
    }
    assert "attached again" in completed.messages["test_with_trouble"]
    assert completed.exit_code == 3
    assert completed.report["verdict"] == "infrastructure"
    assert completed.lines[-1].startswith(
        "NO VERDICT (infrastructure trouble) on a VIRTUAL stm32f746: 2 passed, 1 infrastructure; "
    )
    assert completed.junit.get("errors") == "1"
    assert completed.junit.get("failures") == "0"
    assert completed.connection_log == ("attached", "released", "attached", "released")


def test_board_lost_between_two_tests_is_infrastructure(run_suite: Runner) -> None:
    completed = run_suite(
        "def test_kills(board):\n    board.openocd_died = True\ndef test_next(board):\n    pass\n"
        "def test_last(board):\n    pass\n"
    )
    assert completed.outcomes == {"test_kills": "passed", "test_next": "infrastructure", "test_last": "passed"}
    assert completed.exit_code == 3


def test_trouble_in_clean_up_is_infrastructure(run_suite: Runner) -> None:
    completed = run_suite(
        "import pytest\nfrom utvm.errors import ProbeError\n"
        "@pytest.fixture\ndef thing(board):\n    yield\n    raise ProbeError('gone while cleaning up')\n"
        "def test_it(thing):\n    pass\n"
    )
    assert completed.outcomes == {"test_it": "infrastructure"}
    assert completed.exit_code == 3


def test_run_stops_if_the_board_does_not_return(run_suite: Runner) -> None:
    completed = run_suite(_TROUBLE.format(trouble="raise ProbeError('unplugged')"), attach="ok,gone")
    assert completed.outcomes == {
        "test_before": "passed",
        "test_with_trouble": "infrastructure",
        "test_after": "not run",
    }
    assert "again failed" in completed.messages["test_with_trouble"]
    assert "no device found" in completed.messages["test_with_trouble"]
    assert "infrastructure trouble in" in completed.messages["test_after"]
    assert completed.exit_code == 3
    assert completed.report["verdict"] == "infrastructure"


def test_second_trouble_stops_the_run(run_suite: Runner) -> None:
    completed = run_suite(
        "from utvm.errors import ProbeError\n"
        "def test_a(board):\n    raise ProbeError('x')\ndef test_b(board):\n    raise ProbeError('y')\n"
        "def test_c(board):\n    pass\n"
    )
    assert list(completed.outcomes.values()) == ["infrastructure", "infrastructure", "not run"]
    assert completed.connection_log.count("attached") == 2
    assert completed.exit_code == 3


def test_trouble_outweighs_failures(run_suite: Runner) -> None:
    completed = run_suite(
        "from utvm.errors import ProbeError\n"
        "def test_a(board):\n    assert False\ndef test_b(board):\n    raise ProbeError('x')\n"
    )
    assert list(completed.outcomes.values()) == ["failed", "infrastructure"]
    assert (completed.exit_code, completed.report["verdict"]) == (3, "infrastructure")


@pytest.mark.parametrize(
    ("result", "message"),
    [("gone", "no device found"), pytest.param("busy", "busy, held by pid 1", marks=pytest.mark.slow)],
)
def test_nothing_runs_without_a_board(run_suite: Runner, result: str, message: str) -> None:
    completed = run_suite(_PASSING, attach=result)
    assert completed.exit_code == 3
    assert completed.report["verdict"] == "infrastructure"
    assert set(completed.outcomes.values()) == {"not run"}
    assert "VIRTUAL stm32f746" in completed.lines[0]
    assert message in completed.lines[-1]
    assert "Traceback" not in completed.stdout + completed.stderr


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("", ()),
        pytest.param(_PASSING, ("-k", "nothing"), marks=pytest.mark.slow),
        pytest.param("import pytest\ndef test_a():\n    pytest.skip('x')\n", (), marks=pytest.mark.slow),
    ],
)
def test_run_without_tests_is_an_error_in_the_suite(run_suite: Runner, suite: str, options: tuple[str, ...]) -> None:
    completed = run_suite(suite, options=("--board=stm32f746", "--virtual", *options))
    assert completed.exit_code == 2
    assert completed.report["verdict"] == "error"
    assert "no test ran" in completed.lines[-1]
    assert "VIRTUAL" in completed.lines[-1]


@pytest.mark.parametrize(
    ("text", "outcome", "code"),
    [
        ("import no_such_module\n", "infrastructure", 3),
        ("import ctypes\nctypes.CDLL('/dev/null')\n", "infrastructure", 3),
        ("def test_it(:\n", "error", 2),
        ("assert 6 * 7 == 41\n", "error", 2),
    ],
)
def test_unloadable_suite_does_not_hide_others(run_suite: Runner, text: str, outcome: str, code: int) -> None:
    completed = run_suite(_PASSING, files={"test_broken.py": text})
    assert completed.outcomes == {"test_one": "passed", "test_two": "passed", "broken": outcome}
    assert completed.exit_code == code
    assert "cannot be loaded" in completed.messages["broken"]


def test_run_keeps_its_log_and_pytest_options(run_suite: Runner) -> None:
    suite = "import logging\ndef test_it(board):\n    logging.getLogger('utvm.probe.gdb').debug('-> m%x,%x', 16, 4)\n"
    completed = run_suite(suite, options=("--board=stm32f746", "--virtual", "--log-file=own", "--log-file-level=debug"))
    (log,) = (completed.reports.parent / "logs").glob("*/utvm.log")
    assert completed.exit_code == 0
    assert " DEBUG   utvm.probe.gdb: -> m10,4\n" in log.read_text()
    assert "-> m10,4" in (completed.reports.parent.parent / "own").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--board=stm32f746", "--virtual", "--physical"), "exclude each other"),
        pytest.param(("--board=no-such-board",), "no-such-board", marks=pytest.mark.slow),
    ],
)
def test_usage_error_changes_nothing(run_suite: Runner, options: tuple[str, ...], message: str) -> None:
    completed = run_suite(_PASSING, options=options)
    assert completed.exit_code == pytest.ExitCode.USAGE_ERROR
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
    assert completed.connection_log == ()
    assert not completed.reports.exists()


def test_run_without_a_writable_report_does_not_start(run_suite: Runner) -> None:
    completed = run_suite(_PASSING, block_reports=True)
    assert completed.exit_code == 3
    assert "cannot be written" in completed.lines[-1]
    assert completed.connection_log == ()
