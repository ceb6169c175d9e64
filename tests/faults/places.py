# SPDX-License-Identifier: Apache-2.0
"""Where the campaign's runs are: on this computer, in a container, in the virtual machine, in a farm."""

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
from tests.faults.place import Place, at_last, environment_of
from utvm.environment.container import LABEL
from utvm.environment.machine.settings import Records, records_of

# With one hierarchy of groups, and with one for each kind of thing that is counted.
_GROUPS = ("docker/*/cgroup.procs", "pids/docker/*/cgroup.procs")
# What is done in the machine, by a shell there. Who looks for a command line must not find its own.
_DEEDS = {
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
        """Return those that are in containers of the campaign's: they are told where its folder is."""
        mark = str(self.folder).encode()
        found = []
        for listed in chain(*(Path("/sys/fs/cgroup").glob(groups) for groups in _GROUPS)):
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in listed.read_text().split() if mark in environment_of(pid)]
        return sorted(set(found))

    def left(self) -> Sequence[str]:
        """Return containers."""
        with contextlib.closing(docker.DockerClient(base_url=self.engine)) as client:
            return at_last(lambda: [f"container {name}" for name in _containers(client)])


def _containers(client: docker.DockerClient) -> Sequence[str]:
    found = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return [one.name for one in found]


@contextlib.contextmanager
def _here(_: Path) -> Iterator[Place]:
    yield Place()


@contextlib.contextmanager
def _in_containers(folder: Path) -> Iterator[Place]:
    """Have an engine of the campaign's own, with the image of the checkout's locks."""
    with own_engine() as engine:
        done = inv("docker.build", timeout=2400, DOCKER_HOST=engine)
        assert done.returncode == 0, done.stderr
        yield _InContainers(("--in", "docker"), {"DOCKER_HOST": engine}, engine=engine, folder=folder)


@dataclass
class _InMachine(Place):
    """The machine's own process is among a run's, to be struck. Where it is emulated, a run takes minutes."""

    patience: float = 1200.0
    records: Records | None = None

    def inside(self) -> Sequence[int]:
        assert self.records
        mark = f"guest={self.records.name},"
        with contextlib.suppress(psutil.NoSuchProcess):
            return [one.pid for one in psutil.process_iter(["cmdline"]) if mark in str(one.info["cmdline"])]
        return ()

    def left(self) -> Sequence[str]:
        """Return commands that still run in there."""
        return at_last(lambda: [f"in the machine: {line}" for line in self._said(_RUNS_THERE).splitlines()])

    def do(self, deed: str) -> bool:
        """Do it by a connection of the campaign's own."""
        return self._shell(_DEEDS[deed]).returncode == 0

    def _said(self, command: str) -> str:
        return self._shell(command).stdout

    def _shell(self, command: str) -> subprocess.CompletedProcess[str]:
        assert self.records
        words = ["ssh", "-F", str(self.records.ssh_config), "-o", "ConnectTimeout=20", self.records.name, command]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def _in_machine(folder: Path) -> Iterator[Place]:
    """Have a machine of the campaign's own."""
    own = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    try:
        done = inv("vm.up", timeout=2400, **own)
        assert done.returncode == 0, done.stderr
        yield _InMachine(("--in", "vm"), own, records=records_of(state=folder / "state" / "utvm"))
    finally:
        inv("vm.destroy", timeout=600, **own)


PLACES: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[Place]]] = {
    "host": _here,
    "start": _here,
    "docker": _in_containers,
    "vm": _in_machine,
    "farm": in_farm,
}
"""Each is handed the campaign's folder."""
