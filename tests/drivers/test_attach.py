# SPDX-License-Identifier: Apache-2.0
"""Choosing a board: plugged in or virtual, and never one of another kind."""

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import yaml

from utvm import boards, drivers, firmware
from utvm.boards import Board
from utvm.cli import choices
from utvm.cli.model_run import run_model
from utvm.compiler import Library
from utvm.drivers import Connection, attach
from utvm.errors import BoardError, ProbeError
from utvm.paths import ROOT
from utvm.probe import choice
from utvm.probe.usb import Detection, Probe, sysfs
from utvm.probe.virtual import start_virtual
from utvm.selection import BoardSelection
from utvm.session import HostDriven

# A real probe is locked for the whole machine: tests of other checkouts have another serial number.
SERIAL = f"066A{os.getpid():08X}"
NUCLEO = Probe("st-link", 0x0483, 0x374B, SERIAL, "1-2.1", 1, 5, "STM32 STLink", False, "")


Plug = Callable[..., None]


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plug:
    """Plug a probe into a fake bus, for machines without a real one."""

    def put(probe: Probe) -> None:
        monkeypatch.setattr(choice, "detect", lambda known: Detection((probe,), ""))
        monkeypatch.setattr(sysfs, "DEVICES", tmp_path)
        (tmp_path / probe.usb_path).mkdir()
        (tmp_path / probe.usb_path / "devnum").write_text(f"{probe.address}\n")

    return put


def _variant(board: Board, folder: Path, change: Callable[[dict[str, Any]], None]) -> Board:
    """Return a copy of a board with some data changed."""
    target = folder / board.name
    shutil.copytree(board.directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    change(content)
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return boards.load(str(target))


def test_wrong_chip_is_refused_before_flashing(board: Board, tmp_path: Path) -> None:
    other = _variant(board, tmp_path, lambda content: content["physical"]["identity"].update(value=0x451))  # STM32F76x
    with (
        pytest.raises(BoardError, match=r"is not stm32f746: DBGMCU_IDCODE reads 0x449, not 0x451"),
        attach(other, "virtual", log_directory=tmp_path),
    ):
        pass


@pytest.mark.slow
def test_power_cycle_restarts_and_disconnects_the_debugger(board: Board, doubler: Library, tmp_path: Path) -> None:
    image = firmware.build(board, [doubler])
    arena = image.symbols["utvm_arena"]
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        assert connection.has_power_switch
        assert connection.console is not None
        with HostDriven(connection, image) as session:
            session.run("doubler", [np.array([1, 2, 3, 4], dtype=np.int32)])
            before = connection.read_memory(arena, 32)
            connection.console.clear()
            connection.power_cycle()
        assert connection.console.read_until(b"is up", 10.0).endswith(b"utvm: stm32f746 is up")
        with pytest.raises(BoardError):
            connection.read_memory(arena, 32)
        connection.reset(halt=True)
        after = connection.read_memory(arena, 32)
        assert not any(old == new for old, new in zip(before, after, strict=True))
        assert connection.first_difference(image) is None


@pytest.mark.slow
def test_cycles_of_a_chip_are_compared_with_the_model(
    board: Board, plug: Plug, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chip is a virtual board that counts instructions, on a fake bus."""
    plug(NUCLEO)
    monkeypatch.chdir(tmp_path)
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = f"st-link backend tcp {chip.health_match['stlink']}"
        on_the_desk = _variant(board, tmp_path, lambda content: content["physical"].update(select_serial=select))
        selection = BoardSelection(f"{on_the_desk.directory}:cycles=model", "physical")
        run_model(choices.RunChoice(model=str(ROOT / "models" / "digits" / "digits_int8.tflite")), selection, "", False)
    text = capsys.readouterr().out
    (row,) = map(json.loads, (tmp_path / "build" / "silicon.jsonl").read_text().splitlines())
    assert row["clock_hz"] == 216_000_000
    error = 100 * (row["modelled_cycles"] / row["cycles"] - 1)
    assert f"modelled: {row['modelled_cycles']:,} cycles, {error:+.1f} % (docs/time.md)" in text
    assert f"{row['cycles'] / 216_000:.3f} ms at 216 MHz" in text


@pytest.mark.slow
def test_physical_path_with_a_model_as_the_chip(board: Board, doubler: Library, plug: Plug, tmp_path: Path) -> None:
    """Only the USB bus is a fake: choosing, locking, OpenOCD, flashing and units are those of a physical board."""
    plug(NUCLEO)
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = f"st-link backend tcp {chip.health_match['stlink']}"
        on_the_desk = _variant(board, tmp_path, lambda content: content["physical"].update(select_serial=select))
        with attach(on_the_desk, "auto", log_directory=tmp_path) as connection:
            assert (connection.kind, connection.serial, connection.count_unit) == (
                "physical",
                NUCLEO.serial_number,
                "cycles",
            )
            assert "PHYSICAL" in connection.describe()
            assert "1-2.1" in connection.describe()
            assert not connection.has_power_switch
            with pytest.raises(BoardError, match="cannot be switched from here"):
                connection.power_cycle()
            with HostDriven(connection, firmware.build(on_the_desk, [doubler])) as session:
                result = session.run("doubler", [np.array([1, 2, 3, 4], dtype=np.int32)])
            assert result.outputs[0].tolist() == [2, 4, 6, 8]
            assert result.unit == "cycles"
            with (
                pytest.raises(BoardError, match=f"{NUCLEO.serial_number} is busy"),
                attach(on_the_desk, "physical", log_directory=tmp_path / "second"),
            ):
                pass


@pytest.mark.slow
@pytest.mark.parametrize("kind, product, has_console", [("st-link", 0x374B, True), ("cmsis-dap", 0x0204, False)])
def test_virtual_board_on_usb_is_not_physical(
    board: Board, doubler: Library, plug: Plug, tmp_path: Path, kind: str, product: int, has_console: bool
) -> None:
    """It has a real probe's USB ids and serial number; OpenOCD reaches the model over TCP, not over USB."""
    vendor = 0x0483 if kind == "st-link" else 0x0D28
    probe = dataclasses.replace(NUCLEO, kind=kind, vendor=vendor, product=product, virtual=True)
    plug(probe)
    with start_virtual(board, tmp_path / "chip") as chip:
        assert chip.health_match
        select = board.model.probe.format(port=chip.health_match["stlink"])
        variant = _variant(board, tmp_path, lambda content: content["physical"].update(select_serial=select))
        # There is no CMSIS-DAP over TCP: the message that each file prints shows which one was read.
        interface = "source [find interface/stlink-dap.cfg]\ntransport select dapdirect_swd\n"
        target = "source [find target/stm32f7x.cfg]\nreset_config srst_only srst_nogate\necho {read: %s}\n"
        for file in variant.openocd_configs:
            file.write_text(interface + target % file.name)
        with attach(variant, "auto", serial=probe.serial_number, log_directory=tmp_path) as connection:
            assert (connection.kind, connection.serial, connection.count_unit) == (
                "virtual",
                probe.serial_number,
                "instructions",
            )
            assert connection.describe() == (
                f"stm32f746: VIRTUAL board, a software model, virtual {kind} at USB 1-2.1, serial {SERIAL}"
            )
            assert not connection.has_power_switch
            assert ("console" in connection.capabilities) == has_console
            with HostDriven(connection, firmware.build(variant, [doubler])) as session:
                assert session.run("doubler", [np.array([1, 2, 3, 4], dtype=np.int32)]).unit == "instructions"
            (tmp_path / probe.usb_path / "devnum").write_text("6\n")
            with pytest.raises(ProbeError, match="was unplugged and plugged in again"):
                connection.check()
    script = "openocd.cfg" if kind == "st-link" else "openocd-cmsis-dap.cfg"
    assert f"read: {script}" in (tmp_path / "openocd.log").read_text()


@pytest.mark.slow
def test_refused_flash_write_is_repeated(
    board: Board, doubler: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """OpenOCD refuses a write if the clock is set by an hour while it waits."""
    refusals: list[str] = ["vFlashDone", "vFlashDone, again", ""]

    def refuse(real: Callable[..., None], segments: Any) -> None:
        if refusal := refusals.pop(0):
            raise BoardError(f"flash programming failed ({refusal})", "see OpenOCD's log")
        real(segments)

    with attach(board, "virtual", log_directory=tmp_path) as connection:
        monkeypatch.setattr(connection._port, "program", functools.partial(refuse, connection._port.program))
        image = firmware.build(board, [doubler])
        with pytest.raises(BoardError, match="again"):
            connection.program(image)
        refusals[:0] = ["vFlashDone"]
        connection.program(image)
        assert (connection.first_difference(image), refusals) == (None, [])


def test_any_driver_names_unmodelled_peripherals(tmp_path: Path) -> None:
    (tmp_path / "virtual.log").write_text(
        "WARNING touched DAC at 0x40007400 from PC 0x08000100, which is not modelled\n"
    )
    messages: list[str] = []
    board = boards.load("nrf52840dk:driver=pyocd")
    identity = drivers.BoardIdentity(board.full_name, "virtual")
    reachable = drivers.ReachableBoard(board, identity, frozenset(), "pyocd", lambda setup: cast(Connection, None))
    with reachable.open(tmp_path, messages.append):
        pass
    assert messages == [
        "the firmware uses peripherals that the virtual board does not model: DAC at 0x40007400 from PC 0x08000100"
    ]


@pytest.mark.slow
def test_pins_are_those_of_a_virtual_board(tmp_path: Path) -> None:
    with attach(boards.load("stm32f407"), "virtual", log_directory=tmp_path) as connection:
        connection.reset(halt=True)
        button = connection.pin("PA0")
        button.drive(True)
        assert (button.level, [edge.level for edge in button.edges()]) == (True, [True])
    with (
        attach(boards.load("mps2-an385"), log_directory=tmp_path) as emulator,
        pytest.raises(BoardError, match="mps2-an385 has no accessible pins") as refusal,
    ):
        emulator.pin("PA0")
    assert refusal.value.hint == 'mark the test with needs("pins")'
