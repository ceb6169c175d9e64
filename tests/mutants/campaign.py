# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a file against mutants of it, in a copy of the checkout."""

import os
import shutil
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.mutants.mutate import Mutant, mutants
from utvm.paths import ROOT

_FOLDER = Path(__file__).parent
_PHASES = {"quick": "not slow and not nightly", "slow": "slow and not nightly"}
_NO_TESTS = 5  # pytest's exit code where no test has these marks.
_TIMEOUT_S = {"quick": 240, "slow": 900}


@dataclass(frozen=True)
class Result:
    """A mutant, and the phase whose tests noticed it: quick, slow, or none."""

    mutant: Mutant
    killer: str


def held() -> dict[str, list[str]]:
    """Return each file whose mutants are drawn, with its test files."""
    files: dict[str, list[str]] = yaml.safe_load((_FOLDER / "table.yaml").read_text(encoding="utf-8"))
    return files


def candidates() -> list[Mutant]:
    """Return all mutants of the files in the table."""
    return [mutant for file in held() for mutant in mutants(ROOT, file)]


def copy_checkout(folder: Path) -> Path:
    """Copy the checkout's files, with an environment of its own that sees the packages of this one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        # A file that is deleted, and not yet in a commit, is listed as well.
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    venv.create(folder / ".venv", symlinks=True, with_pip=False)
    for stamp in (ROOT / ".venv").glob("*.stamp"):
        shutil.copy2(stamp, folder / ".venv")
    packages = next((folder / ".venv" / "lib").glob("python3*")) / "site-packages"
    (packages / "mutants.pth").write_text(f"{folder}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return folder


def passes(copy: Path, tests: list[str], phase: str) -> bool:
    """Whether the tests of a phase pass in the copy."""
    command = [copy / ".venv/bin/python", "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-m", _PHASES[phase], *tests]
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(copy / "build" / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as tester:
        try:
            return tester.wait(_TIMEOUT_S[phase]) in (0, _NO_TESTS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            # A mutant may leave commands running.
            with suppress(ProcessLookupError):
                os.killpg(tester.pid, signal.SIGKILL)


def run(copy: Path, drawn: list[Mutant]) -> Iterator[Result]:
    """Try mutants in a copy, each from the unchanged state.

    Raises:
        RuntimeError: the tests fail without any mutant.
    """
    tests = held()
    for phase in _PHASES:
        used = sorted({test for mutant in drawn for test in tests[mutant.file]})
        if not passes(copy, used, phase):
            raise RuntimeError(f"the {phase} tests fail in the copy without a mutant: {' '.join(used)}")
    # Caches that are filled, of which each mutant has its own: it may spoil them.
    filled = (copy / "build").rename(copy / "filled")
    for mutant in drawn:
        place = copy / mutant.file
        source = place.read_bytes()
        shutil.copytree(filled, copy / "build", symlinks=True)
        place.write_bytes(mutant.apply(source))
        try:
            killer = next((phase for phase in _PHASES if not passes(copy, tests[mutant.file], phase)), "none")
        finally:
            place.write_bytes(source)
            shutil.rmtree(copy / "build", ignore_errors=True)
        yield Result(mutant, killer)
