# SPDX-License-Identifier: Apache-2.0
"""A farm of two hosts on loopback: who gets a board, where the run is made, and what is left when somebody dies.

The second host is reached by ssh: a stand-in for it, which runs here what it would run there. labgrid is real.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.running import inv
from tests.environment.reports import read_report
from utvm.environment.farm.client import FarmClient, labgrid
from utvm.kept import cache_root
from utvm.process import free_port

pytestmark = pytest.mark.slow

_STAND_IN = """#!/bin/sh
while :; do case $1 in -o | -l) shift 2 ;; -*) shift ;; *) break ;; esac; done
shift
exec sh -c "$*"
"""
_LONG = 300.0  # Seconds; nothing takes as long, but a machine may be busy.


class _Farm:
    """The address of a farm, and commands that are given to it."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        ssh = folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(_STAND_IN)
        ssh.chmod(0o755)
        caches = folder / "caches" / "utvm"
        caches.mkdir(parents=True)
        (caches / "farm").symlink_to(cache_root() / "farm")
        self.with_ssh = {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}
        self._hosts = {"XDG_CACHE_HOME": str(caches.parent)}
        self._log = log

    def inv(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        return inv(*words, timeout=_LONG, LG_COORDINATOR=self.address, **env)

    @contextlib.contextmanager
    def begun(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "utvm", *words]
        env = {**os.environ, **self._hosts, "LG_COORDINATOR": self.address, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as run:
            try:
                yield run
            finally:
                run.terminate()
                run.communicate(timeout=_LONG)

    def client(self) -> FarmClient:
        return FarmClient(self.address, self._log, lambda _: None)


def _until(run: subprocess.Popen[str], words: str) -> str:
    assert run.stdout
    said = ""
    for line in run.stdout:
        said += line
        if words in line:
            return said
    raise AssertionError(f"it ended without {words!r}: {said}")


def _process(*words: str) -> psutil.Process:
    """Return the process that has all of these in its command line, once what ends has ended."""
    found: list[psutil.Process] = []

    def alone() -> bool:
        found[:] = [each for each in psutil.process_iter(["cmdline"]) if _has(each, words)]
        return len(found) == 1

    _wait_for(alone)
    return found[0]


def _has(each: psutil.Process, words: tuple[str, ...]) -> bool:
    line = " ".join(each.info["cmdline"] or ())
    return all(word in line for word in words)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Farm]:
    """A farm of two hosts: desk, which is this computer, and shelf, which is far away."""
    labgrid(lambda _: None)
    folder = tmp_path_factory.mktemp("farm")
    farm = _Farm(folder, folder / "labgrid.log")
    port = farm.address.rpartition(":")[2]
    desk = ("--name", "desk", "--address", "localhost", "--virtual", "stm32f746")
    with farm.begun("farm.up", "--port", port, *desk) as up:
        _until(up, "boards are offered")
        shelf = ("--name", "shelf", "--address", "shelf.invalid", "--virtual", "host,host")
        with farm.begun("farm.export", *shelf) as export:
            _until(export, "boards are offered")
            yield farm


def _state(client: FarmClient) -> dict[str, Any]:
    return {each["place"]: each["holder"] for each in client.ask("list")["places"]}


def test_a_run_is_made_where_the_board_is_and_its_report_comes_home(farm: _Farm, tmp_path: Path) -> None:
    words = ("--suite", "health", "--in", "farm", "--report-dir", tmp_path / "far")
    done = farm.inv("hil", "--board", "host", "--tags", "host=shelf", *words, **farm.with_ssh)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leased shelf-host-" in done.stdout
    report = read_report(tmp_path / "far")
    assert (report["verdict"], report["environment"]["place"]["kind"]) == ("passed", "farm")
    assert str(tmp_path / "far") in done.stdout.rpartition("report: ")[2]
    with farm.client() as client:
        assert not any(_state(client).values())


def test_labgrid_s_own_client_and_we_have_one_board_one_after_the_other(farm: _Farm) -> None:
    program = labgrid(lambda _: None).with_name("labgrid-client")
    env = {**os.environ, "LG_COORDINATOR": farm.address, "LG_HOSTNAME": "there", "LG_USERNAME": "somebody"}

    def stock(*words: str) -> str:
        done = subprocess.run(
            [program, *words], env=env, capture_output=True, text=True, check=True, timeout=_LONG
        )
        return done.stdout

    assert stock("places").split() == ["desk-stm32f746-1", "shelf-host-1", "shelf-host-2"]
    stock("-p", "desk-stm32f746-1", "acquire")
    with farm.begun("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
        _until(run, "place 1 in line; held: desk-stm32f746-1 by there/somebody")
        status = json.loads(farm.inv("farm.status", "--json").stdout)
        assert status["boards"] == {"held": 1, "free": 2}
        assert [each["wants"] for each in status["waiting"]] == [{"board": "stm32f746", "health": "ok"}]
        stock("-p", "desk-stm32f746-1", "release")
        _until(run, "leased desk-stm32f746-1")
        # Killed outright: nothing of it can give the board back.
        run.kill()
        run.wait(_LONG)
    with farm.client() as client:
        _wait_for(lambda: not any(_state(client).values()))


def test_a_lease_past_its_deadline_is_ended_and_another_s_is_not(farm: _Farm) -> None:
    with farm.client() as client:
        had = client.ask("lease", filters={"name": "shelf-host-1"}, wait=None)
        # Stopped, it moves no deadline on; killed meanwhile, it gives nothing back.
        _process("helper.py", farm.address).kill()
    with farm.client() as client:
        assert _state(client)["shelf-host-1"] == had["holder"]
        assert client.ask("reap")["freed"] == []
        assert client.ask("reap", now=time.time() + 3600)["freed"] == [
            {"place": "shelf-host-1", "holder": had["holder"]}
        ]
        client.ask("lease", filters={"name": "shelf-host-1"}, wait=None)
        assert client.ask("reap")["freed"] == []


def test_a_board_in_quarantine_is_nobody_s_until_it_is_healed(farm: _Farm) -> None:
    said = farm.inv("farm.quarantine", "desk-stm32f746-1", "--why", "its LED smokes")
    assert said.returncode == 0, said.stderr
    refused = farm.inv("hil", "--board", "stm32f746", "--in", "farm")
    assert refused.returncode == 3
    assert "in quarantine: desk-stm32f746-1: its LED smokes" in refused.stderr
    healed = farm.inv("farm.heal", "desk-stm32f746-1")
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert "VIRTUAL stm32f746, in farm" in healed.stdout
    with farm.client() as client:
        (place,) = [each for each in client.ask("list")["places"] if each["place"] == "desk-stm32f746-1"]
    assert (place["tags"]["health"], place["comment"]) == ("ok", "")


def test_three_runs_in_a_row_without_a_verdict_are_quarantine(farm: _Farm) -> None:
    wish = {"name": "shelf-host-2", "health": "ok"}
    with farm.client() as client:
        for outcome in ("infrastructure", "infrastructure", "verdict", "infrastructure", "infrastructure", ""):
            client.ask("lease", filters=wish, wait=None)
            client.ask("release", outcome=outcome)
        client.ask("lease", filters=wish, wait=None)
        client.ask("release", outcome="infrastructure")
        (place,) = [each for each in client.ask("list")["places"] if each["place"] == "shelf-host-2"]
        assert place["tags"]["health"] == "bad"
        assert place["comment"].startswith("3 runs in a row without a verdict")
        client.ask("mark", place="shelf-host-2", health="ok", comment="")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--in", "farm", "--tags", "shelf"), "--tags 'shelf' is no tag"),
        (("--in", "farm", "--farm", "nowhere"), "--farm 'nowhere' is no HOST:PORT"),
        (("--in", "farm", "--tags", "host=attic"), "no place of the farm has board=host, host=attic"),
        (("--place", "shelf-host-1"), "use them with --in farm"),
    ],
)
def test_what_the_farm_has_not_is_refused(farm: _Farm, words: tuple[str, ...], complaint: str) -> None:
    done = farm.inv("hil", "--board", "host", *words)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr


def test_a_coordinator_that_dies_is_infrastructure(farm: _Farm) -> None:
    """The last test of the file: after it there is no farm."""
    with farm.client() as client:
        client.ask("lease", filters={"name": "desk-stm32f746-1"}, wait=None)
        with farm.begun("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
            _until(run, "place 1 in line")
            _process("labgrid.remote.coordinator", farm.address).kill()
            said, _ = run.communicate(timeout=_LONG)
            assert run.returncode == 3, said
    done = farm.inv("farm.list")
    assert (done.returncode, "no coordinator answers at" in done.stderr) == (3, True)
