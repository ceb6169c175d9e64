# SPDX-License-Identifier: Apache-2.0
"""A farm of the campaign's own: two hosts, three boards, and somebody else who wants them, too."""

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
from tests.faults.place import Place, at_last, environment_of
from tests.faults.relay import Relay
from tests.faults.rival import BOARDS, Rival, given_to_two
from utvm.base.storage.cache import cache_root
from utvm.errors import ProvisionError
from utvm.farm.client import FarmClient

_HOUR = 3600.0
_FARM_BOARDS = 3
_STOPPED = 3.0  # Seconds that a coordinator is stopped: who looks after it ends it after 5.
_HUSHED = 25.0  # Seconds that nothing gets through: labgrid's client takes 20 to find that out.


@dataclass(kw_only=True)
class _InFarm(Place):
    """Two hosts of a farm on this computer: what has ended starts again, as systemd has it."""

    farm: Farm
    relay: Relay
    rival: Rival
    _client: FarmClient | None = None

    def inside(self) -> Sequence[int]:
        """Return what runs at a board's host: it is told what place that is, and where our marks are."""
        found = []
        marks = (b"UTVM_PLACE=farm", str(self.rival.folder).encode())
        for one in psutil.process_iter(["cmdline"]):
            if "--suite" not in " ".join(one.info["cmdline"] or ()):
                continue
            told = environment_of(one.pid)
            if all(mark in told for mark in marks):
                found.append(one.pid)
        return found

    def left(self) -> Sequence[str]:
        """Return boards that are held when every lease is past its deadline, and those that two had at once."""
        with self.rival.paused():
            return [*at_last(self._held), *given_to_two(self.rival.folder)]

    def mend(self) -> None:
        """Wait until coordinator and exporters are back."""
        self.left()

    def _held(self) -> list[str]:
        try:
            client = self._client or self.farm.client().__enter__()
            self._client = client
            client.call("reap", now=time.time() + _HOUR)
            places = client.call("list")["places"]
        except ProvisionError as error:
            self.end()
            return [error.message]
        away = [f"{each['place']} is away" for each in places if not each["present"]]
        held = [f"{each['place']} is held by {each['holder']}" for each in places if each["holder"]]
        return away + held if len(places) == _FARM_BOARDS else [f"{len(places)} boards"]

    def end(self) -> None:
        """End the session by which it is asked what is left: to begin one takes seconds."""
        if self._client:
            self._client.end()
            self._client = None

    def do(self, deed: str) -> bool:
        if deed == "hush coordinator":
            return self.relay.hush(_HUSHED)
        if deed == "cut coordinator":
            port = self.farm.address.rpartition(":")[2]
            done = subprocess.run(["ss", "-K", "dport", "=", port], capture_output=True, text=True, check=True)
            return "ESTAB" in done.stdout
        do, _, what = deed.partition(" ")
        found = [
            one
            for one in psutil.process_iter(["cmdline"])
            if _is_of(self.farm, f"labgrid.remote.{what}", one.info["cmdline"] or ())
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


def _is_of(farm: Farm, module: str, command: Sequence[str]) -> bool:
    """True if that is the command of an exporter, which has the farm's address, or of its coordinator."""
    return module in command and any(word.endswith(farm.address.rpartition(":")[2]) for word in command)


@contextlib.contextmanager
def in_farm(folder: Path) -> Iterator[Place]:
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
        boards = folder / "boards"
        boards.mkdir()
        relay = stack.enter_context(Relay(int(port)))
        rival = Rival(farm, boards)
        variables = {"LG_COORDINATOR": relay.address, BOARDS: str(boards), **farm.with_ssh}
        place = _InFarm(words=("--in", "farm"), environment=variables, farm=farm, relay=relay, rival=rival)
        stack.callback(place.end)
        assert not place.left()
        stack.enter_context(rival)
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
