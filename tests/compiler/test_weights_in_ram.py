# SPDX-License-Identifier: Apache-2.0
"""Weights that start-up code copies to RAM."""

import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_library import HostLibrary

from models.tflite_writer import Builder
from tests.cli.running import inv
from utvm import boards, firmware
from utvm.boards import Board
from utvm.compiler import CompileOptions, Model, Target, compile_model, from_tflite
from utvm.compiler.package import package_files, read_package
from utvm.compiler.target import Goal
from utvm.drivers import attach
from utvm.paths import ROOT
from utvm.session import HostDriven
from utvm.virtual.spec import FLASH_BYTES

DIGITS = ROOT / "models" / "digits" / "digits_int8.tflite"
_CONVOLUTION, _DENSE = 32 * 3 * 3 * 32, 10 * 2048  # Bytes of weights.
_RNG = np.random.default_rng(5)
IMAGE = _RNG.integers(-128, 128, (1, 8, 8, 32), np.int8)


@pytest.fixture(scope="module")
def model() -> Model:
    """A convolution with 9,216 weights, each used for 64 pixels, and a dense layer with 20,480, each used once."""
    builder = Builder()
    for name, shape in {"x": (1, 8, 8, 32), "c": (1, 8, 8, 32), "flat": (1, 2048), "y": (1, 10)}.items():
        builder.tensor(name, shape, "int8", scale=0.1)
    for name, weights in {"kernel": (32, 3, 3, 32), "matrix": (10, 2048)}.items():
        builder.tensor(name, weights, "int8", _RNG.integers(-127, 128, weights), scale=0.001)
    builder.tensor("shape", (2,), "int32", np.array([1, 2048]))
    builder.operator("CONV_2D", ["x", "kernel", None], ["c"], padding="SAME")
    builder.operator("RESHAPE", ["c", "shape"], ["flat"])
    builder.operator("FULLY_CONNECTED", ["flat", "matrix", None], ["y"])
    return from_tflite(builder.finish(["x"], ["y"]), "m")


@pytest.mark.slow
def test_board_runs_with_weights_in_ram(model: Model, tmp_path: Path) -> None:
    """The limit admits nothing, the weights that are read most often, or all; the flash of this board waits."""
    board = boards.load("nucleo-l4r5zi:cycles=model")
    sizes, outputs, cycles = [], [], []
    for number, limit in enumerate((0, 16_000, 64_000)):
        target = replace(board.target, goal="flash", weights_in_ram=limit)
        image = firmware.build(board, [compile_model(model, target=target)])
        sizes.append(image.ram_bytes)
        logs = tmp_path / str(number)
        logs.mkdir()
        with attach(board, "virtual", log_directory=logs) as connection, HostDriven(connection, image) as session:
            # The second run reads what the first one left.
            runs = [session.run("m", [IMAGE]) for _ in range(2)]
        outputs += [run.outputs[0].tobytes() for run in runs]
        cycles.append(runs[1].count)
    assert len(set(outputs)) == 1
    assert cycles[0] > cycles[1] > cycles[2]
    assert _CONVOLUTION <= sizes[1] - sizes[0] <= 16_000 and _DENSE <= sizes[2] - sizes[1] <= 25_000


@pytest.mark.slow
def test_host_gives_the_same_outputs(model: Model, tmp_path: Path) -> None:
    outputs = []
    for limit in (0, 64_000):
        folder = tmp_path / str(limit)
        folder.mkdir()
        library = compile_model(model, target=Target(weights_in_ram=limit))
        outputs.append(HostLibrary(library, folder)(IMAGE)[0].tobytes())
    assert outputs[0] == outputs[1]


def test_package_says_the_bytes_and_can_be_read(model: Model) -> None:
    library = compile_model(model, target=Target(goal="speed", weights_in_ram=64_000))
    copied = library.target.weights_in_ram
    assert copied and _CONVOLUTION + _DENSE <= copied <= library.weights_bytes
    files = package_files(library, model=model)
    assert f'"weights_in_ram": {copied}'.encode() in files["metadata.json"]
    assert f"| of these, copied to RAM | {copied} |".encode() in files["README.md"]
    assert read_package("m", files).name == "m"


def _copied(board: Board, model: Model, in_ram: bool = False, **changes: Any) -> int:
    options = CompileOptions(replace(board.target, **{"goal": "speed", **changes}), in_ram=in_ram)
    return firmware.compile_for(board, model, options).target.weights_in_ram or 0


def test_speed_copies_weights_where_flash_waits_and_ram_has_room(model: Model) -> None:
    board = boards.load("nucleo-l4r5zi")
    whole = _copied(board, model)
    small = tuple(
        region.model_copy(update={"size": 132 * 1024}) if region.name == board.layout.data else region
        for region in board.memory
    )
    # A convolution's weights take 72 bytes for 9, and are read more often than those of the dense layer.
    assert whole - _copied(board.model_copy(update={"memory": small}), model) in range(_DENSE, 25_000)
    assert whole > 8 * _CONVOLUTION + _DENSE


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("nucleo-l4r5zi", {"goal": "balance"}),
        ("nucleo-l4r5zi", {"weights_in_ram": 0}),
        ("nucleo-l4r5zi", {"in_ram": True}),
        ("nucleo-l4r5zi:clock=16", {}),  # RM0432, 3.3.3: no wait states
        ("microbit", {}),
        ("mps3-an547", {}),
    ],
)
def test_weights_stay_where_they_are(model: Model, name: str, changes: dict[str, Any]) -> None:
    assert _copied(boards.load(name), model, **changes) == 0


@pytest.mark.slow
def test_speed_reads_flash_less_and_gives_the_same_outputs(model: Model, tmp_path: Path) -> None:
    board = boards.load("nucleo-l4r5zi:cycles=model")
    outputs, reads = [], []
    goals: tuple[Goal, ...] = ("balance", "speed")
    for goal in goals:
        library = firmware.compile_for(board, model, CompileOptions(replace(board.target, goal=goal)))
        (tmp_path / goal).mkdir()
        with (
            attach(board, "virtual", log_directory=tmp_path / goal) as connection,
            HostDriven(connection, firmware.build(board, [library])) as session,
        ):
            connection.write_memory(board.selected_wait, struct.pack("<I", FLASH_BYTES))
            run = session.run("m", [IMAGE])
        outputs.append(run.outputs[0].tobytes())
        reads.append(run.count / library.weights_bytes)
    assert outputs[0] == outputs[1]
    assert reads[0] >= 1 and reads[1] < 0.2


@pytest.mark.slow
def test_report_says_the_bytes(tmp_path: Path) -> None:
    options = ["--model", DIGITS, "--board", "nucleo-l4r5zi", "--set", "optimize=speed", "--output", tmp_path]
    completed = inv("model.report", *options)
    assert re.search(r"^constants: ([\d,]+) bytes; \1 are copied to RAM at the start$", completed.stdout, re.MULTILINE)
    completed = inv("model.report", *options, "--set", "weights-in-ram=0")
    assert re.search(r"^constants: [\d,]+ bytes$", completed.stdout, re.MULTILINE)
