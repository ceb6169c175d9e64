# SPDX-License-Identifier: Apache-2.0
"""Locations of the campaign's runs: this computer, a container, the virtual machine, a farm."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import docker
import psutil

from tests.cli.running import inv
from tests.environment.own_engine import own_engine
from tests.faults.in_farm import in_farm
from tests.faults.place import Place, environment_of, remaining
from utvm.environment.container import LABEL
from utvm.environment.machine.settings import Records, records_of

# For cgroups with one hierarchy (version 2), and with one for each controller (version 1).
_GROUPS = ("docker/*/cgroup.procs", "pids/docker/*/cgroup.procs")
# Shell commands for the machine. The patterns do not match their own command line.
_ACTIONS = {
    "kill command": "pkill --signal KILL --full '[-]-suite'",
    "kill OpenOCD": "pkill --signal KILL openocd",
    "kill virtual board": "pkill --signal KILL --full 'utvm[.]virtual'",
    "clock forward": "sudo -n date --set='1 hour'",
    "clock back": "sudo -n date --set='1 hour ago'",
}
_RUNS_THERE = "pgrep --list-full --full '[-]-suite'; true"


@dataclass
class _InContainers(Place):
    engine: str = ""
    folder: Path = Path()

    def inside(self) -> Sequence[int]:
        """Return the processes in the campaign's containers: their variables have its folder."""
        mark = str(self.folder).encode()
        pids = []
        for file in chain(*(Path("/sys/fs/cgroup").glob(groups) for groups in _GROUPS)):
            with contextlib.suppress(OSError):
                pids += [int(pid) for pid in file.read_text().split() if mark in environment_of(pid)]
        return sorted(set(pids))

    def leftovers(self) -> Sequence[str]:
        """Return containers that remain."""
        with contextlib.closing(docker.DockerClient(base_url=self.engine)) as client:
            return remaining(lambda: [f"container {name}" for name in _containers(client)])


def _containers(client: docker.DockerClient) -> Sequence[str]:
    containers = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return [container.name for container in containers]


@contextlib.contextmanager
def _here(_: Path) -> Iterator[Place]:
    yield Place()


@contextlib.contextmanager
def _in_containers(folder: Path) -> Iterator[Place]:
    """Start a container engine for the campaign, with the image of the checkout's locks."""
    with own_engine() as engine:
        completed = inv("docker.build", timeout=2400, DOCKER_HOST=engine)
        assert completed.returncode == 0, completed.stderr
        yield _InContainers(("--in", "docker"), {"DOCKER_HOST": engine}, engine=engine, folder=folder)


@dataclass
class _InMachine(Place):
    """The machine's own process is a possible target. Without KVM, a run takes minutes."""

    patience: float = 1200.0
    records: Records | None = None

    def inside(self) -> Sequence[int]:
        assert self.records
        mark = f"guest={self.records.name},"
        with contextlib.suppress(psutil.NoSuchProcess):
            return [process.pid for process in psutil.process_iter(["cmdline"]) if mark in str(process.info["cmdline"])]
        return ()

    def leftovers(self) -> Sequence[str]:
        """Return commands that still run in the machine."""
        return remaining(lambda: [f"in the machine: {line}" for line in self._output(_RUNS_THERE).splitlines()])

    def do(self, action: str) -> bool:
        """Run it through a connection of its own."""
        return self._shell(_ACTIONS[action]).returncode == 0

    def _output(self, command: str) -> str:
        return self._shell(command).stdout

    def _shell(self, command: str) -> subprocess.CompletedProcess[str]:
        assert self.records
        words = ["ssh", "-F", str(self.records.ssh_config), "-o", "ConnectTimeout=20", self.records.name, command]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def _in_machine(folder: Path) -> Iterator[Place]:
    """Start a virtual machine for the campaign."""
    variables = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    try:
        completed = inv("vm.up", timeout=2400, **variables)
        assert completed.returncode == 0, completed.stderr
        yield _InMachine(("--in", "vm"), variables, records=records_of(state=folder / "state" / "utvm"))
    finally:
        inv("vm.destroy", timeout=600, **variables)


PLACES: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[Place]]] = {
    "host": _here,
    "start": _here,
    "docker": _in_containers,
    "vm": _in_machine,
    "farm": in_farm,
}
"""Functions of the campaign's folder, by name."""
