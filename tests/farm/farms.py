# SPDX-License-Identifier: Apache-2.0
"""A farm of two hosts on loopback. labgrid is real.

The second host is reached by ssh: a stand-in for it, which runs here what it would run there, or breaks when told.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from tests.cli.running import inv
from tests.processes import below
from utvm.base.process.run import free_port
from utvm.base.storage.cache import cache_root
from utvm.farm import client
from utvm.farm.client import FarmClient, labgrid_python
from utvm.paths import ROOT

_STAND_IN = """#!/bin/sh
rm "$(dirname "$0")/broken" 2>/dev/null && exit 255
while :; do case $1 in -o | -l) shift 2 ;; -*) shift ;; *) break ;; esac; done
shift
sh -c "$*"
"""
HELPER = Path(client.__file__).with_name("helper.py")
LONG = 300.0  # Seconds; nothing takes as long, but a machine may be busy.


class Farm:
    """The address of a farm, and commands that are given to it.

    Args:
        folder: its own.
    """

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir(parents=True)
        ssh.write_text(_STAND_IN)
        ssh.chmod(0o755)
        caches = folder / "caches" / "utvm"
        caches.mkdir(parents=True)
        (caches / "farm").symlink_to(cache_root() / "farm")
        self.with_ssh = {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
        self.hosts = {"XDG_CACHE_HOME": str(caches.parent)}
        self.log = folder / "labgrid.log"
        self._broken = ssh.with_name("broken")

    def inv(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Give a command to it."""
        return inv(*words, timeout=LONG, LG_COORDINATOR=self.address, **env)

    def break_ssh(self) -> None:
        """Have the next connection to a host break."""
        self._broken.touch()

    @contextlib.contextmanager
    def begun(self, *words: str, folder: Path = ROOT, **env: str) -> Iterator[subprocess.Popen[str]]:
        """Have a command run for the length of a ``with`` block."""
        command = [sys.executable, "-m", "utvm", *words]
        own = env or self.hosts
        whole = {**os.environ, **own, "LG_COORDINATOR": self.address, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, cwd=folder, env=whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run:
            try:
                yield run
            finally:
                run.terminate()
                run.communicate(timeout=LONG)

    def client(self) -> FarmClient:
        """Return a session with it."""
        return FarmClient(self.address, self.log, lambda _: None)


def until(run: subprocess.Popen[str], words: str, stream: IO[str] | None = None) -> str:
    """Read what a run says until it says these words; return all of it.

    Args:
        stream: where it says it; by default its standard output.
    """
    stream = stream or run.stdout
    assert stream
    said = ""
    for line in stream:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it ended without {words!r}: {said}")


def process(*words: str) -> psutil.Process:
    """Return the process that has all of these in its command line, once what ends has ended."""
    found: list[psutil.Process] = []

    def alone() -> bool:
        found[:] = [each for each in psutil.process_iter(["cmdline"]) if _has(each, words)]
        return len(found) == 1

    wait_for(alone)
    return found[0]


def kill_a_keeper(pid: int) -> None:
    """Kill a helper that keeps a lease of a run, once there is one."""

    def killed() -> bool:
        for each in below(pid, str(HELPER)):
            # It may end of itself meanwhile, and then it is another's turn.
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
                return True
        return False

    wait_for(killed)


def _has(each: psutil.Process, words: tuple[str, ...]) -> bool:
    line = " ".join(each.info["cmdline"] or ())
    return all(word in line for word in words)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def holders(client: FarmClient) -> dict[str, Any]:
    """Return who has which place."""
    return {each["place"]: each["holder"] for each in client.call("list")["places"]}


@contextlib.contextmanager
def two_hosts(folder: Path, desk: str, shelf: str) -> Iterator[Farm]:
    """Have a farm: the host desk, which is this computer, and shelf, which is far away.

    Args:
        desk, shelf: the virtual boards of each.
    """
    labgrid_python(lambda _: None)
    farm = Farm(folder)
    port = farm.address.rpartition(":")[2]
    here = ("--name", "desk", "--address", "localhost", "--virtual", desk)
    with farm.begun("farm.up", "--port", port, *here) as up:
        until(up, "boards are offered")
        there = ("--name", "shelf", "--address", "shelf.invalid", "--virtual", shelf)
        project = folder / "shelf"
        project.mkdir()
        rules = "boards: [{board: host}]\nfarm: {bad_after: 2, well_after: 2}\n"
        (project / "utvm.yaml").write_text(rules, encoding="utf-8")
        with farm.begun("farm.export", *there, folder=project) as export:
            until(export, "boards are offered")
            yield farm
