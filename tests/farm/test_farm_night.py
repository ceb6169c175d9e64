# SPDX-License-Identifier: Apache-2.0
"""A night on a farm of two hosts: one lease a turn, and another board where a host or a keeper breaks."""

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
from tests.farm.farms import LONG, Farm, holders, kill_a_keeper, process, two_hosts, until, wait_for
from tests.faults.in_farm import in_farm
from tests.faults.place import environment_of
from utvm.hil.schemas import read_report
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


def _night(folder: Path, *entries: dict[str, object]) -> tuple[str, ...]:
    """Return the words that run a night of these boards."""
    config = folder / "night.yaml"
    shared = {"place": "farm", "suites": ["health"]}
    config.write_text(yaml.safe_dump({"boards": [shared | entry for entry in entries]}))
    return ("nightly", f"--config={config}", f"--report-dir={folder}", "--jobs=2")


def _boards(folder: Path) -> list[dict[str, Any]]:
    content: dict[str, Any] = json.loads((folder / "latest" / "nightly.json").read_text())
    for each in content["boards"]:
        if each["report"]:
            report = read_report(folder / "latest" / each["report"])
            assert report["environment"]["place"]["lease"] == each["lease"]
    return list(content["boards"])


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with two_hosts(tmp_path_factory.mktemp("farm"), "host", "host,host") as farm:
        yield farm


def test_each_job_has_one_lease_and_another_board_after_trouble(farm: Farm, tmp_path: Path) -> None:
    farm.break_ssh()
    done = farm.inv(*_night(tmp_path, {"board": "host", "count": 2}), **farm.with_ssh)
    assert done.returncode == 0, done.stdout
    leases = [each["lease"] for each in _boards(tmp_path)]
    (earlier,) = [one for lease in leases for one in lease["earlier"]]
    assert earlier["why"].startswith("health check: rsync lost its connection")
    # Three boards in all, each once, and one lease for both its health check and its suites.
    had = [*(lease["place"] for lease in leases), earlier["place"]]
    assert sorted(had) == ["desk-host-1", "shelf-host-1", "shelf-host-2"]
    assert done.stdout.count(": leased ") == 3
    with farm.client() as client:
        assert not any(holders(client).values())


@pytest.mark.nightly  # by day, one that dies in line
def test_a_keeper_that_dies_in_a_turn_is_another_board(farm: Farm, tmp_path: Path) -> None:
    with farm.begun(*_night(tmp_path, {"board": "host", "tags": "host=shelf"}), **farm.with_ssh) as run:
        until(run, "leased shelf-host-")
        kill_a_keeper(run.pid)
        said, _ = run.communicate(timeout=LONG)
    (board,) = _boards(tmp_path)
    assert (run.returncode, board["verdict"]) == (0, "passed"), said
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
def test_a_list_that_asks_for_no_board_of_a_farm_is_refused(
    farm: Farm, tmp_path: Path, entry: dict[str, object], complaint: str
) -> None:
    done = farm.inv(*_night(tmp_path, entry))
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "latest").exists()


@pytest.mark.nightly
def test_night_of_twenty_faulty_boards_is_reported_right(tmp_path: Path) -> None:
    chance = random.Random(18)
    entries = ({"board": "stm32f746"}, {"board": "host", "count": 14}, {"board": "host", "tags": "host=attic"})
    words = _night(tmp_path, *entries)
    (tmp_path / "utvm.yaml").write_text("boards: [{board: host}]\n")
    boards = ",".join(["host"] * 9)
    with two_hosts(tmp_path / "farm", f"{boards},stm32f746", f"{boards},stm32f746") as farm:
        with farm.begun(*words, folder=tmp_path, **farm.with_ssh) as run:
            until(run, "leased ")
            exporter = process("labgrid.remote.exporter", farm.address, "shelf")
            for strike in (farm.break_ssh, exporter.kill, lambda: kill_a_keeper(run.pid)):
                time.sleep(chance.uniform(0, 15))
                strike()
            said, _ = run.communicate(timeout=4 * LONG)  # Thirty-two runs
        pages = farm.inv("history.export", "--format", "pages", "--output", tmp_path / "pages", cwd=tmp_path)
        farm.inv("history.export", "--output", tmp_path / "outcomes.csv", "--format", "outcomes", cwd=tmp_path)
        with farm.client() as client:
            client.call("reap", now=time.time() + 3600)
            assert not any(holders(client).values())
    results = _boards(tmp_path)
    passed = [each for each in results if each["verdict"] == "passed"]
    struck = [each["lease"] for each in results if each not in passed and each["lease"]]
    # There is no attic. Of three strikes two may hit one turn: it had another board once, and has none again.
    assert (run.returncode, len(results) - len(passed)) == (3, 1 + len(struck)), said
    assert all(lease["earlier"] for lease in struck) and len(struck) < 3, said
    had = [each["lease"]["place"] for each in results if each["lease"]]
    assert len(had) == len({*had}) == 15
    assert any(each["lease"]["earlier"] for each in results if each["lease"]), said
    assert pages.returncode == 0, pages.stderr
    assert "stm32f746" in (tmp_path / "pages" / "index.html").read_text()
    reports = [read_report(tmp_path / "latest" / each["report"]) for each in passed]
    with (tmp_path / "outcomes.csv").open(newline="") as file:
        remembered = {row["run_id"]: row["outcome"] for row in csv.DictReader(file)}
    # Of boards that were given up, too; theirs are no answers.
    assert {report["run_id"] for report in reports} <= remembered.keys()
    assert {remembered[report["run_id"]] for report in reports} == {"passed"}


# Of a night's own processes and of those that the farm consists of, by what their command lines have.
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
def test_whatever_is_killed_in_a_night_the_next_one_works(tmp_path: Path, name: str) -> None:
    chance = random.Random(19)
    words = _night(tmp_path, {"board": "host", "count": 2})
    with in_farm(tmp_path) as there:
        command = [sys.executable, "-m", "utvm", *words]
        environment = {**os.environ, **there.environment}
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as night:
            time.sleep(chance.uniform(2, 8))
            wait_for(lambda: _kill(name, tmp_path, chance) or night.poll() is not None)
        assert not there.left()
        done = inv(*words, timeout=LONG, **there.environment)
        assert done.returncode == 0, done.stdout + done.stderr


def _kill(name: str, mark: Path, chance: random.Random) -> bool:
    """Kill a process of the test that has this in its command line; return whether there is one."""
    found = [
        each
        for each in psutil.process_iter(["cmdline"])
        if any(word == name or word.endswith(f"/{name}") for word in each.info["cmdline"] or ())
        and str(mark).encode() in environment_of(each.pid)
    ]
    if found:
        chance.choice(found).kill()
    return bool(found)
