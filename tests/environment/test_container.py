# SPDX-License-Identifier: Apache-2.0
"""The image in a real engine: what is in it, who runs in it, and that nothing of it stays."""

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
from tests.processes import below
from utvm.environment.container import LABEL
from utvm.environment.engine import current_owner
from utvm.environment.locked import load_lock_files
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def client(engine: str, built: dict[str, Any]) -> Iterator[docker.DockerClient]:
    with_image = docker.DockerClient(base_url=engine)
    assert with_image.images.get("utvm:latest").tags == built["tags"]
    yield with_image
    with_image.close()


def _containers(client: docker.DockerClient) -> list[object]:
    # One that is just being removed is listed, and cannot be asked for any more.
    return list(client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True))


def _run(engine: str, command: str) -> subprocess.CompletedProcess[str]:
    return inv("docker.run", command, DOCKER_HOST=engine)


def test_the_image_is_small_and_says_what_it_is(client: docker.DockerClient, built: dict[str, Any]) -> None:
    image = client.images.get("utvm:latest")
    assert image.labels["utvm.environment"] == built["environment"]
    assert image.attrs["Size"] < 1_500_000_000
    assert image.attrs["Size"] == pytest.approx(built["bytes"]["unpacked"], rel=0.05)
    layout = ROOT / "build" / "environment"
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=layout, check=True)
    index = json.loads((layout / "oci" / "index.json").read_text())
    assert {entry["digest"] for entry in index["manifests"]} == {built["digest"]}


def test_a_second_build_is_the_same_image(engine: str, built: dict[str, Any], tmp_path: Path) -> None:
    done = inv("docker.build", "--json", tmp_path / "again.json", DOCKER_HOST=engine)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "again.json").read_text())["digest"] == built["digest"]


def test_a_command_s_output_and_exit_code_are_its_own(engine: str, built: dict[str, Any]) -> None:
    done = _run(engine, "sh -c 'echo out; echo err >&2; exit 7'")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_it_runs_as_the_caller_and_may_do_nothing_else(engine: str, built: dict[str, Any]) -> None:
    probe = "id -u; id -g; pwd; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; ls /sys/class/net; ls /dev"
    done = _run(engine, f'sh -c "{probe}"')
    said = done.stdout.split()
    assert said[:3] == [str(os.getuid()), str(os.getgid()), "/utvm"]
    assert [said[4], said[6], said[8]] == ["0" * 16, "0" * 16, "1"]
    assert said[9] == "lo"
    assert not {"mem", "kmsg", "bus", "sda", "vda"} & set(said[10:])


def test_the_tools_are_those_of_the_lock(engine: str, built: dict[str, Any]) -> None:
    lock = {package["name"]: package["version"] for package in _lock("debian.lock")["packages"]}
    done = _run(engine, "dpkg-query --show --showformat '${Package} ${Version}\\n'")
    assert dict(line.split() for line in done.stdout.splitlines()) == lock
    wheels = {wheel.name: wheel.version for wheel in load_lock_files().wheels}
    code = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions(path=p)]"
    done = _run(engine, f"python -c 'import sys; p=[x for x in sys.path if x.startswith(\"/opt\")]; {code}'")
    found = dict(line.split() for line in done.stdout.splitlines())
    assert {name.lower().replace("_", "-").replace(".", "-"): version for name, version in found.items()} == wheels


def _lock(name: str) -> dict[str, Any]:
    return dict(json.loads((ROOT / "provision" / name).read_text()))


@pytest.mark.nightly
def test_an_image_that_the_engine_lacks_is_made(engine: str, built: dict[str, Any]) -> None:
    """Its layers are kept. The second command finds it, and says nothing."""
    with contextlib.closing(docker.DockerClient(base_url=engine)) as client:
        for tag in built["tags"]:
            client.images.remove(tag)
        done = _run(engine, "echo here")
        assert done.returncode == 0, done.stderr
        assert "no container image for the checkout's locks: building it takes 2 minutes" in done.stdout
        assert done.stdout.endswith("here\n")
        assert client.images.get(built["tags"][0])
    assert _run(engine, "echo here").stdout == "here\n"


@pytest.mark.nightly  # by day, test_places has more suites in it
def test_a_board_s_suite_passes_in_it(engine: str, built: dict[str, Any]) -> None:
    """On the virtual board: compiler, OpenOCD and CPU emulator are the image's; test_places has its TVM."""
    done = _run(engine, "./inv hil --board stm32f746 --virtual --suite health")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout.lower()


def test_doctor_finds_it_complete(engine: str, built: dict[str, Any]) -> None:
    """What only the project's own tests need is left out of it, and not missing."""
    done = _run(engine, "./inv doctor")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_shell_has_the_terminal(engine: str, built: dict[str, Any], client: docker.DockerClient) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ["DOCKER_HOST"] = engine
        os.execv(sys.executable, [sys.executable, "-m", "utvm", "docker.run"])
    said = _until(terminal, b"$ ", b"# ")
    os.write(terminal, b"echo $((6 * 7)); test -t 0 && exit 5\n")
    said += _until(terminal)
    assert b"42" in said
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert _containers(client) == []


def _until(terminal: int, *ends: bytes) -> bytes:
    """Read until one of some texts, or until the other side is gone."""
    said = b""
    while not any(end in said for end in ends):
        try:
            said += os.read(terminal, 4096)
        except OSError:
            break
    return said


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL],
    ids=lambda one: str(one.name),
)
def test_nothing_stays_however_it_ends(client: docker.DockerClient, engine: str, number: signal.Signals) -> None:
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


def _is_whole(request: bytes) -> bool:
    """Whether a request has come with all of its body."""
    headers, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", headers)
    return len(body) >= int(length[1] if length else 0)


class _SlowToCreate:
    """Stands between a command and the engine: a container is only made when it may be, whoever still wants it."""

    def __init__(self, engine: str, folder: str) -> None:
        self.place = f"unix://{folder}/docker.sock"
        self.asked, self.go_on, self.made = threading.Event(), threading.Event(), threading.Event()
        self._engine = engine.removeprefix("unix://")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/docker.sock")
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            near, far = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
            far.connect(self._engine)
            for each in (self._ask, self._answer):
                threading.Thread(target=each, args=(near, far), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        # The engine is not told who has gone: what it has begun it ends.
        while data := near.recv(1 << 16):
            if b"/containers/create" in data:
                # Headers and body come apart; the engine would wait for the body of a client that is killed between.
                while not _is_whole(data):
                    data += near.recv(1 << 16)
                self.asked.set()
                self.go_on.wait()
            far.sendall(data)

    def _answer(self, near: socket.socket, far: socket.socket) -> None:
        while data := far.recv(1 << 16):
            if b" 201 Created" in data:
                self.made.set()
            with contextlib.suppress(OSError):
                near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL], ids=lambda one: str(one.name)
)
def test_half_made_container_is_removed(client: docker.DockerClient, engine: str, number: signal.Signals) -> None:
    """A busy engine had made a container after the command and its guard had found none to remove, and gone."""
    with tempfile.TemporaryDirectory(prefix="utvm-slow-") as folder:
        slow = _SlowToCreate(engine, folder)
        with subprocess.Popen(
            [sys.executable, "-m", "utvm", "docker.run", "sleep 1000"],
            cwd=ROOT,
            env={**os.environ, "DOCKER_HOST": slow.place},
            stderr=subprocess.DEVNULL,
        ) as running:
            assert slow.asked.wait(120)
            running.send_signal(number)
            # Long enough for whoever does not wait.
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(5)
            slow.go_on.set()
            assert slow.made.wait(60)
            running.wait(60)
        _all_gone(client)


def _all_gone(client: docker.DockerClient) -> None:
    deadline = time.monotonic() + 60
    while _containers(client) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _containers(client) == []


@contextlib.contextmanager
def _running(engine: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a container for long, and kill its starter in the end."""
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


def test_what_nobody_could_remove_goes_with_the_next_run(client: docker.DockerClient, engine: str) -> None:
    """As when a whole control group is killed, or the machine loses its power."""
    with _running(engine) as living:
        with _running(engine) as dead:
            (guard,) = psutil.Process(dead.pid).children()
            guard.kill()
        assert len(_containers(client)) == 2
        assert _run(engine, "true").returncode == 0
        (left,) = client.containers.list(all=True, filters={"label": LABEL})
        assert left.labels[LABEL].split()[4] == str(living.pid)
        assert left.status == "running"
    _all_gone(client)


def test_a_command_whose_guard_is_killed_removes_its_container(client: docker.DockerClient, engine: str) -> None:
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


def test_of_an_earlier_boot_only_what_does_not_run_is_removed(client: docker.DockerClient, engine: str) -> None:
    label = dataclasses.replace(current_owner(), boot="another").label
    made = [
        client.containers.create("utvm:latest", ["sleep", "1000"], labels={LABEL: label}, init=True) for _ in range(2)
    ]
    try:
        made[0].start()
        assert _run(engine, "true").returncode == 0
        assert [one.id for one in client.containers.list(all=True, filters={"label": LABEL})] == [made[0].id]
    finally:
        made[0].remove(force=True)


@pytest.mark.nightly
def test_an_engine_that_goes_away_is_told_in_one_message(built: dict[str, Any]) -> None:
    with own_engine() as place:
        loaded = subprocess.run(
            f"tar -C {ROOT}/build/environment/oci -c . | docker load",
            shell=True,
            env={**os.environ, "DOCKER_HOST": place},
            capture_output=True,
            check=False,
        )
        assert loaded.returncode == 0, loaded.stderr
        with _running(place) as running:
            (engine,) = [one for one in below(os.getpid(), f"--host={place}") if one.name() == "dockerd"]
            engine.kill()
            assert running.wait(60) == 3
            assert running.stderr is not None
            said = running.stderr.read().decode()
    assert "Traceback" not in said
    assert "docker rm --force utvm-" in said


def test_an_image_of_one_s_own_begins_with_it(client: docker.DockerClient, built: dict[str, Any]) -> None:
    image, _ = client.images.build(path=str(ROOT / "docker"), network_mode="none", rm=True)
    assert image.labels["utvm.environment"] == built["environment"]
    assert image.attrs["Config"]["WorkingDir"] == "/utvm"
