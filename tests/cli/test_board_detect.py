# SPDX-License-Identifier: Apache-2.0
"""``board.detect`` and ``hil`` on a fake USB bus, as a user calls them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.probe.fake_libusb import Bus, Port
from tests.probe.fake_usb import plug_in, use
from tests.virtual.fake_board import FakeBoard
from utvm.cli.board_show import detect_boards
from utvm.cli.output import OUT
from utvm.cli.root_doctor import examine
from utvm.paths import ROOT
from utvm.probe.usb import libusb
from utvm.virtual.console import Backlog
from utvm.virtual.usb import MAKER
from utvm.virtual.usb.probes import StLinkProbe


def _bus(folder: Path) -> dict[str, str]:
    """Return the environment in which a real and a virtual ST-Link are plugged in."""
    plug_in(folder, "1", "066BFF303430")
    plug_in(folder, "2", "066BFF303431", maker=MAKER, address=6)
    return {"FAKE_USB": str(folder), "PYTHONPATH": f"{ROOT}/tests/hil/usb_bus:{ROOT}"}


def test_a_virtual_probe_is_listed_as_one(tmp_path: Path) -> None:
    done = inv("board.detect", **_bus(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    its_boards = ["nrf52840dk,", "nucleo-h743zi,", "nucleo-l4r5zi,", "nucleo-l552ze-q,", "stm32f407,", "stm32f746"]
    # A virtual nRF5340 DK has another probe.
    with_it = [its_boards[0], "nrf5340dk,", *its_boards[1:]]
    assert ["st-link", "0483:374b", "066BFF303430", "1-1", *with_it] in rows
    assert ["VIRTUAL", "st-link", "0483:374b", "066BFF303431", "1-2", *its_boards] in rows


@pytest.fixture
def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[[Callable[[], object], float], str]:
    """Return what gives what a command prints of an ST-Link, whose board has that supply."""
    monkeypatch.setattr(OUT, "width", 200)
    use(tmp_path, monkeypatch.setattr)
    plug_in(tmp_path, "1", "066BFF303430")

    def print_with(command: Callable[[], object], volts: float) -> str:
        probe = StLinkProbe(FakeBoard(volts), serial="066BFF303430", backlog=Backlog(), type_in=lambda data: None)
        monkeypatch.setattr(libusb, "_backend", lambda: Bus(Port(probe, address=5)))
        command()
        return " ".join(capsys.readouterr().out.split())

    return print_with


@pytest.mark.parametrize("command", [detect_boards, examine])
def test_what_a_probe_says_of_itself_and_its_board_is_shown(
    shown: Callable[[Callable[[], object], float], str], command: Callable[[], object]
) -> None:
    said = shown(command, 3.3)
    assert "V2J40M27, target 3.30 V" in said and "no power" not in said
    assert "the board has no power (0.20 V): check its supply" in shown(command, 0.2)


def test_a_physical_board_is_not_to_be_had_of_a_virtual_probe(tmp_path: Path) -> None:
    done = inv("hil", "--board=stm32f746", "--physical", "--serial=066BFF303431", **_bus(tmp_path))
    assert done.returncode == 2
    assert "the probe 066BFF303431 is VIRTUAL: it says so itself" in done.stderr
    assert "leave out --physical" in done.stderr
