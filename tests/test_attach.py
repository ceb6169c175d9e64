"""Which board is taken: plugged in or virtual, and never one of another kind."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from utvm import attach as attach_room
from utvm import boards
from utvm.attach import attach, find_probe, wish
from utvm.boards import Board
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.probe.usb import Detection, Probe

NUCLEO = Probe("st-link", 0x0483, 0x374B, "066BFF303430", "1-2.1", "STM32 STLink", "")
ANOTHER = dataclasses.replace(NUCLEO, serial="0670FF515056", usb_path="1-2.2")


class FakeUsbBus:
    """What is plugged in, in place of the USB bus that a test machine does not have."""

    def __init__(self, *probes: Probe, problem: str = "") -> None:
        self.detection = Detection(probes, problem)

    def __call__(self, known: object) -> Detection:
        return self.detection


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> object:
    return lambda *probes, problem="": monkeypatch.setattr(
        attach_room, "detect", FakeUsbBus(*probes, problem=problem)
    )


def test_a_board_that_is_plugged_in_wins(board: Board, plug) -> None:  # type: ignore[no-untyped-def]
    plug(NUCLEO)
    assert find_probe(board, "auto", "") == NUCLEO
    assert find_probe(board, "physical", "") == NUCLEO
    assert find_probe(board, "virtual", "") is None


def test_without_one_the_virtual_board_stands_in_unless_a_physical_one_is_demanded(board: Board, plug) -> None:  # type: ignore[no-untyped-def]
    plug(problem="no USB stack")
    assert find_probe(board, "auto", "") is None
    with pytest.raises(ProbeError, match="no USB stack"):
        find_probe(board, "physical", "")


def test_two_boards_with_one_vendor_and_product_are_told_apart_by_serial(board: Board, plug) -> None:  # type: ignore[no-untyped-def]
    plug(NUCLEO, ANOTHER)
    assert find_probe(board, "auto", ANOTHER.serial) == ANOTHER
    with pytest.raises(ConfigError, match=f"{NUCLEO.serial}, {ANOTHER.serial}"):
        find_probe(board, "auto", "")
    with pytest.raises(ProbeError, match="there is no probe 123"):
        find_probe(board, "auto", "123")


def test_wishes_that_exclude_each_other_are_refused(board: Board) -> None:
    with pytest.raises(ConfigError):
        wish(physical=True, virtual=True)
    with pytest.raises(ConfigError):
        find_probe(board, "virtual", "123")


def test_a_chip_of_another_kind_is_refused_before_anything_is_programmed(board: Board, tmp_path: Path) -> None:
    folder = tmp_path / "board" / board.name
    folder.mkdir(parents=True)
    for path in (board.openocd_config, board.port_source):
        (folder / path.name).write_bytes(path.read_bytes())
    content = yaml.safe_load((board.directory / "board.yaml").read_text())
    content["identity"]["value"] = 0x451  # STM32F76x and STM32F77x
    (folder / "board.yaml").write_text(yaml.safe_dump(content))
    with (
        pytest.raises(BoardError, match=r"is not stm32f746: DBGMCU_IDCODE says 0x449, not 0x451"),
        attach(boards.load(str(folder)), "virtual", log_directory=tmp_path),
    ):
        pass
