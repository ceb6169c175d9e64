# SPDX-License-Identifier: Apache-2.0
"""The table of ways: a further one, in one file, is found by every command with nothing else changed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from models.digits import quantize
from tests.cli.running import inv
from tests.probe.fake_usb import use
from tests.session.served import served
from utvm import boards
from utvm.drivers import choose, serving, table
from utvm.drivers.driver import DriverOptions
from utvm.errors import ConfigError

pytestmark = pytest.mark.slow

Inv = Callable[..., str]


def _on_shelf(folder: Path, **shelf: object) -> Path:
    """Return the folder of a board whose file knows of the further way."""
    target = folder / "shelved"
    shutil.copytree(boards.load("mps2-an500").directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    content |= {"name": "shelved", "ways": {"shelf": {"place": 3, **shelf}}}
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return target


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages in which one has the way."""
    packages = tmp_path / "packages"
    described = packages / "shelf-1.dist-info"
    described.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("shelf.py"), packages / "utvm_shelf.py")
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[utvm.ways]\nshelf = utvm_shelf:WAY\n")
    return packages


@pytest.fixture
def installed(packages: Path) -> Inv:
    """Runs a command where a package with the way is installed; returns what it said."""

    def run(*words: object, code: int = 0) -> str:
        done = inv(*map(str, words), PYTHONPATH=str(packages))
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    return run


def test_the_folder_is_the_table_and_says_who_goes_first() -> None:
    assert [way.name for way in table()] == ["usb", "model", "pyocd", "spike", "jtag", "qemu", "process"]
    reached = {name: [way.name for way in serving(boards.load(name))] for name in boards.project_names()}
    assert reached["stm32f746"] == ["usb", "model"]
    assert reached["pynq-z1"] == ["usb", "jtag", "qemu"]
    assert reached["riscv-spike"] == ["spike", "jtag", "qemu"]
    assert reached["nrf52840dk"] == ["usb", "model", "pyocd"]
    assert reached["nrf5340dk"] == ["pyocd"]
    assert reached["host"] == ["process"]


def test_one_way_of_several_can_be_named() -> None:
    board = boards.load("riscv-spike:driver=qemu")
    assert [way.name for way in serving(board)] == ["qemu"]
    assert "OpenOCD" not in choose(board, DriverOptions()).capabilities
    assert board.full_name == "riscv-spike:core=rv32,driver=qemu"
    with pytest.raises(ConfigError, match="riscv-spike: driver cannot be 'usb'") as caught:
        choose(boards.load("riscv-spike:driver=usb"), DriverOptions())
    assert caught.value.hint == "it can be: spike, jtag, qemu"
    for name, by_openocd in (("pynq-z1", True), ("pynq-z1:driver=qemu", False)):
        found = choose(boards.load(name), DriverOptions("virtual")).capabilities
        assert ("OpenOCD" in found, "accelerator vta" in found) == (by_openocd, True)
    with pytest.raises(ConfigError, match="pynq-z1 is emulated") as caught:
        choose(boards.load("pynq-z1:driver=qemu"), DriverOptions("physical"))
    assert caught.value.hint == "leave that out"


def test_who_wished_for_nothing_is_told_to_plug_it_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(tmp_path, monkeypatch.setattr)  # an empty bus
    with pytest.raises(ConfigError, match="stm32f746 can only be plugged in") as caught:
        choose(boards.load("stm32f746:driver=usb"), DriverOptions())
    assert caught.value.hint == "plug it in; ./inv board.detect shows what is found"


def test_a_way_that_is_not_installed_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"board\.yaml: ways\.shelf: there is no such way to a board") as caught:
        choose(boards.load(str(_on_shelf(tmp_path))), DriverOptions())
    assert "qemu" in caught.value.hint


def test_a_further_way_is_shown_and_reads_its_own_data(installed: Inv, tmp_path: Path) -> None:
    good, bad = _on_shelf(tmp_path / "good"), _on_shelf(tmp_path / "bad", colour="red")
    assert "on a shelf  in place 3" in installed("board.show", good)
    listed = installed("board.list", f"--board-path={good.parent}").splitlines()
    (line,) = [each for each in listed if each.strip().startswith("shelved")]
    assert "shelf, qemu" in line
    said = installed("model.run", f"--model={quantize.MODEL}", f"--board={bad}", code=2)
    assert "ways.shelf: colour: Extra inputs are not permitted" in said


def test_a_further_way_drives_suites_and_models(installed: Inv, tmp_path: Path) -> None:
    board = _on_shelf(tmp_path)
    for command, *more in (
        ("model.run",),
        ("model.run", "--standing-alone"),
        ("model.eval", "--samples=1"),
        ("model.profile", f"--output={tmp_path}"),
    ):
        said = installed(command, f"--model={quantize.MODEL}", f"--board={board}", *more)
        assert "VIRTUAL board on shelf 3" in " ".join(said.split()), command
    said = installed("hil", f"--board={board}", "--suite=health", f"--report-dir={tmp_path / 'reports'}")
    assert "VIRTUAL board on shelf 3" in said
    assert '"serial": "SHELF-3"' in (tmp_path / "reports" / "latest" / "report.json").read_text()
    boards_of_the_night = tmp_path / "nightly.yaml"
    boards_of_the_night.write_text(f"boards:\n  - {{board: {board}, suites: [health], serial: SHELF-3}}\n")
    assert "SHELF-3" in installed(
        "nightly", f"--config={boards_of_the_night}", f"--report-dir={tmp_path / 'nights'}"
    )


def test_a_further_way_is_served_to_tvm_s_own_client(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvm import rpc

    monkeypatch.setenv("PYTHONPATH", str(packages))
    with served(tmp_path, "--board", str(_on_shelf(tmp_path / "good"))) as server:
        assert "VIRTUAL board on shelf 3" in server.said()
        session = rpc.connect(server.address, server.port)
        assert json.loads(session.get_function("utvm.stats")())
        session.get_function("CloseRPCConnection")()
