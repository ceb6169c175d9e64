"""``board.detect`` and ``hil`` on a fake USB bus, as a user calls them."""

from pathlib import Path

from tests.cli.running import inv
from tests.probe.fake_usb import plug_in
from utvm.toolchain import ROOT
from utvm.virtual.usb import MAKER


def _bus(folder: Path) -> dict[str, str]:
    """Return the environment in which a real and a virtual ST-Link are plugged in."""
    plug_in(folder, "1", "066BFF303430")
    plug_in(folder, "2", "066BFF303431", maker=MAKER, address=6)
    return {"FAKE_USB": str(folder), "PYTHONPATH": f"{ROOT}/tests/hil/usb_bus:{ROOT}"}


def test_a_virtual_probe_is_listed_as_one(tmp_path: Path) -> None:
    done = inv("board.detect", **_bus(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["st-link", "0483:374b", "066BFF303430", "1-1", "stm32f746"] in rows
    assert ["VIRTUAL", "st-link", "0483:374b", "066BFF303431", "1-2", "stm32f746"] in rows


def test_a_physical_board_is_not_to_be_had_of_a_virtual_probe(tmp_path: Path) -> None:
    done = inv("hil", "--board=stm32f746", "--physical", "--serial=066BFF303431", **_bus(tmp_path))
    assert done.returncode == 2
    assert "the probe 066BFF303431 is VIRTUAL: it says so itself" in done.stderr
    assert "leave out --physical" in done.stderr
