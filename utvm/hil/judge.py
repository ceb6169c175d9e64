# SPDX-License-Identifier: Apache-2.0
"""Whose word an exception is that ends a test: the board's, the machine's that it ran on, or the suite's own.

Only what stands here as a failure is one. Whatever else goes wrong is no answer of the board.
"""

import subprocess
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Literal

import pytest

import utvm
from utvm.errors import BoardError, UtvmError
from utvm.hil.results import Outcome

_OURS = Path(utvm.__file__).parent
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))

# What a machine does to any program: no room, no rights, no memory, no module, a tool that fails.
_ENVIRONMENT = (OSError, MemoryError, ImportError, subprocess.SubprocessError, UtvmError)


def judge(error: BaseException | None, suite: Path) -> Outcome:
    """Return the outcome of a phase that ended with an exception, while the board still answers.

    Args:
        suite: the suite's file.
        error: None where pytest itself found a failure: a test that was expected to fail, strictly, has passed.
    """
    if error is None or isinstance(error, BoardError):
        return Outcome.FAILED
    if isinstance(error, _ENVIRONMENT):
        return Outcome.INFRASTRUCTURE
    origin = _origin(error.__traceback__, suite)
    if origin == "utvm":
        return Outcome.INFRASTRUCTURE
    if isinstance(error, AssertionError | pytest.fail.Exception) and origin == "suite":
        return Outcome.FAILED
    return Outcome.ERROR


def judge_loading(error: BaseException, suite: Path) -> Outcome:
    """Return the outcome of a suite that cannot be loaded: no board has been asked yet."""
    # pytest raises an error of its own from one in an import.
    behind = error.__cause__ or error
    outcome = judge(behind, suite)
    return Outcome.ERROR if outcome is Outcome.FAILED else outcome


def cause_of(error: BaseException, said: str) -> str:
    """Return what two errors have in common if one thing is behind both, however each was said.

    Args:
        said: the message that a reader gets.
    """
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and behind.errno is not None:
            return f"errno {behind.errno}"
        behind = behind.__cause__
    return said


def _origin(trace: TracebackType | None, suite: Path) -> Literal["utvm", "suite", ""]:
    """Return whose code called last: ours, or a suite's, and what it uses that is neither ours nor installed.

    What numpy refuses is the doing of whoever called numpy.
    """
    origin: Literal["utvm", "suite", ""] = ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(_OURS):
            origin = "utvm"
        elif file == suite or (file.is_file() and not any(file.is_relative_to(place) for place in _INSTALLED)):
            origin = "suite"
        trace = trace.tb_next
    return origin
