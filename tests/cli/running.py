# SPDX-License-Identifier: Apache-2.0
"""Runs commands the way ``./inv`` does, after its first start.

Hundreds of tests run one: it begins in a copy of a process that has loaded what most commands load, which spares
two thirds of what they cost. Where it is given variables that a process heeds when it begins, it begins as users
begin it.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_LOADED = ["numpy", "onnx", "pydantic", "pytest", "tasks", "utvm.__main__", "utvm.boards", "utvm.cli.model_run"]
_COLUMNS = {"COLUMNS": "200"}
_HEEDED_AT_THE_BEGINNING = ("FORCE_COLOR", "LD_PRELOAD", "NO_COLOR", "PATH", "PYTHON", "TERM", "TMPDIR")


def inv(
    *words: object, timeout: float = 300, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or for that many seconds."""
    command = [sys.executable, "-m", "utvm", *map(str, words)]
    environment = {**os.environ, **_COLUMNS, **env}
    if not any(name.startswith(_HEEDED_AT_THE_BEGINNING) for name in env):
        return _in_a_copy(command, cwd or Path.cwd(), environment, timeout)
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def _in_a_copy(
    command: list[str], cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(_LOADED)
    with tempfile.TemporaryDirectory() as folder:
        said, complained = Path(folder) / "out", Path(folder) / "err"
        copy = server.Process(target=_become, args=(command[2:], cwd, environment, said, complained))
        copy.start()
        copy.join(timeout)
        if copy.exitcode is None:
            copy.kill()
            copy.join()
            raise subprocess.TimeoutExpired(command, timeout, said.read_bytes(), complained.read_bytes())
        return subprocess.CompletedProcess(command, copy.exitcode, said.read_text(), complained.read_text())


def _become(words: list[str], cwd: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    """Be the command, as if begun here."""
    for number, path in ((1, out), (2, err)):
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(place, number)
        os.close(place)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    from utvm.__main__ import main
    from utvm.cli.output import OUT

    # It has asked for its width when it was loaded.
    OUT.width = int(environment["COLUMNS"])
    main()
