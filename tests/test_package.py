# SPDX-License-Identifier: Apache-2.0
"""The package: the same bytes wherever it is built, and all commands without a checkout, from any folder."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

import utvm
from utvm.hil.report import checkout_digest
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


def _build(source: Path, folder: Path) -> dict[str, bytes]:
    """Return the files that the build backend makes of a source tree, by their names' ends."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", folder]
    # The checkout's own package must not be found instead of what is built.
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.suffix: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and source archive, of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    _build(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel in it; what it depends on is this environment's."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    packages = _packages(folder)
    (packages / "more.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--quiet"]
    subprocess.run([*command, "--disable-pip-version-check", *built.glob("*.whl")], check=True, timeout=120)
    return folder


def _packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python3*/site-packages"))


def _utvm(installed: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (home / "empty").mkdir(exist_ok=True)
    return subprocess.run(
        [installed / "bin" / "utvm", *words],
        cwd=home / "empty",
        env={**os.environ, "XDG_STATE_HOME": str(home / "state"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_wheel_and_sdist_are_reproducible(built: Path, tmp_path: Path) -> None:
    first = {path.suffix: path.read_bytes() for path in built.iterdir()}
    assert set(first) == {".whl", ".gz"}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    copy = tmp_path / "copy"
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            # Neither times nor rights are those of the checkout.
            (copy / name).write_bytes((ROOT / name).read_bytes())
    assert _build(copy, tmp_path / "second") == first
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(next(built.glob("*.gz")), unpacked)
    assert _build(next(unpacked.iterdir()), tmp_path / "third")[".whl"] == first[".whl"]


def test_the_package_pins_what_the_environment_does() -> None:
    lists = [(ROOT / "pyproject.toml").read_text(), (ROOT / "provision" / "python.in").read_text()]
    for name in ("apache-tvm", "apache-tvm-ffi"):
        pins = {line.strip(' ",') for text in lists for line in text.splitlines() if f"{name}==" in line}
        assert len(pins) == 1, pins


@pytest.mark.parametrize(
    "words", [["docker.build"], ["vm.up"], ["env.lock"], ["test"], ["hil", "--board", "host", "--in", "vm"]]
)
def test_what_needs_a_checkout_says_so(installed: Path, tmp_path: Path, words: list[str]) -> None:
    done = _utvm(installed, tmp_path, *words)
    assert done.returncode == 2
    assert "works only in a checkout of utvm" in done.stderr
    assert words[0] in done.stderr or "--in vm" in done.stderr


def test_the_installed_command_knows_its_version_and_its_boards(installed: Path, tmp_path: Path) -> None:
    assert utvm.__version__ in _utvm(installed, tmp_path, "--version").stdout
    assert "stm32f746" in _utvm(installed, tmp_path, "board.list").stdout


def test_suite_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in _packages(installed).rglob("*"))
    done = _utvm(installed, tmp_path, "hil", "--board", "host", "--suite", "digits", "-k", "graph")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((path, path.stat().st_mtime_ns) for path in _packages(installed).rglob("*")) == before
    assert list((tmp_path / "empty").iterdir()) == []
    report = tmp_path / "state" / "utvm" / "reports" / "latest" / "report.json"
    content = json.loads(report.read_text())
    # The same sources, so the same digest as in the checkout.
    assert content["environment"]["digest"] == checkout_digest()


def test_installed_command_links_the_same_image(installed: Path, tmp_path: Path) -> None:
    def image(python: Path) -> bytes:
        output = tmp_path / f"{python.parent.parent.name}.elf"
        command = [python, "-m", "utvm", "firmware.build", "--board", "stm32f746", "--model"]
        # A cache of its own: the image would be the other one's.
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / output.stem), "XDG_STATE_HOME": str(tmp_path)}
        command += [ROOT / "models" / "digits" / "digits.onnx", "--output", output]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return output.read_bytes()

    assert image(installed / "bin" / "python") == image(Path(sys.executable))


@pytest.mark.parametrize(
    "words",
    [pytest.param(("bin/utvm", "hil"), marks=pytest.mark.nightly), ("bin/python", "-m", "pytest", "hil")],
    ids=["hil", "pytest"],
)
def test_a_written_project_runs_its_suite_under_both_commands(
    installed: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Pytest finds the plugin by itself, and once."""
    _utvm(installed, tmp_path, "init", "demo")
    project = tmp_path / "empty" / "demo"
    command = [installed / words[0], *words[1:], "--board", "host"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((project / "build" / "reports" / "latest" / "report.json").read_text())
    assert [model["name"] for model in report["models"]] == ["digits"]
