# SPDX-License-Identifier: Apache-2.0
"""Starts ``./inv`` and ``utvm`` with the tasks of ``tasks.py``, wherever they are called."""

import contextlib
import gc
import runpy
import sys
from pathlib import Path
from typing import TextIO

import utvm
from utvm.base.process.signals import guard_exit_code, ignore_signals, prepare_environment, raise_on_signals
from utvm.cli import end_of
from utvm.cli.program import Inv
from utvm.errors import ExitCode
from utvm.paths import COMMAND, DATA

_NAME = Path(COMMAND).name


def _run() -> None:
    # Modules and records stay: to look through them at each 700 new ones is a tenth of a short command.
    gc.set_threshold(50_000)
    prepare_environment()
    tasks = runpy.run_path(str(DATA / "tasks.py"))
    Inv(
        groups=tasks["GROUPS"],
        name=_NAME,
        binary=_NAME,
        binary_names=[_NAME],
        namespace=tasks["namespace"],
        version=utvm.__version__,
    ).run()


def main(handed_over: int = 0) -> None:
    """Run a command, and end with its exit code: 3 where its output could not be written.

    Args:
        handed_over: added to the exit code, so that ``inv`` can tell it from the exit codes of libraries.
    """
    with guard_exit_code():
        code = _run_to_an_exit_code()
        # Where there is none, Python has None in its place.
        unwritten = [_left_unwritten(stream) for stream in (sys.stdout, sys.stderr) if stream]
        if any(unwritten):
            code = ExitCode.INFRASTRUCTURE
    # Commands that run others' programs return their exit codes as they are.
    sys.exit(handed_over + code if code in list(ExitCode) else code)


def _left_unwritten(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            stream.close()
        return True
    return False


def _run_to_an_exit_code() -> int:
    raise_on_signals()
    try:
        try:
            _run()
        finally:
            ignore_signals()
    except (SystemExit, KeyboardInterrupt) as end:
        # Invoke turns an interruption outside of a task into exit code 1, which here means that a test failed.
        if isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            return ExitCode.INFRASTRUCTURE
        code = end.code or 0
        return code if isinstance(code, int) else ExitCode.INFRASTRUCTURE
    except BrokenPipeError:
        # Whoever reads has read enough, as head has.
        return ExitCode.INFRASTRUCTURE
    except Exception as error:  # before a command has begun: too few files, too little memory
        how = end_of(error)
        with contextlib.suppress(OSError):  # where nothing can be said, the exit code says it
            print(how.message, file=sys.stderr)
        return ExitCode(how.code)
    return ExitCode.PASSED


if __name__ == "__main__":
    main()
