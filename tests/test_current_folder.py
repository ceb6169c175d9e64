# SPDX-License-Identifier: Apache-2.0
"""Nothing in the current folder is executed: no Python that shadows a module, and no script of a tool."""

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


def _module_names() -> set[str]:
    """Return the names of modules that may be imported: Python's, the dependencies', and utvm's."""
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    own = {"conftest", "fabfile", "hil_tests", "sitecustomize", "tasks", "tests", "usercustomize", "utvm"}
    return {*sys.stdlib_module_names, *installed, *own, "pyocd_user"}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that is created if anything in the folder beside it, which is full of traps, is executed."""
    marker, folder = tmp_path / "marker", tmp_path / "here"
    folder.mkdir()
    for name in _module_names():
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write(__file__ + '\\n')\n")
    assert len(list(folder.iterdir())) > 300
    command = f"echo $0 >>{marker}"
    for script in [*_SCRIPTS.glob("interface/*.cfg"), *_SCRIPTS.glob("target/*.cfg"), Path("openocd.cfg")]:
        trap = folder / (script.relative_to(_SCRIPTS) if script.is_absolute() else script)
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(f"exec sh -c {{{command}}}\n")
    (folder / ".gdbinit").write_text(f"shell {command}\n")
    (folder / "Vagrantfile").write_text(f"system '{command}'\n")
    (folder / "pyocd.yaml").write_text("user_script: pyocd_user.py\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p pyocd_user\npythonpath = .\n")
    (folder / "invoke.yaml").write_text(f"run:\n  shell: {folder / 'python3'}\n")
    for program in ("cat", "env", "git", "openocd", "python3", "readlink", "sh"):
        (folder / program).write_text(f"#!/bin/sh\n{command}\n")
        (folder / program).chmod(0o755)
    return marker


def _run(marker: Path, command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    completed = subprocess.run(
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
    return completed


@pytest.mark.parametrize("search", ["", f":{ROOT}"])
def test_new_python_imports_nothing_from_the_folder(marker: Path, search: str) -> None:
    program = marker.parent / "program.py"
    program.write_text("import argparse, json, sys, yaml; print(json.dumps(sys.argv[1:]))\n")
    # As ./inv passes it on: Python imports from there before any code can run.
    clean = ":".join(entry for entry in search.split(":") if entry.startswith("/"))
    completed = _run(marker, python_command(str(program), "a", "b c"), PYTHONPATH=clean)
    assert (completed.returncode, completed.stdout) == (0, '["a", "b c"]\n'), completed.stderr


@pytest.mark.parametrize("safe", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_module_runs_with_its_own_arguments(marker: Path, safe: str) -> None:
    completed = _run(marker, python_command("utvm.virtual", "--help"), PYTHONSAFEPATH=safe)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("usage: python -m utvm.virtual")


def test_traps_work_with_a_plain_python(marker: Path) -> None:
    with pytest.raises(AssertionError, match="here/"):
        _run(marker, [sys.executable, "-m", "utvm.virtual", "--help"])


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "empty"), [("--list", False), ("board.detect", True)])
def test_command_executes_nothing_in_the_folder(marker: Path, arguments: str, empty: bool) -> None:
    """Nor with an empty entry, which means the current folder, in PATH and PYTHONPATH."""
    search = {"PATH": f":{os.environ['PATH']}:", "PYTHONPATH": ":"} if empty else {}
    completed = _run(marker, [ROOT / "inv", *arguments.split()], **search)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.slow
def test_virtual_board_executes_nothing_in_the_folder(marker: Path) -> None:
    completed = _run(marker, [ROOT / "inv", "board.reset", "--board", "stm32f746"])
    assert completed.returncode == 0, completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "doctor",
        "hil --board host --suite health",
        # model.run starts OpenOCD for one board, and riscv-spike for the other.
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
def test_no_command_executes_anything_in_the_folder(marker: Path, arguments: str) -> None:
    completed = _run(marker, [ROOT / "inv", *arguments.replace("MODEL", str(_MODEL)).split()])
    assert completed.returncode in (0, 2), completed.stdout + completed.stderr
    assert not re.search("Traceback", completed.stderr)
