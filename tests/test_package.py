# SPDX-License-Identifier: Apache-2.0
"""The package: the same bytes wherever it is built, and all commands without a checkout, from any folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import utvm
from utvm.hil.report import checkout_digest
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


def _build(source: Path, folder: Path) -> dict[str, bytes]:
    """Return the build backend's files of a source tree, by suffix."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    # The checkout's own package must not be found instead of the built one.
    completed = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=120)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return {path.suffix: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with this checkout's wheel and source archive."""
    folder = tmp_path_factory.mktemp("built")
    _build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel_environment(build_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    packages = _packages(folder)
    (packages / "more.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--quiet"]
    subprocess.run([*command, "--disable-pip-version-check", *build_folder.glob("*.whl")], check=True, timeout=120)
    return folder


def test_wheel_names_its_pages_and_what_boards_need(build_folder: Path) -> None:
    (wheel,) = build_folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    assert "Classifier: Framework :: Pytest" in lines and "Classifier: Typing :: Typed" in lines
    assert {line.split()[1] for line in lines if line.startswith("Project-URL:")} >= {"Source,", "Documentation,"}
    needed = [line for line in lines if re.match("Requires-Dist: (pytest|unicorn|pyusb|libusb-package)", line)]
    assert len(needed) == 4 and all("extra == 'boards'" in line for line in needed)


def _packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python3*/site-packages"))


def _utvm(wheel_environment: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (home / "empty").mkdir(exist_ok=True)
    return subprocess.run(
        [wheel_environment / "bin" / "utvm", *arguments],
        cwd=home / "empty",
        env={**os.environ, "XDG_STATE_HOME": str(home / "state"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_wheel_and_sdist_are_reproducible(build_folder: Path, tmp_path: Path) -> None:
    first = {path.suffix: path.read_bytes() for path in build_folder.iterdir()}
    assert set(first) == {".whl", ".gz"}
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    copy = tmp_path / "copy"
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            # Without the checkout's times and rights.
            (copy / name).write_bytes((ROOT / name).read_bytes())
    assert _build(copy, tmp_path / "second") == first
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(next(build_folder.glob("*.gz")), unpacked)
    assert _build(next(unpacked.iterdir()), tmp_path / "third")[".whl"] == first[".whl"]


def test_package_and_environment_have_the_same_pins() -> None:
    lists = [(ROOT / "pyproject.toml").read_text(), (ROOT / "provision" / "python.in").read_text()]
    for name in ("apache-tvm", "apache-tvm-ffi"):
        pins = {line.strip(' ",') for text in lists for line in text.splitlines() if f"{name}==" in line}
        assert len(pins) == 1, pins


@pytest.mark.parametrize(
    "arguments", [["docker.build"], ["vm.up"], ["env.lock"], ["test"], ["hil", "--board", "host", "--in", "vm"]]
)
def test_command_that_needs_a_checkout_is_refused(
    wheel_environment: Path, tmp_path: Path, arguments: list[str]
) -> None:
    completed = _utvm(wheel_environment, tmp_path, *arguments)
    assert completed.returncode == 2
    assert "works only in a checkout of utvm" in completed.stderr
    assert arguments[0] in completed.stderr or "--in vm" in completed.stderr


def test_installed_command_has_version_and_boards(wheel_environment: Path, tmp_path: Path) -> None:
    assert utvm.__version__ in _utvm(wheel_environment, tmp_path, "--version").stdout
    assert "stm32f746" in _utvm(wheel_environment, tmp_path, "board.list").stdout


def test_suite_runs_from_an_empty_folder(wheel_environment: Path, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in _packages(wheel_environment).rglob("*"))
    completed = _utvm(wheel_environment, tmp_path, "hil", "--board", "host", "--suite", "digits", "-k", "graph")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert sorted((path, path.stat().st_mtime_ns) for path in _packages(wheel_environment).rglob("*")) == before
    assert list((tmp_path / "empty").iterdir()) == []
    report = tmp_path / "state" / "utvm" / "reports" / "latest" / "report.json"
    content = json.loads(report.read_text())
    # The same sources, so the same digest as in the checkout.
    assert content["environment"]["digest"] == checkout_digest()


def test_installed_command_links_the_same_image(wheel_environment: Path, tmp_path: Path) -> None:
    def image(python: Path) -> bytes:
        output = tmp_path / f"{python.parent.parent.name}.elf"
        command = [python, "-m", "utvm", "firmware.build", "--board", "stm32f746", "--model"]
        # A separate cache: otherwise the other image would be used.
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / output.stem), "XDG_STATE_HOME": str(tmp_path)}
        command += [ROOT / "models" / "digits" / "digits.onnx", "--output", output]
        completed = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr
        return output.read_bytes()

    assert image(wheel_environment / "bin" / "python") == image(Path(sys.executable))


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(("bin/utvm", "hil"), marks=pytest.mark.nightly), ("bin/python", "-m", "pytest", "hil")],
    ids=["hil", "pytest"],
)
def test_new_project_runs_its_suite_with_both_commands(
    wheel_environment: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Pytest finds the plugin by itself, and once."""
    _utvm(wheel_environment, tmp_path, "init", "demo")
    project = tmp_path / "empty" / "demo"
    command = [wheel_environment / arguments[0], *arguments[1:], "--board", "host"]
    completed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    report = json.loads((project / "build" / "reports" / "latest" / "report.json").read_text())
    assert [model["name"] for model in report["models"]] == ["digits"]
