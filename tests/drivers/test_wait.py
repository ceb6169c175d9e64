# SPDX-License-Identifier: Apache-2.0
"""Waiting for a physical board. Only the USB bus is a fake; a software model is behind the probe."""

import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.probe.fake_usb import plug_in
from utvm import boards
from utvm.base.storage import lock
from utvm.paths import ROOT
from utvm.probe.virtual import start_virtual
from utvm.selection import BoardSelection, build_record, words

_BUS = ROOT / "tests" / "hil" / "usb_bus"


def test_wait_without_a_number_is_unlimited() -> None:
    assert build_record(BoardSelection, {}).wait == 0.0
    assert build_record(BoardSelection, {"wait": "1.5"}).wait == 1.5
    unlimited = build_record(BoardSelection, {"wait": True})
    assert words(unlimited) == ["--wait=inf"]
    assert build_record(BoardSelection, {"wait": "inf"}) == unlimited


def test_waiting_names_the_holder(tmp_path: Path) -> None:
    hold = "import sys, time; from pathlib import Path; from utvm.base.storage import lock\n"
    hold += "with lock.hold('a probe', directory=Path(sys.argv[1])):\n    print(flush=True)\n    time.sleep(60)\n"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path), "hil"], stdout=subprocess.PIPE)
    assert holder.stdout and holder.stdout.readline()
    holders = list[str]()

    def end_holder(description: str) -> None:
        holders.append(description)
        holder.kill()
        holder.wait()

    with lock.hold("a probe", directory=tmp_path, patience=60.0, waiting=end_holder):
        assert len(holders) == 1
    user = pwd.getpwuid(os.getuid()).pw_name
    assert re.match(rf"held by {user}: {tmp_path} hil \(pid {holder.pid}, since \d{{4}}-", holders[0])


class Desk:
    """A board on a fake USB bus, for commands in processes of their own."""

    def __init__(self, folder: Path) -> None:
        # The lock of a physical board is shared by all users of this machine.
        self.serial = f"WAIT-{os.getpid()}"
        self._folder = folder
        known = boards.load("stm32f746")
        self.chip = start_virtual(known, folder / "chip").__enter__()
        assert self.chip.health_match
        self.board = folder / known.name
        shutil.copytree(known.directory, self.board)
        content = yaml.safe_load((self.board / "board.yaml").read_text())
        content["physical"]["select_serial"] = known.model.probe.format(port=self.chip.health_match["stlink"])
        (self.board / "board.yaml").write_text(yaml.safe_dump(content))
        plug_in(folder / "usb", "1", self.serial)

    def start(self, log: Path, *words: str) -> "subprocess.Popen[bytes]":
        selection = (f"--board={self.board}", f"--serial={self.serial}")
        with log.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "utvm", *words, *selection],
                env={**os.environ, "PYTHONPATH": f"{_BUS}:{ROOT}", "FAKE_USB": str(self._folder / "usb")},
                stdout=output,
                stderr=subprocess.STDOUT,
            )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.chip.stop()


@pytest.mark.slow
def test_waiting_command_gets_the_board(desk: Desk, tmp_path: Path) -> None:
    waiting_log, impatient_log = tmp_path / "waits.txt", tmp_path / "hurries.txt"
    suites = ("hil", "--suite=health", f"--report-dir={tmp_path / 'reports'}")
    with lock.hold(f"st-link {desk.serial}"):
        waiting = desk.start(waiting_log, *suites, "--wait")
        model = f"--model={ROOT / 'models' / 'digits' / 'digits.onnx'}"
        impatient = desk.start(impatient_log, "model.run", model)
        assert impatient.wait(200) == 3, impatient_log.read_text()
        deadline = time.monotonic() + 200
        while f"waiting for st-link {desk.serial}, held by " not in " ".join(waiting_log.read_text().split()):
            assert waiting.poll() is None and time.monotonic() < deadline, waiting_log.read_text()
            time.sleep(0.05)
    assert waiting.wait(300) == 0, waiting_log.read_text()
    assert "PASSED on a PHYSICAL stm32f746" in waiting_log.read_text()
    output = " ".join(impatient_log.read_text().split())
    user = pwd.getpwuid(os.getuid()).pw_name
    assert f"st-link {desk.serial} is busy, held by {user}: " in output
    assert f"(pid {os.getpid()}, since " in output
    assert "--wait" in output
