# SPDX-License-Identifier: Apache-2.0
"""utvm's wheel alone, on a stand-in for a system that is not Debian: no package manager and no compiler in PATH."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.environment.own_engine import missing, own_engine
from utvm.environment.builds import build_package

pytestmark = pytest.mark.slow

_HIL = ("hil", "--board", "stm32f746", "--virtual", "--suite", "health")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command ``utvm`` of the wheel; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("venv")
    build_package(folder / "built")
    venv.create(folder, symlinks=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    (packages / "more.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *(folder / "built").glob("*.whl")], check=True, timeout=120)
    return folder / "bin" / "utvm"


def _run(program: Path, folder: Path, *words: str, engine: str = "") -> subprocess.CompletedProcess[str]:
    for name in ("bin", "empty"):
        (folder / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "PYTHON"))}
    environment |= {"PATH": str(folder / "bin"), "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}
    if engine:
        environment["DOCKER_HOST"] = engine
    return subprocess.run(
        [program, *words],
        cwd=folder / "empty",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


@pytest.mark.nightly
def test_suites_run_in_a_container(program: Path, engine: str, build_output: dict[str, Any], tmp_path: Path) -> None:
    completed = _run(program, tmp_path, *_HIL, engine=engine)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lines = completed.stdout.splitlines()
    assert lines[0] == "arm-none-eabi-gcc is not installed here: running in a container (--in host: here)"
    assert lines[1].startswith(f"VIRTUAL stm32f746, in docker, environment {build_output['environment'][:12]}, ")
    assert any(line.startswith("PASSED on a VIRTUAL stm32f746") for line in lines)
    (page,) = [line.removeprefix("report: ") for line in lines if line.startswith("report: ")]
    assert Path(page).is_relative_to(tmp_path / "state") and Path(page).is_file()


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {missing()}")
def test_missing_image_is_reported_with_both_remedies(program: Path, tmp_path: Path) -> None:
    with own_engine() as address:
        completed = _run(program, tmp_path, *_HIL, engine=address)
    assert completed.returncode == 3
    assert "and this computer cannot build it" in completed.stderr
    assert "install the missing tools here, or load an image" in completed.stderr


def test_without_an_engine_the_missing_tool_is_named(program: Path, tmp_path: Path) -> None:
    completed = _run(program, tmp_path, *_HIL)
    assert completed.returncode == 3
    assert "arm-none-eabi-gcc is not installed" in completed.stderr and "container" not in completed.stdout


def test_engine_that_does_not_answer_is_named(program: Path, tmp_path: Path) -> None:
    completed = _run(program, tmp_path, *_HIL, engine=f"unix://{tmp_path}/none")
    assert completed.returncode == 3
    assert f"no Docker engine answers at unix://{tmp_path}/none" in completed.stderr
