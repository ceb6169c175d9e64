# SPDX-License-Identifier: Apache-2.0
"""A nightly run on a farm of two hosts: one lease for each job, and another board after a failure of a host or lease
holder."""

import csv
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.cli.running import inv
from tests.farm.farms import LONG, Farm, find_process, holders, kill_lease_holder, two_hosts, until, wait_for
from tests.faults.in_farm import in_farm
from tests.faults.place import environment_of
from utvm.hil.schemas import read_report
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


def _write_nightly_list(folder: Path, *entries: dict[str, object]) -> tuple[str, ...]:
    """Write a nightly list of these boards; return the command that runs it."""
    config = folder / "night.yaml"
    shared = {"place": "farm", "suites": ["health"]}
    config.write_text(yaml.safe_dump({"boards": [shared | entry for entry in entries]}))
    return ("nightly", f"--config={config}", f"--report-dir={folder}", "--jobs=2")


def _boards(folder: Path) -> list[dict[str, Any]]:
    content: dict[str, Any] = json.loads((folder / "latest" / "nightly.json").read_text())
    for board in content["boards"]:
        if board["report"]:
            report = read_report(folder / "latest" / board["report"])
            assert report["environment"]["place"]["lease"] == board["lease"]
    return list(content["boards"])


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with two_hosts(tmp_path_factory.mktemp("farm"), "host", "host,host") as farm:
        yield farm


def test_job_has_one_lease_and_another_board_after_a_failure(farm: Farm, tmp_path: Path) -> None:
    farm.break_ssh()
    completed = farm.inv(*_write_nightly_list(tmp_path, {"board": "host", "count": 2}), **farm.with_ssh)
    assert completed.returncode == 0, completed.stdout
    leases = [board["lease"] for board in _boards(tmp_path)]
    (earlier,) = [one for lease in leases for one in lease["earlier"]]
    assert earlier["why"].startswith("health check: rsync lost its connection")
    # Three boards, each once, with one lease for both health check and suites.
    places = [*(lease["place"] for lease in leases), earlier["place"]]
    assert sorted(places) == ["desk-host-1", "shelf-host-1", "shelf-host-2"]
    assert completed.stdout.count(": leased ") == 3
    with farm.client() as client:
        assert not any(holders(client).values())


@pytest.mark.nightly  # the daily test ends a lease holder in line
def test_job_moves_to_another_board_without_its_lease_holder(farm: Farm, tmp_path: Path) -> None:
    with farm.start(*_write_nightly_list(tmp_path, {"board": "host", "tags": "host=shelf"}), **farm.with_ssh) as run:
        until(run, "leased shelf-host-")
        kill_lease_holder(run.pid)
        output, _ = run.communicate(timeout=LONG)
    (board,) = _boards(tmp_path)
    assert (run.returncode, board["verdict"]) == (0, "passed"), output
    (earlier,) = board["lease"]["earlier"]
    assert earlier["why"] == f"the lease of {earlier['place']} was lost: its lease holder has exited"
    assert board["lease"]["place"] != earlier["place"]
    with farm.client() as client:
        assert client.call("reap", now=time.time() + 3600)["freed"]


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"board": "host", "place": "host", "count": 2}, "tags and count are for boards of a farm"),
        ({"board": "host", "tags": "shelf"}, "--tags 'shelf' is not a tag"),
    ],
)
def test_invalid_nightly_list_is_refused(farm: Farm, tmp_path: Path, entry: dict[str, object], complaint: str) -> None:
    completed = farm.inv(*_write_nightly_list(tmp_path, entry))
    assert (completed.returncode, complaint in completed.stderr) == (2, True), completed.stderr
    assert not (tmp_path / "latest").exists()


@pytest.mark.nightly
def test_faults_of_twenty_boards_are_reported(tmp_path: Path) -> None:
    chance = random.Random(18)
    entries = ({"board": "stm32f746"}, {"board": "host", "count": 14}, {"board": "host", "tags": "host=attic"})
    words = _write_nightly_list(tmp_path, *entries)
    (tmp_path / "utvm.yaml").write_text("boards: [{board: host}]\n")
    boards = ",".join(["host"] * 9)
    with two_hosts(tmp_path / "farm", f"{boards},stm32f746", f"{boards},stm32f746") as farm:
        with farm.start(*words, folder=tmp_path, **farm.with_ssh) as run:
            until(run, "leased ")
            exporter = find_process("labgrid.remote.exporter", farm.address, "shelf")
            for inject in (farm.break_ssh, exporter.kill, lambda: kill_lease_holder(run.pid)):
                time.sleep(chance.uniform(0, 15))
                inject()
            output, _ = run.communicate(timeout=4 * LONG)  # Thirty-two runs
        pages = farm.inv("history.export", "--format", "pages", "--output", tmp_path / "pages", cwd=tmp_path)
        farm.inv("history.export", "--output", tmp_path / "outcomes.csv", "--format", "outcomes", cwd=tmp_path)
        with farm.client() as client:
            client.call("reap", now=time.time() + 3600)
            assert not any(holders(client).values())
    results = _boards(tmp_path)
    passed = [board for board in results if board["verdict"] == "passed"]
    failed_leases = [board["lease"] for board in results if board not in passed and board["lease"]]
    # The host attic does not exist. Two of three faults may hit one job: it gets only one other board.
    assert (run.returncode, len(results) - len(passed)) == (3, 1 + len(failed_leases)), output
    assert all(lease["earlier"] for lease in failed_leases) and len(failed_leases) < 3, output
    places = [board["lease"]["place"] for board in results if board["lease"]]
    assert len(places) == len({*places}) == 15
    assert any(board["lease"]["earlier"] for board in results if board["lease"]), output
    assert pages.returncode == 0, pages.stderr
    assert "stm32f746" in (tmp_path / "pages" / "index.html").read_text()
    reports = [read_report(tmp_path / "latest" / board["report"]) for board in passed]
    with (tmp_path / "outcomes.csv").open(newline="") as file:
        outcomes = {row["run_id"]: row["outcome"] for row in csv.DictReader(file)}
    # Runs that were repeated on another board are in the file, too, but are not passed.
    assert {report["run_id"] for report in reports} <= outcomes.keys()
    assert {outcomes[report["run_id"]] for report in reports} == {"passed"}


# Processes of a nightly run and of the farm, by words of their command lines.
_PROCESSES = (
    "nightly",
    "hil",
    "helper.py",
    "labgrid.remote.coordinator",
    "labgrid.remote.exporter",
    "farm.up",
    "farm.export",
)


@pytest.mark.nightly
@pytest.mark.parametrize("name", _PROCESSES)
def test_next_nightly_run_works_after_a_kill(tmp_path: Path, name: str) -> None:
    chance = random.Random(19)
    words = _write_nightly_list(tmp_path, {"board": "host", "count": 2})
    with in_farm(tmp_path) as farm:
        command = [sys.executable, "-m", "utvm", *words]
        environment = {**os.environ, **farm.environment}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as night:
            time.sleep(chance.uniform(2, 8))
            wait_for(lambda: _kill(name, tmp_path, chance) or night.poll() is not None)
        assert not farm.leftovers()
        completed = inv(*words, timeout=LONG, **farm.environment)
        assert completed.returncode == 0, completed.stdout + completed.stderr


def _kill(name: str, mark: Path, chance: random.Random) -> bool:
    """Kill one of the test's processes with this word in its command line; return whether there was one."""
    processes = [
        one
        for one in psutil.process_iter(["cmdline"])
        if any(word == name or word.endswith(f"/{name}") for word in one.info["cmdline"] or ())
        and str(mark).encode() in environment_of(one.pid)
    ]
    if processes:
        chance.choice(processes).kill()
    return bool(processes)
