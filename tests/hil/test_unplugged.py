# SPDX-License-Identifier: Apache-2.0
"""A probe that is unplugged while suites run: the run has no verdict, and the next one works.

Only the bus is a fake, a folder (``usb_bus``): the real OpenOCD drives a software model over TCP.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.hil.running import FinishedRun, Runner
from tests.portions import by_day
from tests.probe.fake_usb import REAL_MAKER, plug_in
from utvm import boards
from utvm.probe.virtual import start_virtual
from utvm.virtual.usb import MAKER

pytestmark = pytest.mark.slow

# The action changes the bus in the middle of a test, which then uses the board.
_SUITE = """
import os, signal
from pathlib import Path
from tests.probe.fake_usb import plug_in, unplug

BUS = Path(os.environ["FAKE_USB"])

def test_before(board):
    board.read_memory(0x20000000, 4)

def test_during(board):
    {action}
    board.read_memory(0x20000000, 4)
    assert False, "noticed by the test only"

def test_after(board):
    board.read_memory(0x20000000, 4)
"""


class Desk:
    """A board on a fake USB bus."""

    def __init__(self, run_suite: Runner, folder: Path) -> None:
        self._run_suite = run_suite
        self.bus = folder / "usb"
        # The lock of a physical board is shared by all users of this machine.
        self.serial = f"UNPLUGGED-{os.getpid()}"
        known = boards.load("stm32f746")
        self._chip = start_virtual(known, folder / "chip").__enter__()
        assert self._chip.health_match
        self._board = folder / known.name
        shutil.copytree(known.directory, self._board)
        content = yaml.safe_load((self._board / "board.yaml").read_text())
        content["physical"]["select_serial"] = known.model.probe.format(port=self._chip.health_match["stlink"])
        (self._board / "board.yaml").write_text(yaml.safe_dump(content))

    def run(self, action: str) -> FinishedRun:
        filled = action.format(serial=self.serial, chip=self._chip.pid)
        options = (f"--board={self._board}", f"--serial={self.serial}")
        return self._run_suite(_SUITE.format(action=filled), options=options, fake=False, usb=self.bus)

    def close(self) -> None:
        self._chip.stop()


@pytest.fixture
def desk(run_suite: Runner, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(run_suite, tmp_path)
    yield desk
    desk.close()


def test_lost_probe_stops_the_run(desk: Desk) -> None:
    plug_in(desk.bus, "1", desk.serial, maker=MAKER)
    completed = desk.run('unplug(BUS, "1"); os.kill({chip}, signal.SIGKILL)')
    assert completed.exit_code == 3, completed.stdout + completed.stderr
    assert "VIRTUAL stm32f746" in completed.lines[0]
    assert completed.report["board"]["kind"] == "virtual"
    assert completed.outcomes == {"test_before": "passed", "test_during": "infrastructure", "test_after": "not run"}
    gone = f"the probe {desk.serial} at USB 1-1 is gone from USB"
    assert completed.messages["test_during"].startswith(gone)
    assert f"the run stops: there is no probe {desk.serial}" in completed.messages["test_during"]
    assert gone in completed.lines[-1]
    assert completed.report["verdict"] == "infrastructure"


@pytest.mark.parametrize(
    "maker, kind", by_day([(MAKER, "virtual"), (REAL_MAKER, "physical")], (REAL_MAKER, "physical"))
)
def test_returning_board_is_attached_again(desk: Desk, maker: str, kind: str) -> None:
    plug_in(desk.bus, "1", desk.serial, maker=maker, address=5)
    completed = desk.run(f'plug_in(BUS, "1", "{{serial}}", maker="{maker}", address=6)')
    assert completed.exit_code == 3, completed.stdout + completed.stderr
    assert completed.outcomes == {"test_before": "passed", "test_during": "infrastructure", "test_after": "passed"}
    assert "was unplugged and plugged in again" in completed.messages["test_during"]
    assert "attached again" in completed.messages["test_during"]
    assert completed.report["board"]["kind"] == kind
    again = desk.run("return")
    assert (again.exit_code, again.report["verdict"]) == (0, "passed")
    assert again.lines[-1].startswith(f"PASSED on a {kind.upper()} stm32f746: 3 passed")


def test_different_probe_at_the_same_port_is_refused(desk: Desk) -> None:
    plug_in(desk.bus, "1", desk.serial, maker=REAL_MAKER, address=5)
    completed = desk.run(f'plug_in(BUS, "1", "{{serial}}", maker="{MAKER}", address=6)')
    assert completed.exit_code == 3
    assert completed.outcomes["test_after"] == "not run"
    assert "is VIRTUAL: it says so itself" in completed.messages["test_during"]
    assert completed.report["board"]["kind"] == "physical"
