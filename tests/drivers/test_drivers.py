# SPDX-License-Identifier: Apache-2.0
"""The table of drivers: every command finds another one, in one file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from models.digits import quantize
from tests.cli.running import inv
from tests.probe.fake_usb import use
from tests.session.board_server import serve_board
from utvm import boards
from utvm.drivers import all_drivers, choose, drivers_for
from utvm.errors import ConfigError
from utvm.selection import BoardSelection

pytestmark = pytest.mark.slow

Inv = Callable[..., str]


def _shelf_board(folder: Path, **shelf: object) -> Path:
    """Create a board whose file has settings of the driver ``shelf``."""
    target = folder / "shelved"
    shutil.copytree(boards.load("mps2-an500").directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    content |= {"name": "shelved", "drivers": {"shelf": {"place": 3, **shelf}}}
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return target


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages, one of which has the driver."""
    packages = tmp_path / "packages"
    metadata = packages / "shelf-1.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("shelf.py"), packages / "utvm_shelf.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[utvm.drivers]\nshelf = utvm_shelf:DRIVER\n")
    return packages


@pytest.fixture
def inv_with_driver(packages: Path) -> Inv:
    """Returns a function that runs a command with the driver's package and returns its output."""

    def run(*words: object, code: int = 0) -> str:
        completed = inv(*map(str, words), PYTHONPATH=str(packages))
        output = completed.stdout + completed.stderr
        assert completed.returncode == code, output
        return output

    return run


def test_drivers_are_tried_by_rank() -> None:
    assert [driver.name for driver in all_drivers()] == ["usb", "model", "pyocd", "spike", "jtag", "qemu", "process"]
    reached = {name: [driver.name for driver in drivers_for(boards.load(name))] for name in boards.project_names()}
    assert reached["stm32f746"] == ["usb", "model"]
    assert reached["pynq-z1"] == ["usb", "jtag", "qemu"]
    assert reached["riscv-spike"] == ["spike", "jtag", "qemu"]
    assert reached["nrf52840dk"] == ["usb", "model", "pyocd"]
    assert reached["nrf5340dk"] == ["pyocd"]
    assert reached["host"] == ["process"]


def test_driver_setting_selects_one_driver() -> None:
    board = boards.load("riscv-spike:driver=qemu")
    assert [driver.name for driver in drivers_for(board)] == ["qemu"]
    assert "OpenOCD" not in choose(board, BoardSelection()).capabilities
    assert board.full_name == "riscv-spike:core=rv32,driver=qemu"
    with pytest.raises(ConfigError, match="riscv-spike: driver cannot be 'usb'") as caught:
        choose(boards.load("riscv-spike:driver=usb"), BoardSelection())
    assert caught.value.hint == "choose from: spike, jtag, qemu"
    for name, by_openocd in (("pynq-z1", True), ("pynq-z1:driver=qemu", False)):
        capabilities = choose(boards.load(name), BoardSelection(kind="virtual")).capabilities
        assert ("OpenOCD" in capabilities, "accelerator vta" in capabilities) == (by_openocd, True)
    with pytest.raises(ConfigError, match="pynq-z1 is emulated") as caught:
        choose(boards.load("pynq-z1:driver=qemu"), BoardSelection(kind="physical"))
    assert caught.value.hint == "leave that out"


def test_hint_without_a_probe_is_to_plug_it_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(tmp_path, monkeypatch.setattr)  # an empty bus
    with pytest.raises(ConfigError, match="stm32f746 can only be plugged in") as caught:
        choose(boards.load("stm32f746:driver=usb"), BoardSelection())
    assert caught.value.hint == "plug it in; ./inv board.detect lists probes"


def test_driver_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"board\.yaml: drivers\.shelf: no such driver") as caught:
        choose(boards.load(str(_shelf_board(tmp_path))), BoardSelection())
    assert "qemu" in caught.value.hint


def test_another_driver_is_shown_and_reads_its_own_data(inv_with_driver: Inv, tmp_path: Path) -> None:
    valid, invalid = _shelf_board(tmp_path / "good"), _shelf_board(tmp_path / "bad", colour="red")
    assert "on a shelf  in place 3" in inv_with_driver("board.show", valid)
    listed = inv_with_driver("board.list", f"--board-path={valid.parent}").splitlines()
    (line,) = [row for row in listed if row.strip().startswith("shelved")]
    assert "shelf, qemu" in line
    output = inv_with_driver("model.run", f"--model={quantize.MODEL}", f"--board={invalid}", code=2)
    assert "drivers.shelf: colour: Extra inputs are not permitted" in output


def test_another_driver_drives_suites_and_models(inv_with_driver: Inv, tmp_path: Path) -> None:
    board = _shelf_board(tmp_path)
    for command, *options in (
        ("model.run",),
        ("model.run", "--standing-alone"),
        ("model.eval", "--samples=1"),
        ("model.profile", f"--output={tmp_path}"),
    ):
        output = inv_with_driver(command, f"--model={quantize.MODEL}", f"--board={board}", *options)
        assert "VIRTUAL board on shelf 3" in " ".join(output.split()), command
    output = inv_with_driver("hil", f"--board={board}", "--suite=health", f"--report-dir={tmp_path / 'reports'}")
    assert "VIRTUAL board on shelf 3" in output
    assert '"serial": "SHELF-3"' in (tmp_path / "reports" / "latest" / "report.json").read_text()
    nightly_list = tmp_path / "nightly.yaml"
    nightly_list.write_text(f"boards:\n  - {{board: {board}, suites: [health], serial: SHELF-3}}\n")
    assert "SHELF-3" in inv_with_driver("nightly", f"--config={nightly_list}", f"--report-dir={tmp_path / 'nights'}")


def test_tvm_client_uses_another_driver(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm import rpc

    monkeypatch.setenv("PYTHONPATH", str(packages))
    with serve_board(tmp_path, "--board", str(_shelf_board(tmp_path / "good"))) as server:
        assert "VIRTUAL board on shelf 3" in server.output()
        session = rpc.connect(server.address, server.port)
        assert json.loads(session.get_function("utvm.stats")())
        session.get_function("CloseRPCConnection")()
