# SPDX-License-Identifier: Apache-2.0
"""Runs commands the way ``./inv`` does, after its first start.

Each begins as a copy of a process that has loaded its modules. Where it is given variables that a process heeds
when it begins, it begins as users begin it.
"""

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.copies import begin_copy

_COLUMNS = {"COLUMNS": "200"}
_HEEDED_AT_THE_BEGINNING = ("FORCE_COLOR", "LD_PRELOAD", "NO_COLOR", "PYTHON", "TERM", "TMPDIR")


def inv(*words: object, timeout: float = 300, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or for that many seconds."""
    command = [sys.executable, "-m", "utvm", *map(str, words)]
    environment = {**os.environ, **_COLUMNS, **env}
    if not any(name.startswith(_HEEDED_AT_THE_BEGINNING) for name in env):
        return _in_a_copy(command, cwd or Path.cwd(), environment, timeout)
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=timeout
    )


def _in_a_copy(
    command: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        said, complained = Path(folder) / "out", Path(folder) / "err"
        run = functools.partial(_run, command[2:], int(environment["COLUMNS"]))
        copy = begin_copy(run, cwd, environment, said, complained)
        copy.join(timeout)
        if copy.exitcode is None:
            copy.kill()
            copy.join()
            raise subprocess.TimeoutExpired(command, timeout, said.read_bytes(), complained.read_bytes())
        return subprocess.CompletedProcess(command, copy.exitcode, said.read_text(), complained.read_text())


def _run(words: list[str], columns: int) -> None:
    sys.argv = words
    from utvm.__main__ import main
    from utvm.cli.output import OUT

    # It has asked for its width when it was loaded.
    OUT.width = columns
    main()


def lint(program: str, *words: object) -> None:
    """Run a linter of the environment; it must find nothing."""
    command = [Path(sys.executable).with_name(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
