# SPDX-License-Identifier: Apache-2.0
"""Classifying an exception by its type and by the code that it passed through."""

import errno
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import utvm
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.hil.judge import Recorder, cause_of, judge, judge_loading, loading_failure
from utvm.hil.results import Outcome

_SUITE = Path("/nowhere/test_it.py")
_OURS = Path(utvm.__file__).parent / "made_up.py"
_INSTALLED = [Path(sysconfig.get_path(name)) / "made_up.py" for name in ("stdlib", "purelib")]


def _raise(statement: str, files: Sequence[Path]) -> BaseException:
    """Return the exception of a statement in the last of these files, each of which calls the next."""
    call = statement
    for file in reversed(files):
        names = {"call": call, "np": np, "pytest": pytest}
        # In a function, the caller's frame stays in the traceback.
        source = f"def start():\n    {call if isinstance(call, str) else 'call()'}\n"
        exec(compile(source, str(file), "exec"), names)
        call = names["start"]
    try:
        call()  # type: ignore[operator]
    except BaseException as error:
        # Remove the frame of this test, which belongs to no suite.
        return error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
    raise AssertionError("nothing was raised")


def test_pytest_and_board_failures_are_failures() -> None:
    assert judge(None, _SUITE) is Outcome.FAILED
    assert judge(BoardError("it stands still"), _SUITE) is Outcome.FAILED


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        MemoryError(),
        ImportError("no module"),
        subprocess.TimeoutExpired("cc", 1),
        ProbeError("it was unplugged"),
        ConfigError("no such file"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_general_errors_are_infrastructure(error: BaseException) -> None:
    assert judge(error, _SUITE) is Outcome.INFRASTRUCTURE
    assert judge_loading(error, _SUITE) is Outcome.INFRASTRUCTURE


@pytest.mark.parametrize(
    ("statement", "files", "outcome"),
    [
        ("assert False", [_SUITE], Outcome.FAILED),
        ("pytest.fail('wrong')", [_SUITE], Outcome.FAILED),
        ("np.testing.assert_equal(1, 2)", [_SUITE], Outcome.FAILED),
        ("assert False", [_SUITE, Path(__file__)], Outcome.FAILED),
        ("assert False", [Path(__file__)], Outcome.FAILED),
        ("assert False", [_OURS, _SUITE], Outcome.FAILED),
        ("1 / 0", [_SUITE], Outcome.ERROR),
        ("1 / 0", [_OURS, _SUITE], Outcome.ERROR),
        ("raise SystemExit", [_SUITE], Outcome.ERROR),
        ("assert False", [Path("/nowhere/else.py")], Outcome.ERROR),
        *(("assert False", [file], Outcome.ERROR) for file in _INSTALLED),
        ("assert False", [_OURS], Outcome.INFRASTRUCTURE),
        ("assert False", [_SUITE, _OURS], Outcome.INFRASTRUCTURE),
        ("np.zeros(2).reshape(3)", [_SUITE, _OURS], Outcome.INFRASTRUCTURE),
        *(("assert False", [_SUITE, _OURS, file], Outcome.INFRASTRUCTURE) for file in _INSTALLED),
    ],
)
def test_assertion_belongs_to_the_last_caller(statement: str, files: list[Path], outcome: Outcome) -> None:
    error = _raise(statement, files)
    assert judge(error, _SUITE) is outcome
    # A failure while a suite is loaded is an error in the suite: no board has answered.
    assert judge_loading(error, _SUITE) is (Outcome.ERROR if outcome is Outcome.FAILED else outcome)


def test_unloadable_suite_is_judged_by_its_cause() -> None:
    error = ValueError("import failed")
    assert judge_loading(error, _SUITE) is Outcome.ERROR
    error.__cause__ = OSError(errno.EACCES, "no")
    assert judge_loading(error, _SUITE) is Outcome.INFRASTRUCTURE


def test_same_errno_has_the_same_cause_at_any_depth() -> None:
    assert cause_of(OSError(errno.ENOSPC, "full"), "x") == f"errno {errno.ENOSPC}"
    outer, inner = ConfigError("x"), OSError("without a number")
    outer.__cause__ = inner
    assert cause_of(outer, "x") == "x"
    inner.__cause__ = OSError(errno.EACCES, "no")
    assert cause_of(outer, "x") == f"errno {errno.EACCES}"
    assert cause_of(ValueError("y"), "z") == "z"


def test_duration_of_a_case_is_that_of_its_phases() -> None:
    recorder = Recorder()
    for when, duration in (("setup", 0.5), ("call", 0.25), ("teardown", 2.0)):
        report = pytest.TestReport("s::t", ("s", 1, "t"), {}, "passed", None, when, duration=duration)  # type: ignore[arg-type]
        recorder.add(report, Outcome.PASSED, None)
    case = recorder.take("s::t")
    assert (case.id, case.outcome, case.duration_s, case.message) == ("s::t", Outcome.PASSED, 2.75, "")
    skipped = pytest.TestReport(
        "s::u", ("s", 1, "u"), {}, "skipped", ("s", 1, "Skipped: no LED"), "setup", duration=1.0
    )
    recorder.add(skipped, Outcome.SKIPPED, None)
    assert (recorder.take("s::u").duration_s, recorder.take("s::u").message) == (1.0, "")


def test_reasons_of_skips_are_read_from_reports() -> None:
    def message(longrepr: object, **attributes: object) -> str:
        recorder = Recorder()
        report = pytest.TestReport("s::t", ("s", 1, "t"), {}, "skipped", longrepr, "call", **attributes)  # type: ignore[arg-type]
        recorder.add(report, Outcome.SKIPPED, None)
        return recorder.take("s::t").message

    assert message(("s", 1, "Skipped: no LED")) == "no LED"
    assert message("a text") == "a text"
    assert message(("s", 1, "failed"), wasxfail="not yet") == "expected to fail: not yet"


def test_unloadable_suite_has_a_message() -> None:
    report = pytest.CollectReport("s", "failed", "line one\nImportError: no module x", [])  # type: ignore[arg-type]
    case = loading_failure(report, Outcome.INFRASTRUCTURE)
    assert (case.id, case.outcome, case.duration_s) == ("s", Outcome.INFRASTRUCTURE, 0.0)
    assert case.message == "the suite cannot be loaded: ImportError: no module x"
    assert case.details == "line one\nImportError: no module x"
    empty = loading_failure(pytest.CollectReport("s", "failed", "", []), Outcome.ERROR)  # type: ignore[arg-type]
    assert empty.message == "the suite cannot be loaded: no reason given"


def test_equal_failures_are_explained_each_time() -> None:
    recorder = Recorder()
    error = AssertionError("assert 1 == 2")
    messages = []
    for outcome in (Outcome.FAILED, Outcome.FAILED, Outcome.INFRASTRUCTURE, Outcome.INFRASTRUCTURE):
        name = f"s::t{len(messages)}"
        report = pytest.TestReport(name, ("s", 1, "t"), {}, "failed", "assert 1 == 2", "call")  # type: ignore[arg-type]
        recorder.add(report, outcome, error)
        case = recorder.take(name)
        messages.append(case.message)
        assert case.details == ("assert 1 == 2" if len(messages) < 4 else "")
    assert messages == [*["assert 1 == 2"] * 3, "the same trouble as in s::t2"]
