# SPDX-License-Identifier: Apache-2.0
"""A farm of the campaign: two hosts, three boards, and another tenant."""

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.farm.farms import Farm
from tests.faults.place import Place, environment_of, remaining
from tests.faults.relay import Relay
from tests.faults.rival import BOARDS, Rival, given_to_two
from utvm.base.storage.cache import cache_root
from utvm.errors import ProvisionError
from utvm.farm.client import FarmClient

_HOUR = 3600.0
_FARM_BOARDS = 3
_STOPPED = 3.0  # Seconds that a coordinator is stopped: its supervisor ends it after 5.
_HUSHED = 25.0  # Seconds without traffic: labgrid's client notices it after 20.


@dataclass(kw_only=True)
class _InFarm(Place):
    """Two hosts of a farm on this computer, whose processes are restarted as by systemd."""

    farm: Farm
    relay: Relay
    rival: Rival
    _client: FarmClient | None = None

    def inside(self) -> Sequence[int]:
        """Return the processes of a run at a board's host, by their variables."""
        pids = []
        marks = (b"UTVM_PLACE=farm", str(self.rival.folder).encode())
        for candidate in psutil.process_iter(["cmdline"]):
            if "--suite" not in " ".join(candidate.info["cmdline"] or ()):
                continue
            variables = environment_of(candidate.pid)
            if all(mark in variables for mark in marks):
                pids.append(candidate.pid)
        return pids

    def leftovers(self) -> Sequence[str]:
        """Return boards that are held after every deadline, and those that two runs had at once."""
        with self.rival.paused():
            return [*remaining(self._held_boards), *given_to_two(self.rival.folder)]

    def mend(self) -> None:
        """Wait until coordinator and exporters are back."""
        self.leftovers()

    def _held_boards(self) -> list[str]:
        try:
            client = self._client or self.farm.client().__enter__()
            self._client = client
            client.call("reap", now=time.time() + _HOUR)
            places = client.call("list")["places"]
        except ProvisionError as error:
            self.end()
            return [error.message]
        away = [f"{place['place']} is away" for place in places if not place["present"]]
        held = [f"{place['place']} is held by {place['holder']}" for place in places if place["holder"]]
        return away + held if len(places) == _FARM_BOARDS else [f"{len(places)} boards"]

    def end(self) -> None:
        """End the session that queries leases; it is kept because starting one takes seconds."""
        if self._client:
            self._client.stop()
            self._client = None

    def do(self, action: str) -> bool:
        if action == "hush coordinator":
            return self.relay.hush(_HUSHED)
        if action == "cut coordinator":
            port = self.farm.address.rpartition(":")[2]
            completed = subprocess.run(["ss", "-K", "dport", "=", port], capture_output=True, text=True, check=True)
            return "ESTAB" in completed.stdout
        do, _, what = action.partition(" ")
        processes = [
            candidate
            for candidate in psutil.process_iter(["cmdline"])
            if _belongs_to(self.farm, f"labgrid.remote.{what}", candidate.info["cmdline"] or ())
        ]
        self._send(processes, signal.SIGKILL if do == "kill" else signal.SIGSTOP)
        if do == "stop":
            time.sleep(_STOPPED)
            self._send(processes, signal.SIGCONT)
        return bool(processes)

    def _send(self, processes: Sequence[psutil.Process], number: int) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def _belongs_to(farm: Farm, module: str, command: Sequence[str]) -> bool:
    """True for the command of an exporter, which has the farm's address, or of its coordinator."""
    return module in command and any(word.endswith(farm.address.rpartition(":")[2]) for word in command)


@contextlib.contextmanager
def in_farm(folder: Path) -> Iterator[Place]:
    """Start a farm for the campaign, in which no board goes into quarantine."""
    farm = Farm(folder / "farm")
    (folder / "cache" / "utvm").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "utvm" / "farm").symlink_to(cache_root() / "farm")
    (folder / "farm" / "utvm.yaml").write_text("boards: [{board: host}]\nfarm: {bad_after: 1000000}\n")
    port = farm.address.rpartition(":")[2]
    desk = ("farm.up", "--port", port, "--name", "desk", "--address", "localhost", "--virtual", "mps2-an500")
    shelf = ("farm.export", "--name", "shelf", "--address", "shelf.invalid", "--virtual", "host,host")
    with contextlib.ExitStack() as stack:
        for words in (desk, shelf):
            stack.enter_context(_restart_in_farm(farm, words))
        boards = folder / "boards"
        boards.mkdir()
        relay = stack.enter_context(Relay(int(port)))
        rival = Rival(farm, boards)
        variables = {"LG_COORDINATOR": relay.address, BOARDS: str(boards), **farm.with_ssh}
        place = _InFarm(words=("--in", "farm"), environment=variables, farm=farm, relay=relay, rival=rival)
        stack.callback(place.end)
        assert not place.leftovers()
        stack.enter_context(rival)
        yield place


@contextlib.contextmanager
def _restart_in_farm(farm: Farm, words: Sequence[str]) -> Iterator[None]:
    over = threading.Event()

    def supervise() -> None:
        while not over.is_set():
            with farm.start(*words, folder=farm.log.parent) as run:
                while run.poll() is None and not over.is_set():
                    over.wait(0.2)
            over.wait(1.0)

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        yield
    finally:
        over.set()
        supervisor.join()
