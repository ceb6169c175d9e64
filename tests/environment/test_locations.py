# SPDX-License-Identifier: Apache-2.0
"""The same run in several locations: the reports differ in time and location only, the exit codes not at all."""

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
def run(engine: str, build_output: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a function that runs suites that pass, with their own caches, and returns the folder of the report."""

    def run_suites(*words: object) -> Path:
        folder = tmp_path_factory.mktemp("run")
        caches = {"XDG_CACHE_HOME": str(folder / "caches"), "DOCKER_HOST": engine}
        completed = inv("hil", *words, "--report-dir", folder / "reports", timeout=1200, **caches)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        (folder / "output").write_text(completed.stdout)
        return folder

    return run_suites


# A float and an int8 model with both executors; all images of digits would take three times as long.
_SUITES = ("--suite", "cifar10,digits,faults", "-k", "faults or aot or graph")
_WORDS = ("--board", "stm32f746", "--virtual", *_SUITES)


@pytest.fixture(scope="module")
def in_a_container(run: Callable[..., Path]) -> Path:
    return run(*_WORDS, "--in", "docker")


@pytest.fixture
def client(engine: str, build_output: dict[str, Any]) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.DockerClient(base_url=engine)) as connected:
        yield connected


def _report(folder: Path) -> dict[str, Any]:
    return read_report(folder / "reports")


def _differences_from_the_lock() -> list[str]:
    """Return tools of this computer with another version than in the lock, if firmware depends on them."""
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n", *_PACKAGES]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    code = f"import importlib.metadata as m; [print(name, m.version(name)) for name in {_WHEELS!r}]"
    output += subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    installed = dict(line.split() for line in output.splitlines())
    locked = {package.name: package.version for package in load_lock_files().packages}
    return [
        f"{name} {installed.get(name, 'missing')}, not {locked[name]}"
        for name in (*_PACKAGES, *_WHEELS)
        if installed.get(name) != locked[name]
    ]


def test_host_and_container_give_the_same_report(
    run: Callable[..., Path], in_a_container: Path, build_output: dict[str, Any]
) -> None:
    """Outputs, instructions, ELF bytes and messages are equal; both compile, without sharing a cache."""
    if differences := _differences_from_the_lock():
        pytest.skip(f"this computer's tools are not the lock's: {'; '.join(differences)}")
    host_run, container_run = run(*_WORDS, "--in", "host"), in_a_container
    host_report, container_report = _report(host_run), _report(container_run)
    assert without_time_and_place(host_report) == without_time_and_place(container_report)
    assert {model["name"] for model in host_report["models"]} == {
        "cifar10_cnn",
        "cifar10_cnn_graph",
        "digits_int8_graph",
    }
    place = container_report["environment"]["place"]
    assert (place["kind"], place["frozen"], place["environment"]) == ("docker", True, build_output["environment"])
    host_place = host_report["environment"]["place"]
    assert (host_place["kind"], host_place["frozen"], host_place["environment"]) == ("host", False, "")
    assert host_place["installed"] != place["installed"]
    lines = (container_run / "output").read_text().splitlines()
    assert f"in docker, environment {build_output['environment'][:12]}" in lines[0]
    (page,) = [line.removeprefix("report: ") for line in lines if line.startswith("report: ")]
    assert Path(page).resolve() == (container_run / "reports" / "latest" / "index.html").resolve()
    assert "in docker" not in (host_run / "output").read_text()


_OTHER_COMPILER = """
cd /usr/bin && mv arm-none-eabi-gcc real-gcc
printf '#!/bin/sh\\nexec real-gcc "$@" -fno-schedule-insns2\\n' > arm-none-eabi-gcc
chmod +x arm-none-eabi-gcc
rm -r /opt/utvm/lib/python3.11/site-packages/cloudpickle-*.dist-info
cd /utvm && ./inv hil --board stm32f746 --virtual --suite digits
"""


@pytest.mark.nightly
def test_changed_image_shows_in_the_report(engine: str, in_a_container: Path) -> None:
    """An image that was built upon: its label is the same, but it has another compiler and lacks a package."""
    script = ROOT / "build" / "other-compiler.sh"
    script.write_text(_OTHER_COMPILER)
    try:
        completed = inv("docker.run", f"sh build/{script.name}", timeout=1200, DOCKER_HOST=engine)
    finally:
        script.unlink()
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "in docker, with other tools than the lock's" in completed.stdout.splitlines()[0]
    (page,) = [line.removeprefix("report: ") for line in completed.stdout.splitlines() if line.startswith("report: ")]
    changed = json.loads(Path(page).with_name("report.json").read_text())
    shutil.rmtree(Path(page).parent)
    frozen = _report(in_a_container)
    places = [report["environment"]["place"] for report in (changed, frozen)]
    assert [place["frozen"] for place in places] == [False, True]
    assert places[0]["installed"] != places[1]["installed"]
    assert changed["environment"]["digest"] == frozen["environment"]["digest"]
    for changed_model, original_model in zip(changed["models"], frozen["models"], strict=True):
        assert changed_model["outputs_sha256"] == original_model["outputs_sha256"]
        assert changed_model["image_sha256"] != original_model["image_sha256"]


@pytest.mark.parametrize("reference", by_day(["by its path", "by its name"], "by its name"))
def test_own_boards_are_copied(run: Callable[..., Path], tmp_path: Path, reference: str) -> None:
    """One board by its path with a setting, one by its name in a folder of the board path."""
    mine, others = tmp_path / "a board" / "mine", tmp_path / "others"
    for original, folder in (("riscv-spike", mine), ("host", others / "process")):
        shutil.copytree(boards.load(original).directory, folder)
        content = yaml.safe_load((folder / "board.yaml").read_text()) | {"name": folder.name}
        (folder / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    words = ("--suite", "health", "--in", "docker", "--board-path", others)
    if reference == "by its path":
        by_path = _report(run("--board", f"{mine}:core=rv64", "--virtual", *words))
        assert by_path["board"]["id"] == "mine:core=rv64"
    else:
        assert _report(run("--board", "process", *words))["board"]["id"] == "process"


def test_own_suites_run_in_a_container_and_are_recorded(
    engine: str, build_output: dict[str, Any], tmp_path: Path
) -> None:
    """Files beside a suite are found; the report and the list of failed tests are in the project."""
    project = own_project(tmp_path)
    words = ("hil", "--board", "host", "--in", "docker")
    for options, outcomes in ((), ["passed", "failed"]), (("--last-failed",), ["failed"]):
        completed = inv(*words, *options, cwd=project, DOCKER_HOST=engine)
        assert completed.returncode == 1, completed.stdout + completed.stderr
        report = read_report(project / "build" / "reports")
        assert [test["outcome"] for test in report["tests"]] == outcomes
        assert report["environment"]["place"]["frozen"]
    assert f"report: {project / 'build' / 'reports'}" in completed.stdout


@pytest.mark.nightly  # with a board that fails; the test above has a suite that fails
def test_exit_code_is_that_of_the_run(engine: str, build_output: dict[str, Any], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(boards.load("mps2-an385").directory, wrong)
    content = yaml.safe_load((wrong / "board.yaml").read_text()) | {"name": "wrong"}
    # Its file claims that invalid addresses are errors, but the emulated machine answers them.
    content["virtual"] = {**content["virtual"], "lacks": ["reset cause"]}
    (wrong / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    words = ("--board", wrong, "--suite", "memory", "--in", "docker", "--report-dir", tmp_path / "reports")
    completed = inv("hil", *words, DOCKER_HOST=engine)
    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert _report(tmp_path)["exit_code"] == 1


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.nightly) for one in (signal.SIGTERM, signal.SIGKILL))],
    ids=lambda one: str(one.name),
)
def test_interrupted_run_reports_and_leaves_no_container(
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
        output = running.stdout.read()
        assert running.wait(120) == (3 if number != signal.SIGKILL else -signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (remaining := [*_containers(client), *_processes(str(tmp_path))]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert remaining == []
    if number != signal.SIGKILL:
        assert "NO VERDICT (interrupted)" in output.splitlines()[-1]
        assert _report(tmp_path)["verdict"] == "interrupted"


def _containers(client: docker.DockerClient) -> list[object]:
    return list(client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True))


def _processes(word: str) -> list[object]:
    return [process for process in psutil.process_iter(["cmdline"]) if word in " ".join(process.info["cmdline"] or [])]


def test_container_cannot_use_another_location(engine: str, build_output: dict[str, Any]) -> None:
    completed = inv("docker.run", "./inv hil --board host --in host", DOCKER_HOST=engine)
    assert completed.returncode == 2
    assert "where host is not available" in completed.stderr


@pytest.mark.nightly
def test_nightly_run_has_boards_in_both_locations(engine: str, build_output: dict[str, Any], tmp_path: Path) -> None:
    entries = [{"board": "host", "suites": ["health"], "place": place} for place in ("host", "docker")]
    (tmp_path / "some.yaml").write_text(yaml.safe_dump({"boards": entries}))
    words = ("--config", tmp_path / "some.yaml", "--report-dir", tmp_path / "reports")
    completed = inv("nightly", *words, timeout=600, DOCKER_HOST=engine)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "PROCESS host in docker: 1 passed" in completed.stdout
    latest = tmp_path / "reports" / "latest"
    content = json.loads((latest / "nightly.json").read_text())
    host_board, container_board = content["boards"]
    assert (host_board["label"], host_board["place"], container_board["label"], container_board["place"]) == (
        "host",
        "host",
        "host-docker",
        "docker",
    )
    assert host_board["environment"] == container_board["environment"]
    report = json.loads((latest / container_board["report"]).read_text())
    assert report["environment"]["place"]["frozen"]
    assert "in docker" in (latest / "index.html").read_text()
