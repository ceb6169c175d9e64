# SPDX-License-Identifier: Apache-2.0
"""Several coordinators: a run takes the first free board of any, and one that dies costs no run."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.cli.running import inv
from tests.farm.farms import HELPER, LONG, Farm, process, until, wait_for
from tests.processes import below
from utvm.farm.client import LeaseHolder, labgrid_python

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def _sites(folder: Path, *boards: str) -> Iterator[list[Farm]]:
    """Have a coordinator and a host for each list of virtual boards, all on this computer."""
    labgrid_python(lambda _: None)
    with contextlib.ExitStack() as stack:
        sites = []
        for number, virtual in enumerate(boards, 1):
            site = Farm(folder / f"site-{number}")
            names = ("--name", f"site-{number}", "--address", "localhost", "--virtual", virtual)
            up = stack.enter_context(site.begun("farm.up", "--port", site.address.rpartition(":")[2], *names))
            until(up, "boards are offered")
            sites.append(site)
        yield sites


def _all(sites: Sequence[Farm]) -> str:
    return ",".join(site.address for site in sites)


def _kill_coordinator(site: Farm) -> None:
    process("labgrid.remote.coordinator", site.address.rpartition(":")[2]).kill()


def test_the_first_free_board_of_any_site_is_leased(tmp_path: Path) -> None:
    with _sites(tmp_path, "host", "host") as (one, other):
        lines: list[str] = []
        addresses, board, log = _all([one, other]), {"board": "host", "health": "ok"}, tmp_path / "log"
        with one.client() as client:
            held = client.call("lease", filters=board, wait=None)
            with LeaseHolder(addresses, board, LONG, log, lines.append) as holder:
                lease = holder.wait()
                assert (lease.place, lease.others) == ("site-2-host-1", 1)
                # Both sites have no free board; the second dies, and the first gives its one back.
                with LeaseHolder(addresses, board, LONG, log, lines.append) as waiting:
                    wait_for(lambda: not waiting.poll() and sum("in line" in line for line in lines) >= 2)
                    _kill_coordinator(other)
                    wait_for(lambda: not waiting.poll() and any("left out: " in line for line in lines))
                    listed = inv("farm.list", "--json", LG_COORDINATOR=addresses)
                    assert f"no coordinator answers at {other.address}" in listed.stdout + listed.stderr
                    client.call("release")
                    assert waiting.wait().place == held["place"]
    refused = inv("farm.list", LG_COORDINATOR=addresses)
    assert (refused.returncode, "no coordinator answers at" in refused.stderr) == (3, True)
    wrong = inv("farm.list", LG_COORDINATOR=f"{one.address},desk")
    assert (wrong.returncode, "'desk' is not HOST:PORT" in wrong.stderr) == (2, True)


@pytest.mark.nightly  # by day, runs wait in line in test_farm
def test_runs_of_one_computer_wait_as_one_client_in_their_order(tmp_path: Path) -> None:
    """labgrid sends each change of a place to every client, so one waits for all that want the same."""
    board, lines = {"board": "host", "health": "ok"}, list[str]()
    with _sites(tmp_path, "host") as (site,), contextlib.ExitStack() as stack:
        other, client = stack.enter_context(site.client()), stack.enter_context(site.client())
        other.call("lease", filters=board, wait=None)
        runs = list[LeaseHolder]()
        for place in range(1, 5):
            holder = LeaseHolder(site.address, board, LONG, tmp_path / f"log-{place}", lines.append)
            runs.append(stack.enter_context(holder))
            while not any(f"place {place} in line; held: site-1-host-1 by " in line for line in lines):
                assert not any(run.poll() for run in runs)
                time.sleep(0.1)
        assert len(client.call("list")["waiting"]) == 1
        # The first in line is ended: the second is the first, and the ended one queues again, as the last.
        sorted(below(os.getpid(), str(HELPER)), key=psutil.Process.create_time)[2].terminate()
        runs.append(runs.pop(0))
        wait_for(lambda: not any(run.poll() for run in runs) and len(client.call("list")["waiting"]) == 1)
        other.call("release")
        for run in runs:
            assert run.wait().waited > 0
            assert not any(other.poll() for other in runs if other is not run)
            assert len(client.call("list")["waiting"]) <= 1
            run.release()


def test_a_lease_that_somebody_ends_is_lost(tmp_path: Path) -> None:
    with _sites(tmp_path, "host") as (site,), contextlib.ExitStack() as stack:
        holder = LeaseHolder(site.address, {"board": "host"}, LONG, tmp_path / "log", lambda _: None)
        lease = stack.enter_context(holder).wait()
        program = labgrid_python(lambda _: None).with_name("labgrid-client")
        command = [program, "-x", site.address, "-p", lease.place, "release", "--kick"]
        subprocess.run(command, check=True, timeout=LONG, stdout=subprocess.DEVNULL)
        wait_for(lambda: lease.lost == "it was released")


def test_a_command_that_prints_fetches_nothing(tmp_path: Path) -> None:
    listed = inv("farm.list", LG_COORDINATOR="127.0.0.1:9", XDG_CACHE_HOME=str(tmp_path))
    assert (listed.returncode, "this command does not fetch them" in listed.stderr) == (3, True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 1000]


def test_a_run_in_a_farm_does_not_speak_of_vagrant() -> None:
    program = "from utvm.cli import root_hil as r; r.remote_location('farm', r.PlaceChoice('farm'), print)"
    env = {**os.environ, "PATH": "/nowhere", "LG_COORDINATOR": "127.0.0.1:9"}
    command = [sys.executable, "-c", program]
    said = subprocess.check_output(command, env=env, stderr=subprocess.STDOUT, text=True, timeout=LONG)
    assert said == ""


@pytest.mark.nightly
def test_hundred_leases_beside_a_host_that_was_switched_off(tmp_path: Path) -> None:
    """It closes no connection: labgrid lists its boards until that times out, after 20 seconds."""
    labgrid_python(lambda _: None)
    with _sites(tmp_path, "host") as (site,):
        away = ("--name", "away", "--address", "away.invalid", "--virtual", ",".join(["host"] * 4))
        with site.begun("farm.export", *away) as export:
            until(export, "boards are offered")
            # It starts no other exporter, and neither ends.
            psutil.Process(export.pid).suspend()
            exporter = process("labgrid.remote.exporter", site.address, "away")
            exporter.suspend()
            try:
                waited = list[float]()
                for session in range(5):
                    with site.client() as client:
                        for _ in range(20):
                            begun = time.monotonic()
                            client.send("lease", filters={"board": "host", "health": "ok"}, wait=60)
                            while "place" not in (reply := client.read_reply(LONG)):
                                pass
                            waited.append(time.monotonic() - begun)
                            assert reply["place"] == "site-1-host-1", session
                            client.call("release")
            finally:
                exporter.kill()
                psutil.Process(export.pid).resume()
    # The first run finds out: labgrid asks the host for ten seconds.
    assert waited[0] < 15
    assert len(waited) == 100 and max(waited[1:]) < 5, sorted(waited)[-3:]


@pytest.mark.nightly
def test_of_three_coordinators_one_is_killed_and_no_job_is_lost(tmp_path: Path) -> None:
    words = ("hil", "--board", "host", "--suite", "health", "--in", "farm")
    with _sites(tmp_path, *[",".join(["host"] * 20)] * 3) as sites, contextlib.ExitStack() as stack:
        client = Farm(tmp_path / "client")
        client.address = _all(sites)
        assert len(json.loads(client.inv("farm.list", "--json").stdout)["places"]) == 60
        jobs = list[subprocess.Popen[str]]()
        for number in range(12):
            folder = tmp_path / f"reports-{number}"
            jobs.append(stack.enter_context(client.begun(*words, f"--report-dir={folder}")))
        until(jobs[0], "leased ")
        _kill_coordinator(sites[0])
        said = [job.communicate(timeout=LONG)[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0] * 12, said
