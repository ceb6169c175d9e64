# SPDX-License-Identifier: Apache-2.0
"""The same run in several places: reports that differ in time and place alone, runs that end as they do here."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest
import yaml

from tests.cli.running import inv
from tests.environment.reports import own_project, read_report, without_time_and_place
from tests.portions import by_day
from utvm import boards
from utvm.environment.container import LABEL
from utvm.environment.locked import load_lock_files
from utvm.paths import ROOT

pytestmark = pytest.mark.slow

_PACKAGES = ("binutils-arm-none-eabi", "gcc-arm-none-eabi", "libnewlib-arm-none-eabi", "openocd")
_WHEELS = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "unicorn")


@pytest.fixture(scope="module")
def run(engine: str, built: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Run suites that pass, with caches of their own, and return the folder of their report."""

    def go(*words: object) -> Path:
        folder = tmp_path_factory.mktemp("run")
        caches = {"XDG_CACHE_HOME": str(folder / "caches"), "DOCKER_HOST": engine}
        done = inv("hil", *words, "--report-dir", folder / "reports", timeout=1200, **caches)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / "said").write_text(done.stdout)
        return folder

    return go


# A float and an int8 model, both executors; all images of digits would take three times as long.
_SUITES = ("--suite", "cifar10,digits,faults", "-k", "faults or aot or graph")
_WORDS = ("--board", "stm32f746", "--virtual", *_SUITES)


@pytest.fixture(scope="module")
def in_a_container(run: Callable[..., Path]) -> Path:
    return run(*_WORDS, "--in", "docker")


@pytest.fixture
def client(engine: str, built: dict[str, Any]) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.DockerClient(base_url=engine)) as connected:
        yield connected


def _report(folder: Path) -> dict[str, Any]:
    return read_report(folder / "reports")


def _unlike_the_lock() -> list[str]:
    """What this computer has in another version than the lock, of what firmware and its figures come from."""
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *_PACKAGES]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    code = f"import importlib.metadata as m; [print(name, m.version(name)) for name in {_WHEELS!r}]"
    said += subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    here = dict(line.split() for line in said.splitlines())
    locked = {package.name: package.version for package in load_lock_files().packages}
    return [
        f"{name} {here.get(name, 'missing')}, not {locked[name]}"
        for name in (*_PACKAGES, *_WHEELS)
        if here.get(name) != locked[name]
    ]


def test_the_host_and_a_container_give_the_same_report(
    run: Callable[..., Path], in_a_container: Path, built: dict[str, Any]
) -> None:
    """Outputs, instructions, ELF bytes, the words of every test; compiled twice, without each other's caches."""
    if unlike := _unlike_the_lock():
        pytest.skip(f"this computer's tools are not the lock's: {'; '.join(unlike)}")
    here, there = run(*_WORDS, "--in", "host"), in_a_container
    ours, theirs = _report(here), _report(there)
    assert without_time_and_place(ours) == without_time_and_place(theirs)
    assert {model["name"] for model in ours["models"]} == {"cifar10_cnn", "cifar10_cnn_graph", "digits_int8_graph"}
    place = theirs["environment"]["place"]
    assert (place["kind"], place["frozen"], place["environment"]) == ("docker", True, built["environment"])
    other = ours["environment"]["place"]
    assert (other["kind"], other["frozen"], other["environment"]) == ("host", False, "")
    assert other["installed"] != place["installed"]
    said = (there / "said").read_text().splitlines()
    assert f"in docker, environment {built['environment'][:12]}" in said[0]
    (page,) = [line.removeprefix("report: ") for line in said if line.startswith("report: ")]
    assert Path(page).resolve() == (there / "reports" / "latest" / "index.html").resolve()
    assert "in docker" not in (here / "said").read_text()


_OTHER_COMPILER = """
cd /usr/bin && mv arm-none-eabi-gcc real-gcc
printf '#!/bin/sh\\nexec real-gcc "$@" -fno-schedule-insns2\\n' > arm-none-eabi-gcc
chmod +x arm-none-eabi-gcc
rm -r /opt/utvm/lib/python3.11/site-packages/cloudpickle-*.dist-info
cd /utvm && ./inv hil --board stm32f746 --virtual --suite digits
"""


@pytest.mark.nightly
def test_another_environment_shows_in_the_report(engine: str, in_a_container: Path) -> None:
    """An image that was built upon: it still says whose it was, but has another compiler and lacks a package."""
    script = ROOT / "build" / "other-compiler.sh"
    script.write_text(_OTHER_COMPILER)
    try:
        done = inv("docker.run", f"sh build/{script.name}", timeout=1200, DOCKER_HOST=engine)
    finally:
        script.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in docker, with other tools than the lock's" in done.stdout.splitlines()[0]
    (page,) = [line.removeprefix("report: ") for line in done.stdout.splitlines() if line.startswith("report: ")]
    changed = json.loads(Path(page).with_name("report.json").read_text())
    shutil.rmtree(Path(page).parent)
    frozen = _report(in_a_container)
    places = [report["environment"]["place"] for report in (changed, frozen)]
    assert [place["frozen"] for place in places] == [False, True]
    assert places[0]["installed"] != places[1]["installed"]
    assert changed["environment"]["digest"] == frozen["environment"]["digest"]
    for ours, theirs in zip(changed["models"], frozen["models"], strict=True):
        assert ours["outputs_sha256"] == theirs["outputs_sha256"]
        assert ours["image_sha256"] != theirs["image_sha256"]


@pytest.mark.parametrize("named", by_day(["by its path", "by its name"], "by its name"))
def test_boards_of_one_s_own_are_taken_along(run: Callable[..., Path], tmp_path: Path, named: str) -> None:
    """One by its path with a setting, one by its name in a folder of the board path."""
    mine, others = tmp_path / "a board" / "mine", tmp_path / "others"
    for original, folder in (("riscv-spike", mine), ("host", others / "process")):
        shutil.copytree(boards.load(original).directory, folder)
        content = yaml.safe_load((folder / "board.yaml").read_text()) | {"name": folder.name}
        (folder / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    words = ("--suite", "health", "--in", "docker", "--board-path", others)
    if named == "by its path":
        by_path = _report(run("--board", f"{mine}:core=rv64", "--virtual", *words))
        assert by_path["board"]["id"] == "mine:core=rv64"
    else:
        assert _report(run("--board", "process", *words))["board"]["id"] == "process"


def test_own_suites_run_in_a_container_and_are_recorded(engine: str, built: dict[str, Any], tmp_path: Path) -> None:
    """Files beside a suite are found; the report, and what failed, is in the project."""
    project = own_project(tmp_path)
    words = ("hil", "--board", "host", "--in", "docker")
    for more, outcomes in ((), ["passed", "failed"]), (("--last-failed",), ["failed"]):
        done = inv(*words, *more, cwd=project, DOCKER_HOST=engine)
        assert done.returncode == 1, done.stdout + done.stderr
        report = read_report(project / "build" / "reports")
        assert [test["outcome"] for test in report["tests"]] == outcomes
        assert report["environment"]["place"]["frozen"]
    assert f"report: {project / 'build' / 'reports'}" in done.stdout


@pytest.mark.nightly  # with a board that fails; a suite that fails has its exit code above
def test_the_exit_code_is_the_run_s(engine: str, built: dict[str, Any], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(boards.load("mps2-an385").directory, wrong)
    content = yaml.safe_load((wrong / "board.yaml").read_text()) | {"name": "wrong"}
    # It says that wrong addresses are errors, and where nothing is, its machine answers.
    content["virtual"] = {**content["virtual"], "lacks": ["reset cause"]}
    (wrong / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    words = ("--board", wrong, "--suite", "memory", "--in", "docker", "--report-dir", tmp_path / "reports")
    done = inv("hil", *words, DOCKER_HOST=engine)
    assert done.returncode == 1, done.stdout + done.stderr
    assert _report(tmp_path)["exit_code"] == 1


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.nightly) for one in (signal.SIGTERM, signal.SIGKILL))],
    ids=lambda one: str(one.name),
)
def test_an_interrupted_run_reports_and_leaves_no_container(
    engine: str, client: docker.DockerClient, tmp_path: Path, number: signal.Signals
) -> None:
    words = ("hil", "--board=stm32f746", "--virtual", "--suite=digits", "--in=docker")
    with subprocess.Popen(
        [sys.executable, "-m", "utvm", *words, f"--report-dir={tmp_path / 'reports'}"],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": engine},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert "in docker" in running.stdout.readline()
        assert running.stdout.readline().startswith("stm32f746: VIRTUAL board")
        running.send_signal(number)
        said = running.stdout.read()
        assert running.wait(120) == (3 if number != signal.SIGKILL else -signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (left := [*_containers(client), *_processes(str(tmp_path))]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
    if number != signal.SIGKILL:
        assert "NO VERDICT (interrupted)" in said.splitlines()[-1]
        assert _report(tmp_path)["verdict"] == "interrupted"


def _containers(client: docker.DockerClient) -> list[object]:
    return list(client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True))


def _processes(word: str) -> list[object]:
    return [each for each in psutil.process_iter(["cmdline"]) if word in " ".join(each.info["cmdline"] or [])]


def test_a_container_has_no_way_to_another_place(engine: str, built: dict[str, Any]) -> None:
    done = inv("docker.run", "./inv hil --board host --in host", DOCKER_HOST=engine)
    assert done.returncode == 2
    assert "where host is not available" in done.stderr


@pytest.mark.nightly
def test_a_nightly_run_has_boards_in_both_places(engine: str, built: dict[str, Any], tmp_path: Path) -> None:
    entries = [{"board": "host", "suites": ["health"], "place": place} for place in ("host", "docker")]
    (tmp_path / "some.yaml").write_text(yaml.safe_dump({"boards": entries}))
    words = ("--config", tmp_path / "some.yaml", "--report-dir", tmp_path / "reports")
    done = inv("nightly", *words, timeout=600, DOCKER_HOST=engine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PROCESS host in docker: 1 passed" in done.stdout
    latest = tmp_path / "reports" / "latest"
    content = json.loads((latest / "nightly.json").read_text())
    here, there = content["boards"]
    assert (here["label"], here["place"], there["label"], there["place"]) == ("host", "host", "host-docker", "docker")
    assert here["environment"] == there["environment"]
    own = json.loads((latest / there["report"]).read_text())
    assert own["environment"]["place"]["frozen"]
    assert "in docker" in (latest / "index.html").read_text()
