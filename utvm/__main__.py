# SPDX-License-Identifier: Apache-2.0
"""Starts ``./inv`` and ``utvm`` with the tasks of ``tasks.py``, wherever they are called."""

import contextlib
import os
import sys
from pathlib import Path

import utvm
from utvm.cli import end_of
from utvm.cli.program import Inv
from utvm.errors import ExitCode
from utvm.paths import COMMAND, DATA
from utvm.process import end_in_order_on_signals, end_undisturbed

_NAME = Path(COMMAND).name


def _run() -> None:
    sys.path.insert(0, str(DATA))
    tasks = __import__("tasks")
    del sys.path[0]
    Inv(groups=tasks.GROUPS, name=_NAME, binary=_NAME, namespace=tasks.namespace, version=utvm.__version__).run()


def main() -> None:
    end_in_order_on_signals()
    try:
        try:
            _run()
        finally:
            end_undisturbed()
    except (SystemExit, KeyboardInterrupt) as end:
        # Invoke turns an interruption outside of a task into exit code 1, which here means that a test failed.
        if isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            sys.exit(int(ExitCode.INFRASTRUCTURE))
        raise
    except BrokenPipeError:
        # Whoever reads has read enough, as head has. What is left is written nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(ExitCode.INFRASTRUCTURE))
    except Exception as error:  # before a command has begun: too few files, too little memory
        how = end_of(error)
        with contextlib.suppress(OSError):  # where nothing can be said, the exit code says it
            print(how.message, file=sys.stderr)
        sys.exit(how.code)


if __name__ == "__main__":
    main()
