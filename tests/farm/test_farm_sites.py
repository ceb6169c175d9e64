# SPDX-License-Identifier: Apache-2.0
"""Several coordinators: a run leases the first free board of any, and survives the death of one."""

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
from tests.farm.farms import HELPER, LONG, Farm, find_process, until, wait_for
from tests.processes import descendants
from utvm.farm.client import LeaseHolder, labgrid_python

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def _sites(folder: Path, *boards: str) -> Iterator[list[Farm]]:
    """Start a coordinator and a host for each list of virtual boards, all on this computer."""
    labgrid_python(lambda _: None)
    with contextlib.ExitStack() as stack:
        sites = []
        for number, virtual in enumerate(boards, 1):
            site = Farm(folder / f"site-{number}")
            names = ("--name", f"site-{number}", "--address", "localhost", "--virtual", virtual)
            up = stack.enter_context(site.start("farm.up", "--port", site.address.rpartition(":")[2], *names))
            until(up, "boards are offered")
            sites.append(site)
        yield sites


def _addresses(sites: Sequence[Farm]) -> str:
    return ",".join(site.address for site in sites)


def _kill_coordinator(site: Farm) -> None:
    find_process("labgrid.remote.coordinator", site.address.rpartition(":")[2]).kill()


def test_first_free_board_of_any_site_is_leased(tmp_path: Path) -> None:
    with _sites(tmp_path, "host", "host") as (first, second):
        lines: list[str] = []
        addresses, board, log = _addresses([first, second]), {"board": "host", "health": "ok"}, tmp_path / "log"
        with first.client() as client:
            lease_of_first = client.call("lease", filters=board, wait=None)
            with LeaseHolder(addresses, board, LONG, log, lines.append) as holder:
                lease = holder.wait()
                assert (lease.place, lease.others) == ("site-2-host-1", 1)
                # Both sites have no free board; the second dies, and the first releases its board.
                with LeaseHolder(addresses, board, LONG, log, lines.append) as waiting:
                    wait_for(lambda: not waiting.poll() and sum("in line" in line for line in lines) >= 2)
                    _kill_coordinator(second)
                    wait_for(lambda: not waiting.poll() and any("left out: " in line for line in lines))
                    listed = inv("farm.list", "--json", LG_COORDINATOR=addresses)
                    assert f"no coordinator answers at {second.address}" in listed.stdout + listed.stderr
                    client.call("release")
                    assert waiting.wait().place == lease_of_first["place"]
    refused = inv("farm.list", LG_COORDINATOR=addresses)
    assert (refused.returncode, "no coordinator answers at" in refused.stderr) == (3, True)
    wrong = inv("farm.list", LG_COORDINATOR=f"{first.address},desk")
    assert (wrong.returncode, "'desk' is not HOST:PORT" in wrong.stderr) == (2, True)


@pytest.mark.nightly  # in the daily tests, runs wait in line in test_farm
def test_runs_of_a_computer_wait_in_order_as_one_client(tmp_path: Path) -> None:
    """labgrid sends each change of a place to every client, so one client waits for all equal requests."""
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
        # After the first in line is ended, the second is first, and the ended one queues again as the last.
        sorted(descendants(os.getpid(), str(HELPER)), key=psutil.Process.create_time)[2].terminate()
        runs.append(runs.pop(0))
        wait_for(lambda: not any(run.poll() for run in runs) and len(client.call("list")["waiting"]) == 1)
        other.call("release")
        for run in runs:
            assert run.wait().waited > 0
            assert not any(other.poll() for other in runs if other is not run)
            assert len(client.call("list")["waiting"]) <= 1
            run.release()


def test_lease_released_by_another_user_is_lost(tmp_path: Path) -> None:
    with _sites(tmp_path, "host") as (site,), contextlib.ExitStack() as stack:
        holder = LeaseHolder(site.address, {"board": "host"}, LONG, tmp_path / "log", lambda _: None)
        lease = stack.enter_context(holder).wait()
        program = labgrid_python(lambda _: None).with_name("labgrid-client")
        command = [program, "-x", site.address, "-p", lease.place, "release", "--kick"]
        subprocess.run(command, check=True, timeout=LONG, stdout=subprocess.DEVNULL)
        wait_for(lambda: lease.lost == "it was released")


def test_listing_downloads_nothing(tmp_path: Path) -> None:
    listed = inv("farm.list", LG_COORDINATOR="127.0.0.1:9", XDG_CACHE_HOME=str(tmp_path))
    assert (listed.returncode, "this command does not fetch them" in listed.stderr) == (3, True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 1000]


def test_run_in_a_farm_prints_nothing_about_vagrant() -> None:
    program = "from utvm.cli import root_hil as r; r.remote_location('farm', r.PlaceChoice('farm'), print)"
    env = {**os.environ, "PATH": "/nowhere", "LG_COORDINATOR": "127.0.0.1:9"}
    command = [sys.executable, "-c", program]
    output = subprocess.check_output(command, env=env, stderr=subprocess.STDOUT, text=True, timeout=LONG)
    assert output == ""


@pytest.mark.nightly
def test_hundred_leases_beside_a_host_without_power(tmp_path: Path) -> None:
    """The host closes no connection: labgrid lists its boards until a timeout of 20 seconds."""
    labgrid_python(lambda _: None)
    with _sites(tmp_path, "host") as (site,):
        away = ("--name", "away", "--address", "away.invalid", "--virtual", ",".join(["host"] * 4))
        with site.start("farm.export", *away) as export:
            until(export, "boards are offered")
            # It cannot restart the exporter, and neither of them ends.
            psutil.Process(export.pid).suspend()
            exporter = find_process("labgrid.remote.exporter", site.address, "away")
            exporter.suspend()
            try:
                waited = list[float]()
                for session in range(5):
                    with site.client() as client:
                        for _ in range(20):
                            start = time.monotonic()
                            client.send("lease", filters={"board": "host", "health": "ok"}, wait=60)
                            while "place" not in (reply := client.read_reply(LONG)):
                                pass
                            waited.append(time.monotonic() - start)
                            assert reply["place"] == "site-1-host-1", session
                            client.call("release")
            finally:
                exporter.kill()
                psutil.Process(export.pid).resume()
    # Only the first run waits: labgrid queries the host for ten seconds.
    assert waited[0] < 15
    assert len(waited) == 100 and max(waited[1:]) < 5, sorted(waited)[-3:]


@pytest.mark.nightly
def test_no_job_is_lost_with_one_of_three_coordinators(tmp_path: Path) -> None:
    words = ("hil", "--board", "host", "--suite", "health", "--in", "farm")
    with _sites(tmp_path, *[",".join(["host"] * 20)] * 3) as sites, contextlib.ExitStack() as stack:
        client = Farm(tmp_path / "client")
        client.address = _addresses(sites)
        assert len(json.loads(client.inv("farm.list", "--json").stdout)["places"]) == 60
        jobs = list[subprocess.Popen[str]]()
        for number in range(12):
            folder = tmp_path / f"reports-{number}"
            jobs.append(stack.enter_context(client.start(*words, f"--report-dir={folder}")))
        until(jobs[0], "leased ")
        _kill_coordinator(sites[0])
        outputs = [job.communicate(timeout=LONG)[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0] * 12, outputs
