# SPDX-License-Identifier: Apache-2.0
"""The real pyOCD drives virtual boards; only the USB connection to the probe's model is a socket."""

import json
import os
import random
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

from tests.cli.running import inv
from utvm import boards, firmware
from utvm.boards import Board
from utvm.boards.described import pyocd
from utvm.compiler import Library
from utvm.drivers import attach
from utvm.errors import ConfigError, ProbeError, ToolchainError
from utvm.probe.pyocd.server import uid_of
from utvm.session import HostDriven

_FOLDER = Path(__file__).parent
# Regions and addresses: RM0385, 2.2. The package names the flash algorithm that the test compiles.
_PDSC = """<?xml version="1.0"?>
<package schemaVersion="1.7.2"><vendor>utvm</vendor><name>Own_DFP</name>
 <releases><release version="1.0.0"/></releases>
 <devices><family Dfamily="Own" Dvendor="STMicroelectronics:13">
  <processor Dcore="Cortex-M7" DcoreVersion="r1p1" Dfpu="SP_FPU" Dendian="Little-endian" Dclock="16000000"/>
  <device Dname="STM32F746ZG">
   <memory id="IROM1" start="0x08000000" size="0x00100000" startup="1" default="1"/>
   <memory id="IRAM1" start="0x20000000" size="0x00050000" init="0" default="1"/>
   <debug __dp="0" __ap="0"/>
   <algorithm name="Flash/own.FLM" start="0x08000000" size="0x00100000" RAMstart="0x20000000" RAMsize="0x8000"
     default="1"/>
  </device>
 </family></devices></package>
"""
_SUITES = "health,debug,counter,memory,flash,faults"

pytestmark = pytest.mark.slow


def _variant(board: Board, folder: Path, change: Callable[[dict[str, Any]], None], *files: Path) -> Path:
    """Create a board that only pyOCD drives."""
    target = folder / board.name
    target.mkdir()
    content = yaml.safe_load((board.directory / "board.yaml").read_text())
    del content["physical"]["select_serial"]
    for probe in content["virtual"]["model"]["usb_probes"]:
        probe.pop("openocd", None)
    change(content)
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    for file in (board.directory / "port.c", *files):
        if file.exists():
            shutil.copy(file, target)
    return target


# pyOCD knows the first chip; the flash of the second is programmed by an algorithm of our runtime.
@pytest.mark.parametrize("board", ["nrf52840dk:driver=pyocd", pytest.param("nrf5340dk", marks=pytest.mark.nightly)])
def test_suites_pass_and_the_report_names_pyocd(board: str, tmp_path: Path) -> None:
    words = ("hil", "--board", board, "--suite", _SUITES, "--report-dir", tmp_path)
    completed = inv(*words)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "virtual CMSIS-DAP on a socket in place of USB" in completed.stdout
    (file,) = {file.resolve() for file in tmp_path.glob("*/report.json")}
    report = json.loads(file.read_text())
    assert report["environment"]["place"]["tools"]["pyocd"].startswith("0.4")


def _run_doubler(name: str, doubler: Library, logs: Path) -> tuple[list[int], int]:
    board = boards.load(name)
    with attach(board, "virtual", log_directory=logs) as connection:
        with HostDriven(connection, firmware.build(board, [doubler])) as session:
            result = session.run("doubler", [np.array([1, 2, 3, -4], dtype=np.int32)])
        return result.outputs[0].tolist(), result.count


def test_outputs_and_counts_equal_those_with_openocd(doubler: Library, tmp_path: Path) -> None:
    result = _run_doubler("nrf52840dk:driver=pyocd", doubler, tmp_path / "pyocd")
    assert result == _run_doubler("nrf52840dk", doubler, tmp_path / "openocd")
    assert result[0] == [2, 4, 6, -8]


def test_memory_is_reached_while_the_core_runs(doubler: Library, tmp_path: Path) -> None:
    board = boards.load("nrf52840dk:driver=pyocd")
    image = firmware.build(board, [doubler], "rpc", pipe="rtt")
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        connection.program(image)
        connection.reset(halt=False)
        assert "memory while running" in connection.capabilities
        for _ in range(20):
            connection.read_memory(image.symbols["utvm_rtt"], 64)
            assert connection.gdb.running
        connection.gdb.interrupt()
        assert connection.gdb.wait_for_stop(10) is not None


def test_folder_from_a_pack_has_its_flash_algorithm(board: Board, doubler: Library, tmp_path: Path) -> None:
    algorithm = tmp_path / "own.FLM"
    (tmp_path / "own.ld").write_text(
        "SECTIONS { PrgCode 0 : { *(.text*) } PrgData : { *(.data*) } DevDscr : { *(DevDscr) } }"
    )
    flags = ("-mcpu=cortex-m7", "-mthumb", "-Os", "-ffreestanding", "-nostdlib", "-Wl,--no-gc-sections")
    command = ["arm-none-eabi-gcc", *flags, "-T", tmp_path / "own.ld", "-o", algorithm, _FOLDER / "flash_algorithm.c"]
    subprocess.run([*command, "-Wl,-e,Init"], check=True)
    source = tmp_path / "own.pack"
    with zipfile.ZipFile(source, "w") as pack:
        pack.writestr("utvm.Own_DFP.pdsc", _PDSC)
        pack.write(algorithm, "Flash/own.FLM")
        pack.writestr("Documents/manual.pdf", random.Random(1).randbytes(1 << 20))
    folder = tmp_path / "here" / "mine"
    completed = inv("board.new", "--chip", "stm32f746zg", "--from", source, "--output", folder)
    assert completed.returncode == 0, completed.stderr
    assert {file.name for file in folder.iterdir()} == {"board.yaml", "openocd.cfg", "chip.pack"}
    assert (folder / "chip.pack").stat().st_size < 10_000
    # As on another computer, the folder moves and the pack is missing. The chip is our model.
    source.unlink()
    moved = folder.rename(tmp_path / "mine")
    content = yaml.safe_load((moved / "board.yaml").read_text())
    flash = boards.load(str(moved)).region("irom1")
    assert flash.sectors == (0x8000,) * 4 + (0x20000,) + (0x40000,) * 3  # RM0385, table 3
    known = yaml.safe_load((board.directory / "board.yaml").read_text())
    content["virtual"] = known["virtual"]
    content["memory"] += [region for region in known["memory"] if region["kind"] == "rom"]
    del content["virtual"]["model"]["usb_probes"]
    (moved / "board.yaml").write_text(yaml.safe_dump(content))
    assert _run_doubler(f"{moved}:driver=pyocd", doubler, tmp_path / "logs")[0] == [2, 4, 6, -8]


@pytest.mark.parametrize("victim", ["pyocd", "probe"])
def test_ended_process_is_named(victim: str, tmp_path: Path) -> None:
    board = boards.load("nrf52840dk:driver=pyocd")
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        machine, server = connection.services
        if victim == "pyocd":
            os.kill(server.pid, signal.SIGKILL)
        else:
            os.kill(machine.pid, signal.SIGUSR2)
        # pyOCD's message depends on a pending packet; connection.check() names the cause.
        with pytest.raises(ProbeError, match=r"GDB server|No such device|Timeout reading from probe"):
            for _ in range(3):
                connection.reset(halt=True)
        if victim == "pyocd":
            psutil.wait_procs([psutil.Process(server.pid)], timeout=10)
        with pytest.raises(ProbeError, match="pyOCD ended unexpectedly" if victim == "pyocd" else "is gone from USB"):
            connection.check()


def test_chip_unknown_to_pyocd_is_a_clear_error(tmp_path: Path) -> None:
    known = boards.load("nrf52840dk")
    part = {"driver": "pyocd", "pyocd": {"target": "nrf99999"}}
    folder = _variant(known, tmp_path, lambda content: content["physical"].update(part))
    with (
        pytest.raises(ProbeError, match="nrf99999") as caught,
        attach(boards.load(str(folder)), "virtual", log_directory=tmp_path),
    ):
        pass
    assert "pyocd list --targets" in caught.value.hint


@pytest.mark.parametrize("board", ["nrf52840dk:driver=pyocd", "nrf5340dk"])
def test_missing_pyocd_is_named(board: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pyocd, "find", lambda: None)
    with (
        pytest.raises(ToolchainError, match=r"pyOCD.*is not installed") as caught,
        attach(boards.load(board), "virtual", log_directory=tmp_path / "logs"),
    ):
        pass
    assert "pipx install pyocd" in caught.value.hint


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"driver": "pyocd"}, "driver is pyocd, but the key pyocd is missing"),
        ({"driver": "jlink"}, "physical.driver"),
        ({"pyocd": {"target": "no such name"}}, "physical.pyocd.target"),
        ({"pyocd": {"target": "nrf52840", "pack": "../a.pack"}}, "physical.pyocd.pack"),
        ({"pyocd": {"target": "x", "pack": "a.pack", "algorithm": {"name": "nrf53_nvmc"}}}, "one or the other"),
        (
            {"driver": "pyocd", "pyocd": {"target": "x", "algorithm": {"name": "no_such"}}},
            "algorithm: there is none named 'no_such'",
        ),
    ],
)
def test_invalid_settings_are_named(part: dict[str, Any], message: str, tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        del content["physical"]["pyocd"]
        content["physical"].update(part)

    with pytest.raises(ConfigError, match=message):
        boards.load(str(_variant(boards.load("nrf52840dk"), tmp_path, change)))


@pytest.mark.parametrize(
    ("kind", "serial", "uid"),
    [("jlink", "000683123456", "683123456"), ("st-link", "0671FF48", "0671FF48"), ("cmsis-dap", "0240", "0240")],
)
def test_serial_numbers_have_the_form_of_pyocd(kind: str, serial: str, uid: str) -> None:
    assert uid_of(kind, serial) == uid


def test_board_without_a_target_excludes_pyocd() -> None:
    completed = inv("hil", "--board", "stm32f407:driver=pyocd", "--suite", "health")
    assert completed.returncode == 2
    assert "driver cannot be 'pyocd'; " in completed.stderr or "choose from: usb, model" in completed.stderr


def test_modelled_cycles_are_called_modelled() -> None:
    completed = inv("model.run", "models/digits/digits_int8.tflite", "--board", "nrf5340dk", "--cycles")
    assert "with a MODEL of its cycles" in completed.stdout
    assert "modelled cycles " in completed.stdout
    assert " ms at 128 MHz, modelled" in completed.stdout
    assert "instructions " not in completed.stdout
