# SPDX-License-Identifier: Apache-2.0
"""The image in a real engine: its content, its user, and the removal of containers."""

import contextlib
import dataclasses
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest

from tests.cli.running import inv
from tests.environment.own_engine import own_engine
from tests.processes import descendants
from utvm.environment.container import LABEL
from utvm.environment.engine import current_owner
from utvm.environment.locked import load_lock_files
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def client(engine: str, build_output: dict[str, Any]) -> Iterator[docker.DockerClient]:
    connected = docker.DockerClient(base_url=engine)
    assert connected.images.get("utvm:latest").tags == build_output["tags"]
    yield connected
    connected.close()


def _containers(client: docker.DockerClient) -> list[object]:
    # A container that is being removed is still listed, but cannot be queried.
    return list(client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True))


def _run(engine: str, command: str) -> subprocess.CompletedProcess[str]:
    return inv("docker.run", command, DOCKER_HOST=engine)


def test_image_is_small_and_labelled(client: docker.DockerClient, build_output: dict[str, Any]) -> None:
    image = client.images.get("utvm:latest")
    assert image.labels["utvm.environment"] == build_output["environment"]
    assert image.attrs["Size"] < 1_500_000_000
    assert image.attrs["Size"] == pytest.approx(build_output["bytes"]["unpacked"], rel=0.05)
    layout = ROOT / "build" / "environment"
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=layout, check=True)
    index = json.loads((layout / "oci" / "index.json").read_text())
    assert {entry["digest"] for entry in index["manifests"]} == {build_output["digest"]}


def test_second_build_gives_the_same_image(engine: str, build_output: dict[str, Any], tmp_path: Path) -> None:
    completed = inv("docker.build", "--json", tmp_path / "again.json", DOCKER_HOST=engine)
    assert completed.returncode == 0, completed.stderr
    assert json.loads((tmp_path / "again.json").read_text())["digest"] == build_output["digest"]


def test_output_and_exit_code_of_a_command(engine: str, build_output: dict[str, Any]) -> None:
    completed = _run(engine, "sh -c 'echo out; echo err >&2; exit 7'")
    assert (completed.returncode, completed.stdout, completed.stderr) == (7, "out\n", "err\n")


def test_command_runs_as_the_caller_without_privileges(engine: str, build_output: dict[str, Any]) -> None:
    probe = "id -u; id -g; pwd; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; ls /sys/class/net; ls /dev"
    completed = _run(engine, f'sh -c "{probe}"')
    words = completed.stdout.split()
    assert words[:3] == [str(os.getuid()), str(os.getgid()), "/utvm"]
    assert [words[4], words[6], words[8]] == ["0" * 16, "0" * 16, "1"]
    assert words[9] == "lo"
    assert not {"mem", "kmsg", "bus", "sda", "vda"} & set(words[10:])


def test_tools_are_those_of_the_lock(engine: str, build_output: dict[str, Any]) -> None:
    lock = {package["name"]: package["version"] for package in _lock("debian.lock")["packages"]}
    completed = _run(engine, "dpkg-query --show --showformat '${Package} ${Version}\\n'")
    assert dict(line.split() for line in completed.stdout.splitlines()) == lock
    wheels = {wheel.name: wheel.version for wheel in load_lock_files().wheels}
    code = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions(path=p)]"
    completed = _run(engine, f"python -c 'import sys; p=[x for x in sys.path if x.startswith(\"/opt\")]; {code}'")
    installed = dict(line.split() for line in completed.stdout.splitlines())
    assert {name.lower().replace("_", "-").replace(".", "-"): version for name, version in installed.items()} == wheels


def _lock(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / "provision" / name).read_text()))


@pytest.mark.nightly
def test_missing_image_is_built(engine: str, build_output: dict[str, Any]) -> None:
    """Its layers are cached. The second command finds the image, and prints nothing."""
    with contextlib.closing(docker.DockerClient(base_url=engine)) as client:
        for tag in build_output["tags"]:
            client.images.remove(tag)
        completed = _run(engine, "echo here")
        assert completed.returncode == 0, completed.stderr
        assert "no container image for the checkout's locks: building it takes 2 minutes" in completed.stdout
        assert completed.stdout.endswith("here\n")
        assert client.images.get(build_output["tags"][0])
    assert _run(engine, "echo here").stdout == "here\n"


@pytest.mark.nightly  # the daily test_locations runs more suites
def test_suite_of_a_board_passes_in_a_container(engine: str, build_output: dict[str, Any]) -> None:
    """On the virtual board, with the image's compiler, OpenOCD and CPU emulator; test_locations uses its TVM."""
    completed = _run(engine, "./inv hil --board stm32f746 --virtual --suite health")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "passed" in completed.stdout.lower()


def test_doctor_accepts_the_image(engine: str, build_output: dict[str, Any]) -> None:
    """Packages for the project's own tests are left out of the image, and not missing."""
    completed = _run(engine, "./inv doctor")
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_shell_has_the_terminal(engine: str, build_output: dict[str, Any], client: docker.DockerClient) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ["DOCKER_HOST"] = engine
        os.execv(sys.executable, [sys.executable, "-m", "utvm", "docker.run"])
    output = _until(terminal, b"$ ", b"# ")
    os.write(terminal, b"echo $((6 * 7)); test -t 0 && exit 5\n")
    output += _until(terminal)
    assert b"42" in output
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert _containers(client) == []


def _until(terminal: int, *ends: bytes) -> bytes:
    """Read until one of these texts, or until the other side closes."""
    output = b""
    while not any(end in output for end in ends):
        try:
            output += os.read(terminal, 4096)
        except OSError:
            break
    return output


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL],
    ids=lambda one: str(one.name),
)
def test_no_container_remains_after_a_signal(client: docker.DockerClient, engine: str, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "utvm", "docker.run", "sh -c 'echo ready; sleep 1000'"],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": engine},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        assert len(_containers(client)) == 1
        running.send_signal(number)
        assert running.wait(60) == (3 if number != signal.SIGKILL else -signal.SIGKILL)
    _all_gone(client)


def test_verdict_during_termination_counts(client: docker.DockerClient, engine: str) -> None:
    command = "sh -c \"trap 'exit 1' TERM; echo ready; while :; do sleep 0.1; done\""
    with subprocess.Popen(
        [sys.executable, "-m", "utvm", "docker.run", command],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": engine},
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 1
    _all_gone(client)


def _is_complete(request: bytes) -> bool:
    """Return whether a request has its complete body."""
    headers, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", headers)
    return len(body) >= int(length[1] if length else 0)


class _SlowToCreate:
    """A proxy of the engine that delays the creation of a container until it is allowed."""

    def __init__(self, engine: str, folder: str) -> None:
        self.address = f"unix://{folder}/docker.sock"
        self.requested, self.go_on, self.created = threading.Event(), threading.Event(), threading.Event()
        self._engine = engine.removeprefix("unix://")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/docker.sock")
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, far = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
            far.connect(self._engine)
            for target in (self._forward_requests, self._forward_replies):
                threading.Thread(target=target, args=(near, far), daemon=True).start()

    def _forward_requests(self, near: socket.socket, far: socket.socket) -> None:
        # The engine does not notice a closed connection: it completes its work.
        while data := near.recv(1 << 16):
            if b"/containers/create" in data:
                # Headers and body may arrive separately: the engine would wait for the body of a killed client.
                while not _is_complete(data):
                    data += near.recv(1 << 16)
                self.requested.set()
                self.go_on.wait()
            far.sendall(data)

    def _forward_replies(self, near: socket.socket, far: socket.socket) -> None:
        while data := far.recv(1 << 16):
            if b" 201 Created" in data:
                self.created.set()
            with contextlib.suppress(OSError):
                near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL], ids=lambda one: str(one.name)
)
def test_incomplete_container_is_removed(client: docker.DockerClient, engine: str, number: signal.Signals) -> None:
    """A busy engine created a container after the command and its guard had found none to remove, and had ended."""
    with tempfile.TemporaryDirectory(prefix="utvm-slow-") as folder:
        slow = _SlowToCreate(engine, folder)
        with subprocess.Popen(
            [sys.executable, "-m", "utvm", "docker.run", "sleep 1000"],
            cwd=ROOT,
            env={**os.environ, "DOCKER_HOST": slow.address},
            stderr=subprocess.DEVNULL,
        ) as running:
            assert slow.requested.wait(120)
            running.send_signal(number)
            # Long enough for a command that would not wait.
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(5)
            slow.go_on.set()
            assert slow.created.wait(60)
            running.wait(60)
        _all_gone(client)


def _all_gone(client: docker.DockerClient) -> None:
    deadline = time.monotonic() + 60
    while _containers(client) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _containers(client) == []


@contextlib.contextmanager
def _running(engine: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a container for a long time, and kill its command at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "utvm", "docker.run", "sh -c 'echo ready; sleep 1000'"],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": engine},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        try:
            assert running.stdout.readline() == b"ready\n"
            yield running
        finally:
            running.kill()


def test_orphaned_container_is_removed_by_the_next_run(client: docker.DockerClient, engine: str) -> None:
    """A whole control group may be killed, or the machine may lose its power."""
    with _running(engine) as living:
        with _running(engine) as dead:
            (guard,) = psutil.Process(dead.pid).children()
            guard.kill()
        assert len(_containers(client)) == 2
        assert _run(engine, "true").returncode == 0
        (remaining,) = client.containers.list(all=True, filters={"label": LABEL})
        assert remaining.labels[LABEL].split()[4] == str(living.pid)
        assert remaining.status == "running"
    _all_gone(client)


def test_command_without_its_guard_removes_the_container(client: docker.DockerClient, engine: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "utvm", "docker.run", "sh -c 'echo ready; sleep 1'"],
        cwd=ROOT,
        env={**os.environ, "DOCKER_HOST": engine},
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        (guard,) = psutil.Process(running.pid).children()
        guard.kill()
        assert running.wait(60) == 0
        assert _containers(client) == []


def test_stopped_container_of_an_earlier_boot_is_removed(client: docker.DockerClient, engine: str) -> None:
    label = dataclasses.replace(current_owner(), boot="another").label
    containers = [
        client.containers.create("utvm:latest", ["sleep", "1000"], labels={LABEL: label}, init=True) for _ in range(2)
    ]
    try:
        containers[0].start()
        assert _run(engine, "true").returncode == 0
        assert [container.id for container in client.containers.list(all=True, filters={"label": LABEL})] == [
            containers[0].id
        ]
    finally:
        containers[0].remove(force=True)


@pytest.mark.nightly
def test_lost_engine_is_one_message(build_output: dict[str, Any]) -> None:
    with own_engine() as address:
        loaded = subprocess.run(
            f"tar -C {ROOT}/build/environment/oci -c . | docker load",
            shell=True,
            env={**os.environ, "DOCKER_HOST": address},
            capture_output=True,
            check=False,
        )
        assert loaded.returncode == 0, loaded.stderr
        with _running(address) as running:
            (engine,) = [
                process for process in descendants(os.getpid(), f"--host={address}") if process.name() == "dockerd"
            ]
            engine.kill()
            assert running.wait(60) == 3
            assert running.stderr is not None
            output = running.stderr.read().decode()
    assert "Traceback" not in output
    assert "docker rm --force utvm-" in output


def test_derived_image_has_the_label(client: docker.DockerClient, build_output: dict[str, Any]) -> None:
    image, _ = client.images.build(path=str(ROOT / "docker"), network_mode="none", rm=True)
    assert image.labels["utvm.environment"] == build_output["environment"]
    assert image.attrs["Config"]["WorkingDir"] == "/utvm"
