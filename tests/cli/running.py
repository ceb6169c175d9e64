# SPDX-License-Identifier: Apache-2.0
"""Runs commands as ``./inv`` does, without its first-run set-up.

A command runs in a copy of a process that has loaded its modules. It runs as a new process if it is given variables
that Python or the loader reads at start.
"""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.copies import start_copy

_COLUMNS = {"COLUMNS": "200"}
_READ_AT_START = ("FORCE_COLOR", "LD_PRELOAD", "NO_COLOR", "PYTHON", "TERM", "TMPDIR")


def inv(*words: object, timeout: float = 300, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``timeout`` is in seconds."""
    command = [sys.executable, "-m", "utvm", *map(str, words)]
    environment = {**os.environ, **_COLUMNS, **env}
    if not any(name.startswith(_READ_AT_START) for name in env):
        return _run_in_copy(command, cwd or Path.cwd(), environment, timeout)
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=timeout
    )


def _run_in_copy(
    command: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder) / "out", Path(folder) / "err"
        run = functools.partial(_run, command[2:], int(environment["COLUMNS"]))
        copy = start_copy(run, cwd, environment, output, errors)
        copy.join(timeout)
        if copy.exitcode is None:
            copy.kill()
            copy.join()
            raise subprocess.TimeoutExpired(command, timeout, output.read_bytes(), errors.read_bytes())
        return subprocess.CompletedProcess(command, copy.exitcode, output.read_text(), errors.read_text())


def _run(words: list[str], columns: int) -> None:
    sys.argv = words
    from utvm.__main__ import main
    from utvm.cli.output import OUT

    # It read the width when it was loaded.
    OUT.width = columns
    main()


def lint(program: str, *words: object) -> None:
    """Run a linter of the environment; it must report nothing."""
    command = [Path(sys.executable).with_name(program), *map(str, words)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert completed.returncode == 0, completed.stdout + completed.stderr
