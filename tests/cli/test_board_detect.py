# SPDX-License-Identifier: Apache-2.0
"""``board.detect`` and ``hil`` on a fake USB bus."""

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
    """Plug in a real and a virtual ST-Link; return the environment that shows them."""
    plug_in(folder, "1", "066BFF303430")
    plug_in(folder, "2", "066BFF303431", maker=MAKER, address=6)
    return {"FAKE_USB": str(folder), "PYTHONPATH": f"{ROOT}/tests/hil/usb_bus:{ROOT}"}


@pytest.mark.slow
def test_virtual_probe_is_listed_as_virtual(tmp_path: Path) -> None:
    completed = inv("board.detect", **_bus(tmp_path))
    assert completed.returncode == 0, completed.stderr
    rows = [line.split() for line in completed.stdout.splitlines()]
    boards = ["nrf52840dk,", "nucleo-h743zi,", "nucleo-l4r5zi,", "nucleo-l552ze-q,", "stm32f407,", "stm32f746"]
    # A virtual nRF5340 DK has another probe.
    with_nrf5340dk = [boards[0], "nrf5340dk,", *boards[1:]]
    assert ["st-link", "0483:374b", "066BFF303430", "1-1", *with_nrf5340dk] in rows
    assert ["VIRTUAL", "st-link", "0483:374b", "066BFF303431", "1-2", *boards] in rows


@pytest.fixture
def print_with_probe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[[Callable[[], object], float], str]:
    """Return a function that prints a command's output with an ST-Link at this supply voltage."""
    monkeypatch.setattr(OUT, "width", 200)
    use(tmp_path, monkeypatch.setattr)
    plug_in(tmp_path, "1", "066BFF303430")

    def print_with(command: Callable[[], object], volts: float) -> str:
        probe = StLinkProbe(FakeBoard(volts), serial="066BFF303430", backlog=Backlog(), type_in=lambda data: None)
        monkeypatch.setattr(libusb, "_backend", lambda: Bus(Port(probe, address=5)))
        command()
        return " ".join(capsys.readouterr().out.split())

    return print_with


@pytest.mark.slow
@pytest.mark.parametrize("command", [detect_boards, examine])
def test_version_and_voltage_are_shown(
    print_with_probe: Callable[[Callable[[], object], float], str], command: Callable[[], object]
) -> None:
    output = print_with_probe(command, 3.3)
    assert "V2J40M27, target 3.30 V" in output and "no power" not in output
    assert "the board has no power (0.20 V): check its supply" in print_with_probe(command, 0.2)


@pytest.mark.slow
def test_virtual_probe_has_no_physical_board(tmp_path: Path) -> None:
    completed = inv("hil", "--board=stm32f746", "--physical", "--serial=066BFF303431", **_bus(tmp_path))
    assert completed.returncode == 2
    assert "the probe 066BFF303431 is VIRTUAL: it says so itself" in completed.stderr
    assert "leave out --physical" in completed.stderr
