# SPDX-License-Identifier: Apache-2.0
"""Starts ``./inv`` and ``utvm`` with the tasks of ``tasks.py``, from any folder."""

import contextlib
import gc
import runpy
import sys
from pathlib import Path
from typing import TextIO

import utvm
from utvm import cli, errors, paths
from utvm.base.process.signals import guard_exit_code, ignore_signals, prepare_environment, raise_on_signals
from utvm.cli.program import Inv

_NAME = Path(paths.COMMAND).name


def main(handed_over: int = 0) -> None:
    """Run a command, and exit with its exit code, or 3 if its output could not be written.

    Args:
        handed_over: added to the exit code, so that ``inv`` can tell it from exit codes of libraries.
    """
    with guard_exit_code():
        code = _run_command()
        # A missing stream is None.
        unwritten = [_has_unwritten_text(stream) for stream in (sys.stdout, sys.stderr) if stream]
        if any(unwritten):
            code = errors.ExitCode.INFRASTRUCTURE
    # Commands that run other programs return their exit codes unchanged.
    sys.exit(handed_over + code if code in list(errors.ExitCode) else code)


def _has_unwritten_text(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            stream.close()
        return True
    return False


def _run_command() -> int:
    raise_on_signals()
    try:
        try:
            # Scanning long-lived modules and records at every 700 new objects takes a tenth of a short command.
            gc.set_threshold(50_000)
            prepare_environment()
            tasks = runpy.run_path(str(paths.DATA / "tasks.py"))
            names = {"name": _NAME, "binary": _NAME, "binary_names": [_NAME]}
            Inv(groups=tasks["GROUPS"], namespace=tasks["namespace"], version=utvm.__version__, **names).run()
        finally:
            ignore_signals()
    except (SystemExit, KeyboardInterrupt) as end:
        # Invoke turns an interruption outside a task into exit code 1, which here means that a test failed.
        if isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            return errors.ExitCode.INFRASTRUCTURE
        code = end.code or 0
        return code if isinstance(code, int) else errors.ExitCode.INFRASTRUCTURE
    except BrokenPipeError:
        # The reader has closed the pipe, like head.
        return errors.ExitCode.INFRASTRUCTURE
    except Exception as error:  # before a command starts, such as out of file handles or memory
        outcome = cli.exit_for(error)
        with contextlib.suppress(OSError):  # the exit code remains if printing fails
            print(outcome.message, file=sys.stderr)
        return errors.ExitCode(outcome.code)
    return errors.ExitCode.PASSED


if __name__ == "__main__":
    main()
