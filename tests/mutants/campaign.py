# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a file against mutants of it, in a copy of the checkout."""

import compileall
import contextlib
import json
import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
import yaml

from tests.mutants.mutate import Mutant, mutants
from utvm.paths import ROOT

_FOLDER = Path(__file__).parent
_PHASES = {"quick": "not slow and not nightly", "slow": "slow and not nightly"}
_TIMEOUT_S = {"quick": 240, "slow": 900}


@dataclass(frozen=True)
class Result:
    """A mutant, and the phase whose tests noticed it: quick, slow, or none."""

    mutant: Mutant
    killer: str


def tested_files() -> dict[str, list[str]]:
    """Return each file whose mutants are drawn, with its test files."""
    files: dict[str, list[str]] = yaml.safe_load((_FOLDER / "table.yaml").read_text(encoding="utf-8"))
    return files


def candidates() -> list[Mutant]:
    """Return all mutants of the files in the table."""
    return [mutant for file in tested_files() for mutant in mutants(ROOT, file)]


def copy_checkout(folder: Path) -> Path:
    """Copy the checkout's files, with an environment of its own that sees the packages of this one."""
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, os.fsdecode(files.stdout).split("\0")):
        # git also lists files that were deleted without a commit.
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    venv.create(folder / ".venv", symlinks=True, with_pip=False)
    for stamp in (ROOT / ".venv").glob("*.stamp"):
        shutil.copy2(stamp, folder / ".venv")
    packages = next((folder / ".venv" / "lib").glob("python3*")) / "site-packages"
    (packages / "mutants.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    # Compiled once, and not again: the bytecode of a mutant would be used later.
    compileall.compile_dir(folder / "utvm", quiet=2)
    return folder


@contextlib.contextmanager
def tester(copy: Path) -> Iterator[Callable[[list[str], str], bool]]:
    """Yield a function that tells whether test files of the copy pass in a phase, within its time."""
    with subprocess.Popen(
        [copy / ".venv/bin/python", "-B", "-m", "tests.mutants.tester"],
        cwd=copy,
        env={**os.environ, "XDG_CACHE_HOME": str(copy / "build" / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        requests, replies = process.stdin, process.stdout
        assert requests and replies

        def passes(tests: list[str], phase: str) -> bool:
            # One by one: if the first fails, the others are not loaded.
            return all(_passes(requests, replies, phase, test) for test in tests)

        yield passes


def _passes(requests: IO[str], replies: IO[str], phase: str, test: str) -> bool:
    request = [_TIMEOUT_S[phase], "-x", "-q", "-p", "no:xdist", "-m", _PHASES[phase], test]
    print(json.dumps(request), file=requests, flush=True)
    return int(replies.readline()) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def run(copy: Path, drawn: list[Mutant]) -> Iterator[Result]:
    """Try mutants in a copy, each from the unchanged state.

    Raises:
        RuntimeError: the tests fail without any mutant.
    """
    tests = tested_files()
    with tester(copy) as passes:
        for phase in _PHASES:
            used = sorted({test for mutant in drawn for test in tests[mutant.file]})
            if not passes(used, phase):
                raise RuntimeError(f"the {phase} tests fail in the copy without a mutant: {' '.join(used)}")
        # Each mutant has its own copy of the filled caches, as it may damage them.
        filled = (copy / "build").rename(copy / "filled")
        for mutant in drawn:
            path = copy / mutant.file
            source = path.read_bytes()
            shutil.copytree(filled, copy / "build", symlinks=True)
            path.write_bytes(mutant.apply(source))
            killer = next((phase for phase in _PHASES if not passes(tests[mutant.file], phase)), "none")
            path.write_bytes(source)
            shutil.rmtree(copy / "build")
            yield Result(mutant, killer)
