# SPDX-License-Identifier: Apache-2.0
"""Starts ``./inv`` and ``utvm`` with the tasks of ``tasks.py``, wherever they are called."""

import contextlib
import gc
import sys
from pathlib import Path
from typing import TextIO

import utvm
from utvm.base.process.signals import ignore_signals, raise_on_signals
from utvm.cli import end_of
from utvm.cli.program import Inv
from utvm.errors import ExitCode
from utvm.paths import COMMAND, DATA

_NAME = Path(COMMAND).name


def _run() -> None:
    # Modules and records stay: to look through them at each 700 new ones is a tenth of a short command.
    gc.set_threshold(50_000)
    sys.path.insert(0, str(DATA))
    tasks = __import__("tasks")
    del sys.path[0]
    Inv(groups=tasks.GROUPS, name=_NAME, binary=_NAME, namespace=tasks.namespace, version=utvm.__version__).run()


def main() -> None:
    """Run a command; one whose words could not be written ends with 3, where Python itself would end with 120."""
    try:
        _run_to_an_exit_code()
    finally:
        # Where there is none, Python has None in its place.
        unwritten = [_left_unwritten(stream) for stream in (sys.stdout, sys.stderr) if stream]
        if any(unwritten):
            sys.exit(int(ExitCode.INFRASTRUCTURE))


def _left_unwritten(stream: TextIO) -> bool:
    """Write what a stream still holds; where that is not possible, close it, and Python does not try again."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            stream.close()
        return True
    return False


def _run_to_an_exit_code() -> None:
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
            sys.exit(int(ExitCode.INFRASTRUCTURE))
        raise
    except BrokenPipeError:
        # Whoever reads has read enough, as head has.
        sys.exit(int(ExitCode.INFRASTRUCTURE))
    except Exception as error:  # before a command has begun: too few files, too little memory
        how = end_of(error)
        with contextlib.suppress(OSError):  # where nothing can be said, the exit code says it
            print(how.message, file=sys.stderr)
        sys.exit(how.code)


if __name__ == "__main__":
    main()
