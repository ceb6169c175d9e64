"""Which board is taken: plugged in or virtual, and never one of another kind."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from utvm import attach as attach_room
from utvm import boards, firmware
from utvm.attach import attach, find_probe, wish
from utvm.boards import Board
from utvm.compiler import Library
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.probe.usb import Detection, Probe
from utvm.probe.virtual import start_virtual
from utvm.session import HostDriven

NUCLEO = Probe("st-link", 0x0483, 0x374B, "066BFF303430", "1-2.1", "STM32 STLink", "")
ANOTHER = dataclasses.replace(NUCLEO, serial="0670FF515056", usb_path="1-2.2")


class FakeUsbBus:
    """What is plugged in, in place of the USB bus that a test machine does not have."""

    def __init__(self, *probes: Probe, problem: str = "") -> None:
        self.detection = Detection(probes, problem)

    def __call__(self, known: object) -> Detection:
        return self.detection


Plug = Callable[..., None]


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Plug:
    return lambda *probes, problem="": monkeypatch.setattr(
        attach_room, "detect", FakeUsbBus(*probes, problem=problem)
    )


def test_a_board_that_is_plugged_in_wins(board: Board, plug: Plug) -> None:
    plug(NUCLEO)
    assert find_probe(board, "auto", "") == NUCLEO
    assert find_probe(board, "physical", "") == NUCLEO
    assert find_probe(board, "virtual", "") is None


def test_without_one_the_virtual_board_stands_in_unless_a_physical_one_is_demanded(
    board: Board, plug: Plug
) -> None:
    plug(problem="no USB stack")
    assert find_probe(board, "auto", "") is None
    with pytest.raises(ProbeError, match="no USB stack"):
        find_probe(board, "physical", "")


def test_two_boards_with_one_vendor_and_product_are_told_apart_by_serial(board: Board, plug: Plug) -> None:
    plug(NUCLEO, ANOTHER)
    assert find_probe(board, "auto", ANOTHER.serial) == ANOTHER
    with pytest.raises(ConfigError, match=f"{NUCLEO.serial}, {ANOTHER.serial}"):
        find_probe(board, "auto", "")
    with pytest.raises(ProbeError, match="there is no probe 123"):
        find_probe(board, "auto", "123")


def test_a_probe_without_readable_serial_is_not_guessed_at(board: Board, plug: Plug) -> None:
    plug(dataclasses.replace(NUCLEO, serial="", problem="you may not open it: udev rules"))
    with pytest.raises(ProbeError, match="no serial number") as caught:
        find_probe(board, "auto", "")
    assert "udev" in caught.value.hint


def test_wishes_that_exclude_each_other_are_refused(board: Board) -> None:
    with pytest.raises(ConfigError):
        wish(physical=True, virtual=True)
    with pytest.raises(ConfigError):
        find_probe(board, "virtual", "123")


def _variant(board: Board, folder: Path, change: Callable[[dict[str, Any]], None]) -> Board:
    """Return a board whose folder is a copy with some data changed."""
    target = folder / board.name
    shutil.copytree(board.directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    change(content)
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return boards.load(str(target))


def test_a_chip_of_another_kind_is_refused_before_anything_is_programmed(board: Board, tmp_path: Path) -> None:
    other = _variant(
        board, tmp_path, lambda content: content["physical"]["identity"].update(value=0x451)
    )  # STM32F76x
    with (
        pytest.raises(BoardError, match=r"is not stm32f746: DBGMCU_IDCODE says 0x449, not 0x451"),
        attach(other, "virtual", log_directory=tmp_path),
    ):
        pass


def test_a_power_cycle_starts_the_program_and_cuts_the_debugger_off_until_a_reset(
    board: Board, doubler: Library, tmp_path: Path
) -> None:
    image = firmware.build(board, [doubler])
    arena = image.symbols["utvm_arena"]
    with attach(board, "virtual", log_directory=tmp_path) as bench:
        assert bench.has_power_switch
        assert bench.console is not None
        with HostDriven(bench, image) as session:
            session.run("doubler", [np.array([1, 2, 3, 4], dtype=np.int32)])
            before = bench.read_memory(arena, 32)
            bench.console.clear()
            bench.power_cycle()
        assert bench.console.read_until(b"is up", 10.0).endswith(b"utvm: stm32f746 is up")
        with pytest.raises(BoardError):
            bench.read_memory(arena, 32)
        bench.reset(halt=True)
        after = bench.read_memory(arena, 32)
        assert not any(old == new for old, new in zip(before, after, strict=True))
        assert bench.first_difference(image) is None


def test_the_way_of_a_physical_board_with_a_model_in_place_of_the_chip(
    board: Board,
    doubler: Library,
    plug: Plug,
    tmp_path: Path,
) -> None:
    """Only the USB bus is a fake: choosing, locking, OpenOCD, programming and units go the physical way."""
    plug(NUCLEO)
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = f"st-link backend tcp {chip.health_match['stlink']}"
        on_the_desk = _variant(board, tmp_path, lambda content: content["physical"].update(select_serial=select))
        with attach(on_the_desk, "auto", log_directory=tmp_path) as bench:
            assert (bench.kind, bench.serial, bench.count_unit) == ("physical", NUCLEO.serial, "cycles")
            assert "PHYSICAL" in bench.describe()
            assert "1-2.1" in bench.describe()
            assert not bench.has_power_switch
            with pytest.raises(BoardError, match="cannot be switched from here"):
                bench.power_cycle()
            with HostDriven(bench, firmware.build(on_the_desk, [doubler])) as session:
                result = session.run("doubler", [np.array([1, 2, 3, 4], dtype=np.int32)])
            assert result.outputs[0].tolist() == [2, 4, 6, 8]
            assert result.unit == "cycles"
            with (
                pytest.raises(BoardError, match=f"{NUCLEO.serial} is busy"),
                attach(on_the_desk, "physical", log_directory=tmp_path / "second"),
            ):
                pass
