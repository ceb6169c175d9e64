# SPDX-License-Identifier: Apache-2.0
"""VTA behind its registers on an emulated PYNQ-Z1: the board's driver with a model of the hardware."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from three_vtas import CONFIGURATIONS

from hil_tests.bitstreams import build_bitstream
from hil_tests.vta_cases import VTA_CASES
from hil_tests.vta_faults import FAULTS, faulty
from models.tflite_reference import tflite_micro
from utvm import boards, firmware
from utvm.boards import bitstream
from utvm.boards.accelerators import accelerator_of
from utvm.compiler import CompileOptions, Library, from_tflite, load
from utvm.drivers import Connection, attach, choose
from utvm.errors import ConfigError
from utvm.firmware import compile_for
from utvm.selection import BoardSelection
from utvm.session import HostDriven
from utvm.session.board_holder import open_session
from utvm.session.fault import DeviceFault
from utvm.virtual.vta.device import VtaModel

_RESNET8 = Path(os.environ.get("UTVM_MODEL_CACHE", "")) / "pretrainedResnet_quant.tflite"
_EMULATED = "pynq-z1:memory=ddr,driver=qemu"
_REGISTERS = 0x43C00000  # Vivado's address of the first block on M_AXI_GP0, and that of VTA's bitstreams.


def _board(folder: Path, **accelerator: Any) -> boards.Board:
    """PYNQ-Z1 with another VTA."""
    target = folder / "pynq-z1"
    shutil.copytree(boards.load("pynq-z1").directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text())
    content["accelerator"]["vta"] |= accelerator
    (target / "board.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    for file in CONFIGURATIONS.values():
        shutil.copy(file, target)
    return boards.load(f"{target}:memory=ddr,driver=qemu")


def _compile(board: boards.Board, count: int) -> dict[str, Library]:
    return {
        case.name: compile_for(
            board, from_tflite(case.content(), f"vta_{case.name}"), CompileOptions(accelerator="all")
        )
        for case in VTA_CASES[:count]
    }


def _check(running: Any, compiled: dict[str, Library]) -> None:
    for case in VTA_CASES[: len(compiled)]:
        inputs = case.runs()[:2]
        for sample, (expected,) in zip(inputs, tflite_micro(case.content(), inputs), strict=True):
            np.testing.assert_array_equal(running.run(compiled[case.name].name, sample).outputs[0], expected)


@contextmanager
def _host_driven(
    board: boards.Board, compiled: dict[str, Library], logs: Path
) -> Iterator[tuple[Connection, HostDriven]]:
    image = firmware.build(board, list(compiled.values()))
    with attach(board, "virtual", log_directory=logs) as connection, HostDriven(connection, image) as session:
        connection.program_logic(_bitstream(logs))
        yield connection, session


def _bitstream(folder: Path) -> Path:
    path = folder / "vta.bit"
    path.write_bytes(build_bitstream())
    return path


@pytest.mark.slow
def test_vta_is_on_the_bus_of_a_virtual_board(tmp_path: Path) -> None:
    """An STM32F746 behind the real OpenOCD, with three more lines in its file."""
    folder = tmp_path / "mine"
    shutil.copytree(boards.load("stm32f746").directory, folder)
    content = yaml.safe_load((folder / "board.yaml").read_text())
    vta = {"clock_hz": 216_000_000, "registers": 0x58000000, "queue": 1024}
    (folder / "board.yaml").write_text(yaml.safe_dump(content | {"name": "mine", "accelerator": {"vta": vta}}))
    board = boards.load(str(folder))
    compiled = _compile(board, 2)
    assert all(library.accelerator for library in compiled.values())
    wrong = [faulty(name, body, accelerator_of(board).identity) for name, (body, _) in FAULTS.items()]
    image = firmware.build(board, [*compiled.values(), *wrong])
    with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
        assert connection.model == "VIRTUAL board, a software model, with a model of vta on its bus"
        _check(session, compiled)
        for name, (_, message) in FAULTS.items():
            with pytest.raises(DeviceFault, match=message):
                session.run(name, [np.zeros(4, np.int32)])
            session.reset()
        _check(session, compiled)


@pytest.fixture
def _empty_logic(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The emulated boards' logic is not programmed."""
    monkeypatch.setattr(bitstream, "cache_root", lambda: tmp_path / "cache")


@pytest.mark.slow
@pytest.mark.usefixtures("_empty_logic")
def test_layers_and_faults_over_rpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = boards.load(_EMULATED)
    compiled = _compile(board, 2)
    wrong = [faulty(name, body, accelerator_of(board).identity) for name, (body, _) in FAULTS.items()]
    image = firmware.build(board, [*compiled.values(), *wrong], "rpc")
    logs, messages = tmp_path / "logs", list[str]()
    empty = r"VTA: instruction 0 \(load .*\): the logic is empty: board.program-fpga"
    opened = open_session(choose(board, BoardSelection()), image, logs, messages.append)
    with opened as session, pytest.raises(DeviceFault, match=empty):
        _check(session, compiled)
    bitstream.remember_bitstream(board, "vta.bit")
    with open_session(choose(board, BoardSelection()), image, logs, messages.append) as session:
        assert "emulated by QEMU (xilinx-zynq-a9), with a model of vta beside it" in messages[0]
        _check(session, compiled)
        for name, (_, message) in FAULTS.items():
            with pytest.raises(DeviceFault, match=message):
                session.run(name, [np.zeros(4, np.int32)])
            session.reset()
        _check(session, compiled)
        monkeypatch.setattr(VtaModel, "serve", lambda *_: None)
        with pytest.raises(DeviceFault, match=r"VTA: instruction \d+ \(finish .*\): VTA has not answered after"):
            session.run(compiled[VTA_CASES[0].name].name, VTA_CASES[0].runs()[0])


@pytest.mark.slow
@pytest.mark.usefixtures("_empty_logic")
def test_bus_and_qemu_models_agree_in_instructions(tmp_path: Path) -> None:
    """One driver is behind OpenOCD, which knows the TAP of the logic."""
    counts = {}
    for driver in ("jtag", "qemu"):
        board = boards.load(f"pynq-z1:memory=ocm,driver={driver}")
        compiled = _compile(board, 2)
        image, sample = firmware.build(board, list(compiled.values())), VTA_CASES[0].runs()[0]
        with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
            with pytest.raises(DeviceFault, match=r"the logic is empty: board\.program-fpga"):
                _check(session, compiled)
            assert connection.program_logic(_bitstream(tmp_path)).design
            session.reset()
            _check(session, compiled)
            counts[driver] = session.run(compiled[VTA_CASES[0].name].name, sample).count
    assert counts["jtag"] == counts["qemu"]


@pytest.mark.slow
def test_wide_elements_are_aligned(tmp_path: Path) -> None:
    """A row of two batches has 32 bytes, and tensors are aligned to 16."""
    board = _board(tmp_path, config="batch.json", queue=256)
    with _host_driven(board, _compile(board, 4), tmp_path) as (_, session):
        _check(session, _compile(board, 4))


@pytest.mark.slow
def test_debugger_stops_in_the_model_once(tmp_path: Path) -> None:
    board = boards.load(_EMULATED)
    compiled = _compile(board, 1)
    (name,) = compiled
    with _host_driven(board, compiled, tmp_path) as (connection, session):
        sample = VTA_CASES[0].runs()[0]
        first = session.run(compiled[name].name, sample)
        # A run's count is the same when the debugger stops in it.
        address = session.firmware.symbols["utvm_accelerator_rung"]
        connection.insert_breakpoint(address + 4)
        connection.gdb.resume()
        stop = connection.gdb.wait_for_stop(30.0)
        assert stop is not None and connection.gdb.read_register("pc") == address + 4
        finished = int.from_bytes(connection.read_memory(_REGISTERS + 0x2018, 4), "little")
        count = int.from_bytes(connection.read_memory(_REGISTERS + 0x10, 4), "little")
        assert finished == 1 and count > 1
        connection.gdb.remove_breakpoint(address + 4)
        connection.gdb.resume()
        assert connection.gdb.wait_for_stop(30.0) is not None and session.waiting
        session.reset()
        assert session.run(compiled[name].name, sample).count == first.count


@pytest.mark.nightly
@pytest.mark.skipif(not _RESNET8.is_file(), reason="UTVM_MODEL_CACHE names no folder with the MLPerf Tiny models")
def test_resnet8_equals_the_reference_kernels(tmp_path: Path) -> None:
    board = boards.load(_EMULATED)
    library = compile_for(board, load(_RESNET8), CompileOptions(accelerator="all"))
    kinds = [call.kind for call in library.calls]
    assert kinds.count("conv2d_int8_on_vta") == len(library.decisions) == 10 and "conv2d_int8" not in kinds
    shape = library.inputs[0].shape
    images = [[image] for image in np.random.default_rng(0).integers(-128, 128, (20, *shape), "int8")]
    with _host_driven(board, {"": library}, tmp_path) as (_, session):
        for image, (expected,) in zip(images, tflite_micro(_RESNET8.read_bytes(), images), strict=True):
            np.testing.assert_array_equal(session.run(library.name, image).outputs[0], expected)


def test_accelerator_on_a_chip_needs_its_registers(tmp_path: Path) -> None:
    board = _board(tmp_path, registers=None)
    library = _compile(board, 1)[VTA_CASES[0].name]
    with pytest.raises(ConfigError, match="cannot be driven: its registers are unknown") as caught:
        firmware.build(board, [library])
    assert "registers: 0x43C00000" in caught.value.hint
