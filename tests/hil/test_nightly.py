# SPDX-License-Identifier: Apache-2.0
"""Nightly runs from the command line: virtual boards, and a fake USB bus."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import yaml

from tests.probe.fake_usb import plug_in
from tests.processes import has_ended
from utvm import boards
from utvm.hil.nightly import count_parallel_jobs
from utvm.paths import ROOT
from utvm.probe.virtual import start_virtual

pytestmark = pytest.mark.slow

_SCHEMA = json.loads((ROOT / "docs" / "nightly.schema.json").read_text())
_USB_BUS = Path(__file__).parent / "usb_bus"


class Night:
    """A nightly run in a folder of its own."""

    def __init__(self, folder: Path, *entries: dict[str, object], jobs: int = 2, plugged: str = "") -> None:
        self.reports = folder / "reports"
        config = folder / "nightly.yaml"
        config.write_text(yaml.safe_dump({"boards": list(entries)}))
        bus = folder / "usb"
        if plugged:
            plug_in(bus, "1", plugged)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "utvm", "nightly", f"--config={config}"),
                *(f"--report-dir={self.reports}", f"--jobs={jobs}"),
            ],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{_USB_BUS}:{ROOT}", "FAKE_USB": str(bus)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self) -> "Night":
        self.stdout, _ = self.process.communicate(timeout=600)
        return self

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.reports / "latest" / "nightly.json").read_text())
        jsonschema.validate(content, _SCHEMA)
        return content

    @property
    def boards(self) -> dict[str, dict[str, Any]]:
        return {entry["label"]: entry for entry in self.content["boards"]}

    def wait_for_qemu(self) -> list[int]:
        """Wait until QEMU runs for its suites, and return the processes of the run."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.wait().stdout
            children = psutil.Process(self.process.pid).children(recursive=True)
            if list(self.reports.glob("logs/*/mps2-an500-virtual/suites/logs/*/attached-1/qemu.log")):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if any(child.name().startswith("qemu") for child in children):
                        return [child.pid for child in children]
            time.sleep(0.05)
        raise AssertionError("the suites do not begin")


def _copy(name: str, folder: Path, **changes: Any) -> str:
    """Copy a board's folder with changed data; return its path for a list of boards."""
    target = folder / "boards" / name
    shutil.copytree(boards.load(name).directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return str(target)


def test_working_boards_pass_in_one_report(tmp_path: Path) -> None:
    night = Night(
        tmp_path,
        {"board": "host", "suites": ["health"]},
        {"board": "mps2-an500", "kind": "virtual", "suites": ["health", "debug"]},
    ).wait()
    assert night.process.returncode == 0, night.stdout
    assert night.lines[0].startswith("nightly run 2")
    assert sum("passed" in line and line.startswith("[") for line in night.lines) == 2
    assert night.lines[-1] == "PASSED: 2 boards, 2 passed; exit code 0"
    host, emulated = night.boards["host"], night.boards["mps2-an500-virtual"]
    assert (host["kind"], emulated["kind"]) == ("process", "virtual")
    zeros = dict.fromkeys(("failed", "skipped", "not run", "error", "infrastructure"), 0)
    assert host["counts"] == {"passed": 1, **zeros}
    for entry in (host, emulated):
        board_report = json.loads((night.reports / "latest" / entry["report"]).read_text())
        assert board_report["verdict"] == entry["verdict"] == "passed"
        assert sum(test["outcome"] == "passed" for test in board_report["tests"]) == entry["counts"]["passed"]
    tested = {test["node"].split("::")[0].rpartition("/")[2] for test in board_report["tests"]}
    assert tested == {"test_health.py", "test_debug.py"}


def test_failure_on_one_board_fails_the_night(tmp_path: Path) -> None:
    suite = tmp_path / "test_fails.py"
    suite.write_text("def test_it(board):\n    assert 6 * 7 == 41\n")
    night = Night(
        tmp_path, {"board": "mps2-an385", "suites": [str(suite)]}, {"board": "host", "suites": ["health"]}
    ).wait()
    assert night.process.returncode == 1, night.stdout
    assert {label: entry["verdict"] for label, entry in night.boards.items()} == {
        "mps2-an385": "failed",
        "host": "passed",
    }
    assert "test_fails.py" in night.boards["mps2-an385"]["reason"]


def test_silent_physical_board_is_bad_and_others_go_on(tmp_path: Path, serial: str) -> None:
    """One probe is on the fake bus, where the real OpenOCD finds nothing; the other is not on the bus."""
    night = Night(
        tmp_path,
        {"board": "stm32f746", "kind": "physical", "serial": serial},
        {"board": "stm32f746", "serial": "0670FF"},
        {"board": "host", "suites": ["health"]},
        plugged=serial,
    ).wait()
    assert night.process.returncode == 3, night.stdout
    silent, absent = night.boards[f"stm32f746-{serial}"], night.boards["stm32f746-0670FF"]
    assert (silent["verdict"], silent["kind"], silent["suites_s"]) == ("bad", "physical", 0)
    assert silent["reason"].startswith("health check: ")
    assert "OpenOCD" in silent["reason"]
    assert absent["verdict"] == "bad"
    assert absent["reason"].startswith("health check: there is no probe 0670FF")
    assert night.boards["host"]["verdict"] == "passed"
    assert night.lines[-1] == (
        "NO VERDICT (infrastructure trouble): 3 boards, 1 passed, 2 bad "
        f"(stm32f746-{serial} bad, stm32f746-0670FF bad); exit code 3"
    )


@pytest.fixture
def serial(request: pytest.FixtureRequest) -> str:
    """A serial number of no probe on this machine: physical boards are locked for all of its users."""
    return f"{os.getpid()}-{abs(hash(request.node.name)):X}"


@pytest.fixture
def physical_board(tmp_path: Path) -> Iterator[str]:
    """A board whose chip is a software model: all but the chip and the USB bus is as for a physical board."""
    board = boards.load("stm32f746")
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = f"st-link backend tcp {chip.health_match['stlink']}"
        yield _copy("stm32f746", tmp_path, physical={"select_serial": select})


def test_working_physical_board_runs_its_suites(tmp_path: Path, physical_board: str, serial: str) -> None:
    night = Night(tmp_path, {"board": physical_board, "suites": ["health"]}, plugged=serial).wait()
    assert night.process.returncode == 0, night.stdout
    entry = night.boards["stm32f746"]
    assert (entry["kind"], entry["serial"], entry["verdict"]) == ("physical", serial, "passed")
    assert "passed PHYSICAL stm32f746" in night.stdout


@pytest.mark.nightly  # the daily test has a silent board
def test_physical_board_of_another_kind_is_bad(tmp_path: Path, physical_board: str, serial: str) -> None:
    file = Path(physical_board) / "board.yaml"
    content = yaml.safe_load(file.read_text())
    content["physical"]["identity"]["value"] = 0x451
    file.write_text(yaml.safe_dump(content))
    night = Night(tmp_path, {"board": physical_board, "kind": "physical"}, plugged=serial).wait()
    assert night.process.returncode == 3
    assert "is not stm32f746: DBGMCU_IDCODE reads 0x449, not 0x451" in night.boards["stm32f746-physical"]["reason"]


def test_slow_board_is_ended_and_others_go_on(tmp_path: Path) -> None:
    night = Night(
        tmp_path, {"board": "mps2-an500", "minutes": 0.001, "kind": "virtual"}, {"board": "host", "suites": ["health"]}
    ).wait()
    assert night.process.returncode == 3
    assert night.boards["mps2-an500-virtual"]["verdict"] == "bad"
    assert "took longer than 0.001 minutes" in night.boards["mps2-an500-virtual"]["reason"]
    assert night.boards["host"]["verdict"] == "passed"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)])
def test_interrupt_ends_all_runs_and_keeps_reports(tmp_path: Path, number: signal.Signals) -> None:
    night = Night(
        tmp_path,
        {"board": "host", "suites": ["health"]},
        {"board": "mps2-an500", "kind": "virtual"},
        {"board": "stm32f746", "kind": "virtual"},
        jobs=1,
    )
    try:
        started = night.wait_for_qemu()
        night.process.send_signal(number)
        night.wait()
    finally:
        night.process.kill()
    assert night.process.returncode == 3, night.stdout
    assert len(started) >= 2
    assert all(has_ended(pid) for pid in started)
    assert night.content["verdict"] == "interrupted"
    assert {label: entry["verdict"] for label, entry in night.boards.items()} == {
        "host": "passed",
        "mps2-an500-virtual": "interrupted",
        "stm32f746-virtual": "not run",
    }
    assert (night.reports / "latest" / "host" / "index.html").is_file()
    board_report = json.loads((night.reports / "latest" / "mps2-an500-virtual" / "report.json").read_text())
    assert board_report["verdict"] == "interrupted"
    assert "stm32f746-virtual not run" in night.lines[-1]


@pytest.mark.nightly  # the daily test interrupts a run
def test_killed_run_leaves_no_processes(tmp_path: Path) -> None:
    night = Night(tmp_path, {"board": "host", "suites": ["health"]}, {"board": "mps2-an500", "kind": "virtual"}, jobs=1)
    started = night.wait_for_qemu()
    night.process.kill()
    night.wait()
    assert len(started) >= 2
    assert all(has_ended(pid) for pid in started)
    # Completed boards have their reports.
    assert list(night.reports.glob("logs/*/host/suites/reports/latest/report.json"))


@pytest.mark.nightly
@pytest.mark.parametrize("jobs", [1, 2])
def test_number_of_parallel_boards_is_limited(tmp_path: Path, jobs: int) -> None:
    """The maximum is observed from outside; it does not depend on the speed of the machine."""
    copies = [_copy("host", tmp_path / str(number)) for number in range(2)]
    for number, path in enumerate(copies):
        new = Path(path).rename(Path(path).with_name(f"host{number}"))
        (new / "board.yaml").write_text((new / "board.yaml").read_text().replace("name: host", f"name: host{number}"))
        copies[number] = str(new)
    night = Night(tmp_path, *({"board": name, "suites": ["health"]} for name in ("host", *copies)), jobs=jobs)
    maximum = 0
    while night.process.poll() is None:
        running = 0
        for child in psutil.Process(night.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                running += child.status() != psutil.STATUS_ZOMBIE
        maximum = max(maximum, running)
        time.sleep(0.05)
    assert night.wait().process.returncode == 0, night.stdout
    assert maximum == jobs


def test_default_is_at_most_one_board_a_core() -> None:
    assert 1 <= count_parallel_jobs() <= len(os.sched_getaffinity(0))
