# SPDX-License-Identifier: Apache-2.0
"""A farm of two hosts on loopback: who gets a board, where a run is made, and what is left when somebody dies."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.environment.reports import read_report
from tests.farm.farms import LONG, Farm, holders, kill_a_keeper, process, two_hosts, until, wait_for
from utvm.farm.client import labgrid_python
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with two_hosts(tmp_path_factory.mktemp("farm"), "stm32f746", "host,host") as farm:
        yield farm


def test_run_happens_at_the_board_and_the_report_returns(farm: Farm, tmp_path: Path) -> None:
    words = ("--suite", "health", "--in", "farm", "--report-dir", tmp_path / "far")
    done = farm.inv("hil", "--board", "host", "--tags", "host=shelf", *words, **farm.with_ssh)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leased shelf-host-" in done.stdout
    report = read_report(tmp_path / "far")
    assert (report["verdict"], report["environment"]["place"]["kind"]) == ("passed", "farm")
    lease = report["environment"]["place"]["lease"]
    assert (lease["host"], lease["earlier"]) == ("shelf.invalid", [])
    assert f"leased {lease['place']} at shelf.invalid as {lease['holder']}," in done.stdout
    assert str(tmp_path / "far") in done.stdout.rpartition("report: ")[2]
    with farm.client() as client:
        assert not any(holders(client).values())


def test_models_run_at_the_board_and_files_return(farm: Farm, tmp_path: Path) -> None:
    # Outside of the checkout: what is in there goes along anyway.
    model = shutil.copy(ROOT / "models" / "digits" / "digits_int8.tflite", tmp_path / "own.tflite")
    with np.load(ROOT / "models" / "digits" / "samples.npz") as samples:
        np.save(tmp_path / "x.npy", samples["x"][:1].reshape(1, 8, 8, 1))
    told = []
    for where in ((), ("--in", "farm", "--tags", "host=shelf")):
        words = ("--board", "host", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
        done = farm.inv("model.run", model, *words, "--json", tmp_path / "y.json", *where, **farm.with_ssh)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("leased shelf-host-" in done.stdout) == bool(where)
        told.append((np.load(tmp_path / "y.npy").tobytes(), json.loads((tmp_path / "y.json").read_text())))
        for name in ("y.npy", "y.json"):
            (tmp_path / name).unlink()
    (here, figures), (there, others) = told
    assert (here, figures["outputs_sha256"]) == (there, others["outputs_sha256"])
    done = farm.inv("model.eval", "digits", "--samples", "2", "--board", "host", *where, **farm.with_ssh)
    assert (done.returncode, done.stdout.count("predicted")) == (0, 2), done.stdout + done.stderr
    again = farm.inv("model.run", tmp_path / "no.onnx", "--board", "host", *where, **farm.with_ssh)
    assert (again.returncode, "no.onnx" in again.stdout + again.stderr) == (2, True)


def test_failing_host_is_skipped_for_another_board(farm: Farm, tmp_path: Path) -> None:
    farm.break_ssh()
    words = ("--suite", "health", "--in", "farm", "--report-dir", tmp_path)
    done = farm.inv("hil", "--board", "host", *words, **farm.with_ssh)
    assert done.returncode == 0, done.stdout + done.stderr
    lease = read_report(tmp_path)["environment"]["place"]["lease"]
    (earlier,) = lease["earlier"]
    assert {lease["place"], earlier["place"]} == {"shelf-host-1", "shelf-host-2"}
    assert f"{earlier['place']}: {earlier['why']}; once more, on another board" in done.stdout


def test_labgrid_client_and_utvm_share_a_board(farm: Farm, tmp_path: Path) -> None:
    program = labgrid_python(lambda _: None).with_name("labgrid-client")
    env = {**os.environ, "LG_COORDINATOR": farm.address, "LG_HOSTNAME": "there", "LG_USERNAME": "somebody"}

    def stock(*words: str) -> str:
        done = subprocess.run([program, *words], env=env, capture_output=True, text=True, check=True, timeout=LONG)
        return done.stdout

    assert stock("places").split() == ["desk-stm32f746-1", "shelf-host-1", "shelf-host-2"]
    stock("-p", "desk-stm32f746-1", "acquire")
    with farm.begun("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
        until(run, "place 1 in line; held: desk-stm32f746-1 by there/somebody")
        metrics = tmp_path / "farm.prom"
        status = json.loads(farm.inv("farm.list", "--summary", "--json", "--metrics", metrics).stdout)
        said = metrics.read_text().splitlines()
        assert {'utvm_farm_boards{state="held"} 1', 'utvm_farm_boards{state="away"} 0'} < {*said}
        assert said[-1] == "utvm_farm_waiting 1"
        assert status["boards"] == {"held": 1, "free": 2}
        assert [each["wants"] for each in status["waiting"]] == [{"board": "stm32f746", "health": "ok"}]
        stock("-p", "desk-stm32f746-1", "release")
        until(run, "leased desk-stm32f746-1")
        # Killed outright: nothing of it can give the board back.
        run.kill()
        run.wait(LONG)
    with farm.client() as client:
        wait_for(lambda: not any(holders(client).values()))


def test_a_place_whose_host_is_away_is_not_leased_while_another_is_free(farm: Farm) -> None:
    """labgrid reserves by tags alone, and takes any place: of two that are away, too, before the third."""
    exporting = process("utvm farm.export", "shelf")
    exporting.suspend()  # It starts no other one.
    try:
        process("labgrid.remote.exporter", farm.address, "shelf").kill()
        for _ in range(2):
            with farm.client() as client:
                for _ in range(10):
                    begun = time.monotonic()
                    client.send("lease", filters={"health": "ok"}, wait=None)
                    while "place" not in (reply := client.read_reply(LONG)):
                        assert reply["busy"] == {}
                    assert (reply["place"], reply["others"]) == ("desk-stm32f746-1", 0)
                    assert time.monotonic() - begun < 5
                    client.call("release")
    finally:
        exporting.resume()
    with farm.client() as client:
        wait_for(lambda: all(place["present"] for place in client.call("list")["places"]))


def test_a_keeper_that_dies_in_line_is_followed_by_another_once(farm: Farm) -> None:
    """Seen at night as a board without a verdict, which nobody had taken."""
    with farm.client() as client:
        client.call("lease", filters={"name": "desk-stm32f746-1"}, wait=None)
        with farm.begun("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
            for _ in range(2):
                until(run, " in line; held:")
                kill_a_keeper(run.pid)
            said, _ = run.communicate(timeout=LONG)
    assert run.returncode == 3
    assert said.count("labgrid's client has exited") == 1


def test_a_host_that_has_just_gone_is_waited_for(farm: Farm) -> None:
    """Else a night loses all turns that are left in the seconds that an exporter takes to start again."""
    words = ("hil", "--board", "host", "--in", "farm", "--tags", "host=shelf", "--suite", "health")
    exporting = process("utvm farm.export", "shelf")
    exporting.suspend()  # It starts no other one.
    try:
        process("labgrid.remote.exporter", farm.address, "shelf").kill()
        refused = farm.inv(*words, "--wait", "1")
        assert refused.returncode == 3
        assert "the hosts of all boards with board=host, host=shelf are away" in refused.stderr
        with farm.begun(*words, **farm.with_ssh) as run:
            until(run, "waiting for a host")
            exporting.resume()
            said, _ = run.communicate(timeout=LONG)
    finally:
        exporting.resume()
    assert run.returncode == 0, said


def test_overdue_lease_ends_and_others_stay(farm: Farm) -> None:
    with farm.client() as client:
        had = client.call("lease", filters={"name": "shelf-host-1"}, wait=None)
        # Stopped, it moves no deadline on; killed meanwhile, it gives nothing back.
        process("helper.py", farm.address).kill()
    with farm.client() as client:
        assert holders(client)["shelf-host-1"] == had["holder"]
        assert client.call("reap")["freed"] == []
        assert client.call("reap", now=time.time() + 3600)["freed"] == [
            {"place": "shelf-host-1", "holder": had["holder"]}
        ]
        client.call("lease", filters={"name": "shelf-host-1"}, wait=None)
        assert client.call("reap")["freed"] == []


def test_a_board_in_quarantine_is_nobody_s_until_it_is_healed(farm: Farm) -> None:
    said = farm.inv("farm.quarantine", "desk-stm32f746-1", "--why", "its LED smokes")
    assert said.returncode == 0, said.stderr
    refused = farm.inv("hil", "--board", "stm32f746", "--in", "farm")
    assert refused.returncode == 3
    assert "in quarantine: desk-stm32f746-1: its LED smokes" in refused.stderr
    healed = farm.inv("farm.heal", "desk-stm32f746-1")
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert "VIRTUAL stm32f746, in farm" in healed.stdout
    with farm.client() as client:
        (place,) = [each for each in client.call("list")["places"] if each["place"] == "desk-stm32f746-1"]
    assert (place["tags"]["health"], place["comment"]) == ("ok", "")


def test_runs_without_verdict_quarantine_a_board(farm: Farm) -> None:
    wish = {"name": "shelf-host-2", "health": "ok"}
    with farm.client() as client:
        # The shelf's utvm.yaml says two.
        for outcome in ("verdict", "infrastructure", "verdict", "infrastructure", ""):
            client.call("lease", filters=wish, wait=None)
            client.call("release", outcome=outcome)
        client.call("lease", filters=wish, wait=None)
        client.call("release", outcome="infrastructure")
        (place,) = [each for each in client.call("list")["places"] if each["place"] == "shelf-host-2"]
        assert place["tags"]["health"] == "bad"
        assert place["comment"].startswith("2 runs in a row without a verdict")
        client.call("mark", place="shelf-host-1", health="bad", comment="by hand")
    healed = farm.inv("farm.heal", "all", **farm.with_ssh)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert healed.stdout.count("1 passed") == 2  # It says that two checks have to pass, too.
    with farm.client() as client:
        health = {each["place"]: each["tags"]["health"] for each in client.call("list")["places"]}
        assert (health["shelf-host-1"], health["shelf-host-2"]) == ("bad", "ok")
        client.call("mark", place="shelf-host-1", health="ok", comment="")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--in", "farm", "--tags", "shelf"), "--tags 'shelf' is not a tag"),
        (("--in", "farm", "--tags", "host=attic"), "no place of the farm has board=host, host=attic"),
        (("--in", "farm", "--tags", "name=attic"), "no place of the farm has board=host, name=attic"),
        (("--tags", "name=shelf-host-1"), "use --in farm"),
    ],
)
def test_what_the_farm_has_not_is_refused(farm: Farm, words: tuple[str, ...], complaint: str) -> None:
    done = farm.inv("hil", "--board", "host", *words)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr


def test_a_coordinator_that_dies_is_infrastructure(farm: Farm) -> None:
    """The last test of the file: after it there is no farm."""
    with farm.client() as client:
        client.call("lease", filters={"name": "desk-stm32f746-1"}, wait=None)
        with farm.begun("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
            until(run, " in line; held:")
            process("labgrid.remote.coordinator", farm.address.rpartition(":")[2]).kill()
            said, _ = run.communicate(timeout=LONG)
            assert run.returncode == 3, said
    done = farm.inv("farm.list")
    assert (done.returncode, "no coordinator answers at" in done.stderr) == (3, True)
