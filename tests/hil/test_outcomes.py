# SPDX-License-Identifier: Apache-2.0
"""What a run makes of passes, failures and trouble: each outcome keeps its name up to the exit code."""

import pytest

from tests.hil.running import Finished, Runner

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
    print("seen on the way")
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

def test_board_says_no(board):
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

def test_with_a_slip(board):
    None + 1

def test_whom_numpy_refuses(board):
    import numpy
    numpy.zeros((2, 3)) @ numpy.zeros((2, 3))

def test_that_asks_for_nothing_there_is(board, no_such_fixture):
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
    # A slip in our own code, as whoever calls it sees it.
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
    done = run_suite(_PASSING)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert done.report["verdict"] == "passed"
    assert done.outcomes == {"test_one": "passed", "test_two": "passed"}
    assert "VIRTUAL" in done.lines[0]
    assert "stm32f746" in done.lines[0]
    assert done.lines[-1] == "PASSED on a VIRTUAL stm32f746: 2 passed; exit code 0"
    assert done.report["board"] == {
        "id": "stm32f746",
        "name": "stm32f746",
        "settings": {},
        "kind": "virtual",
        "probe": "fake probe",
        "serial": "FAKE-1",
    }
    assert done.bench_log == ("attached", "released")


@pytest.fixture(scope="module")
def mixed(run_suite: Runner) -> Finished:
    return run_suite(_MIXED)


def test_a_failure_fails_the_run(mixed: Finished) -> None:
    assert mixed.exit_code == 1
    assert mixed.report["verdict"] == "failed"
    assert mixed.lines[-1] == "FAILED on a VIRTUAL stm32f746: 1 passed, 4 failed, 2 skipped; exit code 1"


def test_each_outcome_and_its_reason(mixed: Finished) -> None:
    assert mixed.outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_expected_to_fail": "skipped",
        "test_faults": "failed",
        "test_board_says_no": "failed",
        "test_calls_it_failed": "failed",
    }
    assert "6 * 7" in mixed.messages["test_fails"]
    assert mixed.messages["test_skips"] == "not for this board"
    assert any("test_skips" in line and line.endswith("not for this board") for line in mixed.lines)
    assert mixed.messages["test_expected_to_fail"] == "expected to fail: known"
    assert "BusFault" in mixed.messages["test_faults"]
    assert "poke.c:3" in mixed.messages["test_faults"]
    assert mixed.messages["test_board_says_no"] == "address refused\n  hint: look at the memory map"


def test_error_in_a_test_is_its_own_outcome(run_suite: Runner) -> None:
    done = run_suite(_ERRORS)
    wrong = ("with_broken_setup", "with_a_slip", "whom_numpy_refuses", "that_asks_for_nothing_there_is")
    assert done.outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        **{f"test_{name}": "error" for name in wrong},
    }
    assert done.messages["test_with_broken_setup"] == "error in the test: in setup: ValueError: set-up went wrong"
    assert "fixture 'no_such_fixture' not found" in done.messages["test_that_asks_for_nothing_there_is"]
    assert done.exit_code == 2
    assert done.report["verdict"] == "error"
    assert done.lines[-1].startswith(
        "NO VERDICT (error in the suite) on a VIRTUAL stm32f746: 1 passed, 1 failed, 4 error; "
        "test_suite.py::test_with_broken_setup: error in the test: in setup: ValueError"
    )
    assert (done.junit.get("failures"), done.junit.get("errors")) == ("1", "4")
    # The board is not to blame: nobody takes it again.
    assert done.bench_log == ("attached", "released")


def test_host_trouble_is_named_once(run_suite: Runner) -> None:
    done = run_suite(_ENVIRONMENT)
    assert done.outcomes == {
        "test_before": "passed",
        "test_fails": "failed",
        **{f"test_{name}": "infrastructure" for name in ("one", "two", "three", "memory", "module", "tool", "ours")},
    }
    assert done.messages["test_one"] == "in setup: /cache: cannot be written"
    for name in ("test_two", "test_three"):
        assert done.messages[name] == "the same trouble as in test_suite.py::test_one"
    assert done.stdout.count("cannot be written") == 3  # where it happened, in what comes of it, and in the verdict
    assert "no_such_module" in done.messages["test_module"]
    assert "AttributeError" in done.messages["test_ours"]
    assert done.exit_code == 3
    assert "infrastructure trouble in test_suite.py::test_one: in setup: /cache: cannot be" in done.lines[-1]
    assert done.bench_log == ("attached", "released")


def test_junit_knows_failures_from_skips(mixed: Finished) -> None:
    assert {name: mixed.junit.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "7",
        "failures": "4",
        "errors": "0",
        "skipped": "2",
    }
    (fails,) = mixed.junit.iterfind("testcase[@name='test_fails']/failure")
    assert "seen on the way" in (fails.text or "")


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
    done = run_suite(_TROUBLE.format(trouble=trouble))
    assert done.outcomes == {"test_before": "passed", "test_with_trouble": "infrastructure", "test_after": "passed"}
    assert "attached again" in done.messages["test_with_trouble"]
    assert done.exit_code == 3
    assert done.report["verdict"] == "infrastructure"
    assert done.lines[-1].startswith(
        "NO VERDICT (infrastructure trouble) on a VIRTUAL stm32f746: 2 passed, 1 infrastructure; "
    )
    assert done.junit.get("errors") == "1"
    assert done.junit.get("failures") == "0"
    assert done.bench_log == ("attached", "released", "attached", "released")


def test_a_board_that_dies_between_two_tests_is_trouble(run_suite: Runner) -> None:
    done = run_suite(
        "def test_kills(board):\n    board.openocd_died = True\ndef test_next(board):\n    pass\n"
        "def test_last(board):\n    pass\n"
    )
    assert done.outcomes == {"test_kills": "passed", "test_next": "infrastructure", "test_last": "passed"}
    assert done.exit_code == 3


def test_trouble_in_clean_up_is_trouble(run_suite: Runner) -> None:
    done = run_suite(
        "import pytest\nfrom utvm.errors import ProbeError\n"
        "@pytest.fixture\ndef thing(board):\n    yield\n    raise ProbeError('gone while cleaning up')\n"
        "def test_it(thing):\n    pass\n"
    )
    assert done.outcomes == {"test_it": "infrastructure"}
    assert done.exit_code == 3


def test_a_run_stops_when_the_board_does_not_come_back(run_suite: Runner) -> None:
    done = run_suite(_TROUBLE.format(trouble="raise ProbeError('unplugged')"), attach="ok,gone")
    assert done.outcomes == {"test_before": "passed", "test_with_trouble": "infrastructure", "test_after": "not run"}
    assert "again failed" in done.messages["test_with_trouble"]
    assert "no device found" in done.messages["test_with_trouble"]
    assert "infrastructure trouble in" in done.messages["test_after"]
    assert done.exit_code == 3
    assert done.report["verdict"] == "infrastructure"


def test_the_second_trouble_stops_the_run(run_suite: Runner) -> None:
    done = run_suite(
        "from utvm.errors import ProbeError\n"
        "def test_a(board):\n    raise ProbeError('x')\ndef test_b(board):\n    raise ProbeError('y')\n"
        "def test_c(board):\n    pass\n"
    )
    assert list(done.outcomes.values()) == ["infrastructure", "infrastructure", "not run"]
    assert done.bench_log.count("attached") == 2
    assert done.exit_code == 3


def test_trouble_outweighs_failures(run_suite: Runner) -> None:
    done = run_suite(
        "from utvm.errors import ProbeError\n"
        "def test_a(board):\n    assert False\ndef test_b(board):\n    raise ProbeError('x')\n"
    )
    assert list(done.outcomes.values()) == ["failed", "infrastructure"]
    assert (done.exit_code, done.report["verdict"]) == (3, "infrastructure")


@pytest.mark.parametrize(
    ("manner", "said"),
    [("gone", "no device found"), pytest.param("busy", "busy, held by pid 1", marks=pytest.mark.slow)],
)
def test_without_a_board_nothing_runs_and_nothing_passes(run_suite: Runner, manner: str, said: str) -> None:
    done = run_suite(_PASSING, attach=manner)
    assert done.exit_code == 3
    assert done.report["verdict"] == "infrastructure"
    assert set(done.outcomes.values()) == {"not run"}
    assert "VIRTUAL stm32f746" in done.lines[0]
    assert said in done.lines[-1]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("", ()),
        pytest.param(_PASSING, ("-k", "nothing"), marks=pytest.mark.slow),
        pytest.param("import pytest\ndef test_a():\n    pytest.skip('x')\n", (), marks=pytest.mark.slow),
    ],
)
def test_no_test_that_ran_is_an_error_in_the_suite(run_suite: Runner, suite: str, options: tuple[str, ...]) -> None:
    done = run_suite(suite, options=("--board=stm32f746", "--virtual", *options))
    assert done.exit_code == 2
    assert done.report["verdict"] == "error"
    assert "no test ran" in done.lines[-1]
    assert "VIRTUAL" in done.lines[-1]


@pytest.mark.parametrize(
    ("text", "outcome", "code"),
    [
        ("import no_such_module\n", "infrastructure", 3),
        ("import ctypes\nctypes.CDLL('/dev/null')\n", "infrastructure", 3),
        ("def test_it(:\n", "error", 2),
        ("assert 6 * 7 == 41\n", "error", 2),
    ],
)
def test_a_suite_that_cannot_be_loaded_does_not_hide_the_others(
    run_suite: Runner, text: str, outcome: str, code: int
) -> None:
    done = run_suite(_PASSING, files={"test_broken.py": text})
    assert done.outcomes == {"test_one": "passed", "test_two": "passed", "broken": outcome}
    assert done.exit_code == code
    assert "cannot be loaded" in done.messages["broken"]


def test_run_keeps_its_log_and_pytest_options(run_suite: Runner) -> None:
    suite = "import logging\ndef test_it(board):\n    logging.getLogger('utvm.probe.gdb').debug('-> m%x,%x', 16, 4)\n"
    done = run_suite(suite, options=("--board=stm32f746", "--virtual", "--log-file=own", "--log-file-level=debug"))
    (kept,) = (done.reports.parent / "logs").glob("*/utvm.log")
    assert done.exit_code == 0
    assert " DEBUG   utvm.probe.gdb: -> m10,4\n" in kept.read_text()
    assert "-> m10,4" in (done.reports.parent.parent / "own").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--board=stm32f746", "--virtual", "--physical"), "exclude each other"),
        pytest.param(("--board=no-such-board",), "no-such-board", marks=pytest.mark.slow),
    ],
)
def test_wrong_use_touches_nothing(run_suite: Runner, options: tuple[str, ...], said: str) -> None:
    done = run_suite(_PASSING, options=options)
    assert done.exit_code == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.bench_log == ()
    assert not done.reports.exists()


def test_without_room_for_what_it_writes_a_run_does_not_begin(run_suite: Runner) -> None:
    done = run_suite(_PASSING, block_reports=True)
    assert done.exit_code == 3
    assert "cannot be written" in done.lines[-1]
    assert done.bench_log == ()
