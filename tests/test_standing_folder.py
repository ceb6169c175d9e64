# SPDX-License-Identifier: Apache-2.0
"""Nothing in the current folder is run: no Python that shadows a module, and no script that a tool looks for."""

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from utvm.base.process.interpreter import python_command
from utvm.paths import ROOT

_MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"
_SCRIPTS = Path("/usr/share/openocd/scripts")


def _shadowed() -> set[str]:
    """Return the names of modules that may be imported: Python's, our dependencies', and ours."""
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    ours = {"conftest", "fabfile", "hil_tests", "sitecustomize", "tasks", "tests", "usercustomize", "utvm"}
    return {*sys.stdlib_module_names, *installed, *ours, "pyocd_user"}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that is there once something has been run of the folder beside it, which is full of traps."""
    marker, folder = tmp_path / "marker", tmp_path / "here"
    folder.mkdir()
    for name in _shadowed():
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write(__file__ + '\\n')\n")
    assert len(list(folder.iterdir())) > 300
    said = f"echo $0 >>{marker}"
    for script in [*_SCRIPTS.glob("interface/*.cfg"), *_SCRIPTS.glob("target/*.cfg"), Path("openocd.cfg")]:
        trap = folder / (script.relative_to(_SCRIPTS) if script.is_absolute() else script)
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(f"exec sh -c {{{said}}}\n")
    (folder / ".gdbinit").write_text(f"shell {said}\n")
    (folder / "Vagrantfile").write_text(f"system '{said}'\n")
    (folder / "pyocd.yaml").write_text("user_script: pyocd_user.py\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p pyocd_user\npythonpath = .\n")
    (folder / "invoke.yaml").write_text(f"run:\n  shell: {folder / 'python3'}\n")
    for program in ("cat", "env", "git", "openocd", "python3", "readlink", "sh"):
        (folder / program).write_text(f"#!/bin/sh\n{said}\n")
        (folder / program).chmod(0o755)
    return marker


def _run(marker: Path, command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=marker.parent / "here",
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert not marker.exists(), marker.read_text()
    return done


@pytest.mark.parametrize("search", ["", f":{ROOT}"])
def test_another_python_finds_no_module_there(marker: Path, search: str) -> None:
    program = marker.parent / "program.py"
    program.write_text("import argparse, json, sys, yaml; print(json.dumps(sys.argv[1:]))\n")
    # As ./inv hands it on: Python itself imports from there before anything else can be done.
    clean = ":".join(entry for entry in search.split(":") if entry.startswith("/"))
    done = _run(marker, python_command(str(program), "a", "b c"), PYTHONPATH=clean)
    assert (done.returncode, done.stdout) == (0, '["a", "b c"]\n'), done.stderr


@pytest.mark.parametrize("safe", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_a_module_is_run_as_python_does(marker: Path, safe: str) -> None:
    done = _run(marker, python_command("utvm.virtual", "--help"), PYTHONSAFEPATH=safe)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: python -m utvm.virtual")


def test_without_our_start_the_traps_work(marker: Path) -> None:
    with pytest.raises(AssertionError, match="here/"):
        _run(marker, [sys.executable, "-m", "utvm.virtual", "--help"])


@pytest.mark.slow
@pytest.mark.parametrize(("words", "empty"), [("--list", False), ("board.detect", True)])
def test_a_command_finds_nothing_there(marker: Path, words: str, empty: bool) -> None:
    """Nor where PATH and PYTHONPATH have an empty entry, which means the current folder."""
    search = {"PATH": f":{os.environ['PATH']}:", "PYTHONPATH": ":"} if empty else {}
    done = _run(marker, [ROOT / "inv", *words.split()], **search)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_virtual_board_and_openocd_find_nothing_there(marker: Path) -> None:
    done = _run(marker, [ROOT / "inv", "board.reset", "--board", "stm32f746"])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "doctor",
        "hil --board host --suite health",
        # model.run starts OpenOCD for one of them, and riscv-spike for the other.
        pytest.param("hil --board stm32f746 --suite health", marks=pytest.mark.nightly),
        pytest.param("hil --board pynq-z1 --suite health", marks=pytest.mark.nightly),
        "hil --board riscv-spike --suite health",
        "hil --board mps2-an500 --suite health",
        "hil --board nrf5340dk --suite health",
        "model.run --model MODEL --board stm32f746",
        "model.tune --model MODEL --board host --trials 2",
        "model.eval --model MODEL --board host",
        "board.gdb --model MODEL --board stm32f746 --command detach",
        "board.new --from pyocd --chip k64f --output board",
        "history.changes",
        pytest.param("nightly --list", marks=pytest.mark.nightly),
        pytest.param("project.create", marks=pytest.mark.nightly),
        "vm.status",
    ],
)
def test_no_command_finds_anything_there(marker: Path, words: str) -> None:
    done = _run(marker, [ROOT / "inv", *words.replace("MODEL", str(_MODEL)).split()])
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert not re.search("Traceback", done.stderr)
