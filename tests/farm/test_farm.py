# SPDX-License-Identifier: Apache-2.0
"""A farm of two hosts on loopback: leases, the location of a run, and recovery after a process dies."""

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
from tests.farm.farms import LONG, Farm, find_process, holders, kill_lease_holder, two_hosts, until, wait_for
from utvm.farm.client import labgrid_python
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with two_hosts(tmp_path_factory.mktemp("farm"), "stm32f746", "host,host") as farm:
        yield farm


def test_run_happens_at_the_board_and_the_report_returns(farm: Farm, tmp_path: Path) -> None:
    words = ("--suite", "health", "--in", "farm", "--report-dir", tmp_path / "far")
    completed = farm.inv("hil", "--board", "host", "--tags", "host=shelf", *words, **farm.with_ssh)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "leased shelf-host-" in completed.stdout
    report = read_report(tmp_path / "far")
    assert (report["verdict"], report["environment"]["place"]["kind"]) == ("passed", "farm")
    lease = report["environment"]["place"]["lease"]
    assert (lease["host"], lease["earlier"]) == ("shelf.invalid", [])
    assert f"leased {lease['place']} at shelf.invalid as {lease['holder']}," in completed.stdout
    assert str(tmp_path / "far") in completed.stdout.rpartition("report: ")[2]
    with farm.client() as client:
        assert not any(holders(client).values())


def test_models_run_at_the_board_and_files_return(farm: Farm, tmp_path: Path) -> None:
    # A file outside of the checkout: files in the checkout are copied anyway.
    model = shutil.copy(ROOT / "models" / "digits" / "digits_int8.tflite", tmp_path / "own.tflite")
    with np.load(ROOT / "models" / "digits" / "samples.npz") as samples:
        np.save(tmp_path / "x.npy", samples["x"][:1].reshape(1, 8, 8, 1))
    results = []
    for options in ((), ("--in", "farm", "--tags", "host=shelf")):
        words = ("--board", "host", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
        completed = farm.inv("model.run", model, *words, "--json", tmp_path / "y.json", *options, **farm.with_ssh)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        assert ("leased shelf-host-" in completed.stdout) == bool(options)
        results.append((np.load(tmp_path / "y.npy").tobytes(), json.loads((tmp_path / "y.json").read_text())))
        for name in ("y.npy", "y.json"):
            (tmp_path / name).unlink()
    (local_output, local_figures), (farm_output, farm_figures) = results
    assert (local_output, local_figures["outputs_sha256"]) == (farm_output, farm_figures["outputs_sha256"])
    completed = farm.inv("model.eval", "digits", "--samples", "2", "--board", "host", *options, **farm.with_ssh)
    assert (completed.returncode, completed.stdout.count("predicted")) == (0, 2), completed.stdout + completed.stderr
    again = farm.inv("model.run", tmp_path / "no.onnx", "--board", "host", *options, **farm.with_ssh)
    assert (again.returncode, "no.onnx" in again.stdout + again.stderr) == (2, True)


def test_failing_host_is_replaced_by_another_board(farm: Farm, tmp_path: Path) -> None:
    farm.break_ssh()
    words = ("--suite", "health", "--in", "farm", "--report-dir", tmp_path)
    completed = farm.inv("hil", "--board", "host", *words, **farm.with_ssh)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lease = read_report(tmp_path)["environment"]["place"]["lease"]
    (earlier,) = lease["earlier"]
    assert {lease["place"], earlier["place"]} == {"shelf-host-1", "shelf-host-2"}
    assert f"{earlier['place']}: {earlier['why']}; once more, on another board" in completed.stdout


def test_labgrid_client_and_utvm_share_a_board(farm: Farm, tmp_path: Path) -> None:
    program = labgrid_python(lambda _: None).with_name("labgrid-client")
    env = {**os.environ, "LG_COORDINATOR": farm.address, "LG_HOSTNAME": "there", "LG_USERNAME": "somebody"}

    def labgrid_client(*words: str) -> str:
        completed = subprocess.run([program, *words], env=env, capture_output=True, text=True, check=True, timeout=LONG)
        return completed.stdout

    assert labgrid_client("places").split() == ["desk-stm32f746-1", "shelf-host-1", "shelf-host-2"]
    labgrid_client("-p", "desk-stm32f746-1", "acquire")
    with farm.start("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
        until(run, "place 1 in line; held: desk-stm32f746-1 by there/somebody")
        metrics = tmp_path / "farm.prom"
        status = json.loads(farm.inv("farm.list", "--summary", "--json", "--metrics", metrics).stdout)
        lines = metrics.read_text().splitlines()
        assert {'utvm_farm_boards{state="held"} 1', 'utvm_farm_boards{state="away"} 0'} < {*lines}
        assert lines[-1] == "utvm_farm_waiting 1"
        assert status["boards"] == {"held": 1, "free": 2}
        assert [request["wants"] for request in status["waiting"]] == [{"board": "stm32f746", "health": "ok"}]
        labgrid_client("-p", "desk-stm32f746-1", "release")
        until(run, "leased desk-stm32f746-1")
        # A killed run cannot release the board itself.
        run.kill()
        run.wait(LONG)
    with farm.client() as client:
        wait_for(lambda: not any(holders(client).values()))


def test_board_of_an_absent_host_is_not_leased(farm: Farm) -> None:
    """labgrid reserves by tags alone: it would take either board of an absent host before the third board."""
    exporter = find_process("utvm farm.export", "shelf")
    exporter.suspend()  # It cannot restart labgrid's exporter.
    try:
        find_process("labgrid.remote.exporter", farm.address, "shelf").kill()
        for _ in range(2):
            with farm.client() as client:
                for _ in range(10):
                    start = time.monotonic()
                    client.send("lease", filters={"health": "ok"}, wait=None)
                    while "place" not in (reply := client.read_reply(LONG)):
                        assert reply["busy"] == {}
                    assert (reply["place"], reply["others"]) == ("desk-stm32f746-1", 0)
                    assert time.monotonic() - start < 5
                    client.call("release")
    finally:
        exporter.resume()
    with farm.client() as client:
        wait_for(lambda: all(place["present"] for place in client.call("list")["places"]))


def test_lease_holder_that_dies_in_line_is_replaced_once(farm: Farm) -> None:
    """In a nightly run, it left a board without a verdict and without a lease."""
    with farm.client() as client:
        client.call("lease", filters={"name": "desk-stm32f746-1"}, wait=None)
        with farm.start("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
            for _ in range(2):
                until(run, " in line; held:")
                kill_lease_holder(run.pid)
            output, _ = run.communicate(timeout=LONG)
    assert run.returncode == 3
    assert output.count("labgrid's client has exited") == 1


def test_run_waits_for_an_absent_host(farm: Farm) -> None:
    """Otherwise a nightly run loses its remaining jobs in the seconds that an exporter needs to restart."""
    words = ("hil", "--board", "host", "--in", "farm", "--tags", "host=shelf", "--suite", "health")
    exporter = find_process("utvm farm.export", "shelf")
    exporter.suspend()  # It cannot restart labgrid's exporter.
    try:
        find_process("labgrid.remote.exporter", farm.address, "shelf").kill()
        refused = farm.inv(*words, "--wait", "1")
        assert refused.returncode == 3
        assert "the hosts of all boards with board=host, host=shelf are away" in refused.stderr
        with farm.start(*words, **farm.with_ssh) as run:
            until(run, "waiting for a host")
            exporter.resume()
            output, _ = run.communicate(timeout=LONG)
    finally:
        exporter.resume()
    assert run.returncode == 0, output


def test_overdue_lease_ends_and_others_stay(farm: Farm) -> None:
    with farm.client() as client:
        lease = client.call("lease", filters={"name": "shelf-host-1"}, wait=None)
        # A killed holder neither extends the deadline nor releases the board.
        find_process("helper.py", farm.address).kill()
    with farm.client() as client:
        assert holders(client)["shelf-host-1"] == lease["holder"]
        assert client.call("reap")["freed"] == []
        assert client.call("reap", now=time.time() + 3600)["freed"] == [
            {"place": "shelf-host-1", "holder": lease["holder"]}
        ]
        client.call("lease", filters={"name": "shelf-host-1"}, wait=None)
        assert client.call("reap")["freed"] == []


def test_board_in_quarantine_is_not_leased(farm: Farm) -> None:
    quarantined = farm.inv("farm.quarantine", "desk-stm32f746-1", "--why", "its LED smokes")
    assert quarantined.returncode == 0, quarantined.stderr
    refused = farm.inv("hil", "--board", "stm32f746", "--in", "farm")
    assert refused.returncode == 3
    assert "in quarantine: desk-stm32f746-1: its LED smokes" in refused.stderr
    healed = farm.inv("farm.heal", "desk-stm32f746-1")
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert "VIRTUAL stm32f746, in farm" in healed.stdout
    with farm.client() as client:
        (place,) = [place for place in client.call("list")["places"] if place["place"] == "desk-stm32f746-1"]
    assert (place["tags"]["health"], place["comment"]) == ("ok", "")


def test_runs_without_verdict_quarantine_a_board(farm: Farm) -> None:
    filters = {"name": "shelf-host-2", "health": "ok"}
    with farm.client() as client:
        # The limit in the shelf's utvm.yaml is two.
        for outcome in ("verdict", "infrastructure", "verdict", "infrastructure", ""):
            client.call("lease", filters=filters, wait=None)
            client.call("release", outcome=outcome)
        client.call("lease", filters=filters, wait=None)
        client.call("release", outcome="infrastructure")
        (place,) = [place for place in client.call("list")["places"] if place["place"] == "shelf-host-2"]
        assert place["tags"]["health"] == "bad"
        assert place["comment"].startswith("2 runs in a row without a verdict")
        client.call("mark", place="shelf-host-1", health="bad", comment="by hand")
    healed = farm.inv("farm.heal", "all", **farm.with_ssh)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert healed.stdout.count("1 passed") == 2  # It also requires two checks to pass.
    with farm.client() as client:
        health = {place["place"]: place["tags"]["health"] for place in client.call("list")["places"]}
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
def test_invalid_tags_are_refused(farm: Farm, words: tuple[str, ...], complaint: str) -> None:
    completed = farm.inv("hil", "--board", "host", *words)
    assert (completed.returncode, complaint in completed.stderr) == (2, True), completed.stderr


def test_dead_coordinator_is_infrastructure(farm: Farm) -> None:
    """The last test of the file: afterwards there is no farm."""
    with farm.client() as client:
        client.call("lease", filters={"name": "desk-stm32f746-1"}, wait=None)
        with farm.start("hil", "--board", "stm32f746", "--in", "farm", "--suite", "health") as run:
            until(run, " in line; held:")
            find_process("labgrid.remote.coordinator", farm.address.rpartition(":")[2]).kill()
            output, _ = run.communicate(timeout=LONG)
            assert run.returncode == 3, output
    completed = farm.inv("farm.list")
    assert (completed.returncode, "no coordinator answers at" in completed.stderr) == (3, True)
