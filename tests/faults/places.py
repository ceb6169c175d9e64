# SPDX-License-Identifier: Apache-2.0
"""Where the campaign's runs are: on this computer, in a container, in the virtual machine."""

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import docker
import psutil

from tests.cli.running import inv
from tests.environment.farms import Farm
from tests.environment.own_engine import own_engine
from utvm.environment.container import LABEL
from utvm.environment.machine.records import Records, records_of
from utvm.errors import ProvisionError
from utvm.kept import cache_root

# With one hierarchy of groups, and with one for each kind of thing that is counted.
_GROUPS = ("docker/*/cgroup.procs", "pids/docker/*/cgroup.procs")
_GONE = 90.0  # Seconds that what is left in there may take to go, on whatever busy computer.
# What is done in the machine, by a shell there. Who looks for a command line must not find its own.
_DEEDS = {
    "kill command": "pkill --signal KILL --full '[-]-suite'",
    "kill OpenOCD": "pkill --signal KILL openocd",
    "kill virtual board": "pkill --signal KILL --full 'utvm[.]virtual'",
    "clock forward": "sudo -n date --set='1 hour'",
    "clock back": "sudo -n date --set='1 hour ago'",
}
_HOUR = 3600.0
_FARM_BOARDS = 3
_STOPPED = 3.0  # Seconds that a coordinator is stopped: who looks after it ends it after 5.
_RUNS_THERE = "pgrep --list-full --full '[-]-suite'; true"


@dataclass
class Place:
    """Where runs are: on this computer, by default.

    Attributes:
        words: what chooses the place.
        environment: variables that a run has, beside those that every run has.
        patience: seconds that a run may take from the strike to its end, on whatever busy computer.
    """

    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = 150.0

    def inside(self) -> Sequence[int]:
        """Return the numbers of a run's processes that are not below the command."""
        return ()

    def left(self) -> Sequence[str]:
        """Return what a run has left there that must not be there any more."""
        return ()

    def mend(self) -> None:
        """Wait until it is again what it was before something was struck."""

    def do(self, deed: str) -> bool:
        """Do something in there; return whether there was still something to do it to."""
        raise NotImplementedError


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
                found += [int(pid) for pid in listed.read_text().split() if mark in _environment_of(pid)]
        return sorted(set(found))

    def left(self) -> Sequence[str]:
        """Return containers."""
        with contextlib.closing(docker.DockerClient(base_url=self.engine)) as client:
            return _at_last(lambda: [f"container {name}" for name in _containers(client)])


def _containers(client: docker.DockerClient) -> Sequence[str]:
    found = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return [one.name for one in found]


def _at_last(left: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return what is left when it has had time to go."""
    deadline = time.monotonic() + _GONE
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _environment_of(pid: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


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
        return _at_last(lambda: [f"in the machine: {line}" for line in self._said(_RUNS_THERE).splitlines()])

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


@dataclass
class _InFarm(Place):
    """Two hosts of a farm on this computer: what has ended starts again, as systemd has it."""

    farm: Farm | None = None

    def inside(self) -> Sequence[int]:
        """Return what runs at a board's host: it is told what place that is."""
        found = []
        for one in psutil.process_iter(["cmdline"]):
            if "--suite" in " ".join(one.info["cmdline"] or ()) and b"UTVM_PLACE=farm" in _environment_of(one.pid):
                found.append(one.pid)
        return found

    def left(self) -> Sequence[str]:
        """Return boards that are still held when every lease is past its deadline."""
        assert self.farm
        return _at_last(self._held)

    def mend(self) -> None:
        """Wait until coordinator and exporters are back."""
        self.left()

    def _held(self) -> list[str]:
        assert self.farm
        try:
            with self.farm.client() as client:
                client.ask("reap", now=time.time() + _HOUR)
                places = client.ask("list")["places"]
        except ProvisionError as error:
            return [error.message]
        away = [f"{each['place']} is away" for each in places if not each["present"]]
        held = [f"{each['place']} is held by {each['holder']}" for each in places if each["holder"]]
        return away + held if len(places) == _FARM_BOARDS else [f"{len(places)} boards"]

    def do(self, deed: str) -> bool:
        assert self.farm
        if deed == "cut coordinator":
            port = self.farm.address.rpartition(":")[2]
            done = subprocess.run(["ss", "-K", "dport", "=", port], capture_output=True, text=True, check=True)
            return "ESTAB" in done.stdout
        do, _, what = deed.partition(" ")
        found = [
            one
            for one in psutil.process_iter(["cmdline"])
            if {f"labgrid.remote.{what}", self.farm.address} <= set(one.info["cmdline"] or ())
        ]
        self._send(found, signal.SIGKILL if do == "kill" else signal.SIGSTOP)
        if do == "stop":
            time.sleep(_STOPPED)
            self._send(found, signal.SIGCONT)
        return bool(found)

    def _send(self, processes: Sequence[psutil.Process], number: int) -> None:
        for one in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)


@contextlib.contextmanager
def _in_farm(folder: Path) -> Iterator[Place]:
    """Have a farm of the campaign's own, in which no board goes into quarantine."""
    farm = Farm(folder / "farm")
    (folder / "cache" / "utvm").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "utvm" / "farm").symlink_to(cache_root() / "farm")
    (folder / "farm" / "utvm.yaml").write_text("boards: [{board: host}]\nfarm: {bad_after: 1000000}\n")
    port = farm.address.rpartition(":")[2]
    desk = ("farm.up", "--port", port, "--name", "desk", "--address", "localhost", "--virtual", "mps2-an500")
    shelf = ("farm.export", "--name", "shelf", "--address", "shelf.invalid", "--virtual", "host,host")
    with contextlib.ExitStack() as stack:
        for words in (desk, shelf):
            stack.enter_context(_begun_again_and_again(farm, words))
        place = _InFarm(("--in", "farm"), {"LG_COORDINATOR": farm.address, **farm.with_ssh}, farm=farm)
        assert not place.left()
        yield place


@contextlib.contextmanager
def _begun_again_and_again(farm: Farm, words: Sequence[str]) -> Iterator[None]:
    over = threading.Event()

    def keep() -> None:
        while not over.is_set():
            with farm.begun(*words, folder=farm.log.parent) as run:
                while run.poll() is None and not over.is_set():
                    over.wait(0.2)
            over.wait(1.0)

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


PLACES: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[Place]]] = {
    "host": _here,
    "docker": _in_containers,
    "vm": _in_machine,
    "farm": _in_farm,
}
"""Each is handed the campaign's folder."""
