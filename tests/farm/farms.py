# SPDX-License-Identifier: Apache-2.0
"""A farm of two hosts on loopback, with the real labgrid.

The second host is reached by a fake ssh, which runs commands on this computer, or fails on request.
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
from tests.processes import descendants
from utvm.base.process import free_port
from utvm.base.storage.cache import cache_root
from utvm.farm import client
from utvm.farm.client import FarmClient, labgrid_python
from utvm.paths import ROOT

_FAKE_SSH = """#!/bin/sh
rm "$(dirname "$0")/broken" 2>/dev/null && exit 255
while :; do case $1 in -o | -l) shift 2 ;; -*) shift ;; *) break ;; esac; done
shift
sh -c "$*"
"""
HELPER = Path(client.__file__).with_name("helper.py")
LONG = 300.0  # Seconds; more than anything takes, also on a busy machine.


class Farm:
    """The address of a farm, and commands that use it.

    Args:
        folder: a folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir(parents=True)
        ssh.write_text(_FAKE_SSH)
        ssh.chmod(0o755)
        caches = folder / "caches" / "utvm"
        caches.mkdir(parents=True)
        (caches / "farm").symlink_to(cache_root() / "farm")
        self.with_ssh = {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
        self.hosts = {"XDG_CACHE_HOME": str(caches.parent)}
        self.log = folder / "labgrid.log"
        self._broken = ssh.with_name("broken")

    def inv(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command with this farm."""
        return inv(*words, timeout=LONG, LG_COORDINATOR=self.address, **env)

    def break_ssh(self) -> None:
        """Let the next connection to a host fail."""
        self._broken.touch()

    @contextlib.contextmanager
    def start(self, *words: str, folder: Path = ROOT, **env: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command for the length of a ``with`` block."""
        command = [sys.executable, "-m", "utvm", *words]
        variables = env or self.hosts
        environment = {**os.environ, **variables, "LG_COORDINATOR": self.address, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run:
            try:
                yield run
            finally:
                run.terminate()
                run.communicate(timeout=LONG)

    def client(self) -> FarmClient:
        """Return a session with the coordinator."""
        return FarmClient(self.address, self.log, lambda _: None)


def until(run: subprocess.Popen[str], words: str, stream: IO[str] | None = None) -> str:
    """Read the output of a process up to a line with these words; return all of it.

    Args:
        stream: the stream to read; by default standard output.
    """
    stream = stream or run.stdout
    assert stream
    output = ""
    for line in stream:
        output += line
        if words in line:
            return output
    raise AssertionError(f"it ended without {words!r}: {output}")


def find_process(*words: str) -> psutil.Process:
    """Return the only process with all of these words in its command line; wait until others have ended."""
    processes: list[psutil.Process] = []

    def is_unique() -> bool:
        processes[:] = [one for one in psutil.process_iter(["cmdline"]) if _has(one, words)]
        return len(processes) == 1

    wait_for(is_unique)
    return processes[0]


def kill_lease_holder(pid: int) -> None:
    """Kill the helper that holds a lease of a run, as soon as there is one."""

    def kill() -> bool:
        for helper in descendants(pid, str(HELPER)):
            # It may have ended already; then try the next one.
            with contextlib.suppress(psutil.NoSuchProcess):
                helper.kill()
                return True
        return False

    wait_for(kill)


def _has(candidate: psutil.Process, words: tuple[str, ...]) -> bool:
    line = " ".join(candidate.info["cmdline"] or ())
    return all(word in line for word in words)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def holders(client: FarmClient) -> dict[str, Any]:
    """Return the holder of each place."""
    return {place["place"]: place["holder"] for place in client.call("list")["places"]}


@contextlib.contextmanager
def two_hosts(folder: Path, desk: str, shelf: str) -> Iterator[Farm]:
    """Start a farm: the host desk, which is this computer, and shelf, which is remote.

    Args:
        desk, shelf: the virtual boards of each host.
    """
    labgrid_python(lambda _: None)
    farm = Farm(folder)
    port = farm.address.rpartition(":")[2]
    desk_options = ("--name", "desk", "--address", "localhost", "--virtual", desk)
    with farm.start("farm.up", "--port", port, *desk_options) as up:
        until(up, "boards are offered")
        shelf_options = ("--name", "shelf", "--address", "shelf.invalid", "--virtual", shelf)
        project = folder / "shelf"
        project.mkdir()
        rules = "boards: [{board: host}]\nfarm: {bad_after: 2, well_after: 2}\n"
        (project / "utvm.yaml").write_text(rules, encoding="utf-8")
        with farm.start("farm.export", *shelf_options, folder=project) as export:
            until(export, "boards are offered")
            yield farm
