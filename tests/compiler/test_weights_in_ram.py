# SPDX-License-Identifier: Apache-2.0
"""Weights that start-up code copies to RAM."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from host_library import HostLibrary

from models.tflite_writer import Builder
from utvm import boards, firmware
from utvm.compiler import Model, Target, compile_model, from_tflite
from utvm.compiler.package import package_files, read_package
from utvm.drivers import attach
from utvm.session import HostDriven

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
    assert 9_216 <= sizes[1] - sizes[0] <= 16_000 and 20_480 <= sizes[2] - sizes[1] <= 25_000


@pytest.mark.slow
def test_host_gives_the_same_outputs(model: Model, tmp_path: Path) -> None:
    outputs = []
    for limit in (0, 64_000):
        folder = tmp_path / str(limit)
        folder.mkdir()
        library = compile_model(model, target=Target(weights_in_ram=limit))
        outputs.append(HostLibrary(library, folder)(IMAGE)[0].tobytes())
    assert outputs[0] == outputs[1]


def test_package_says_the_limit_and_can_be_read(model: Model) -> None:
    library = compile_model(model, target=Target(goal="speed", weights_in_ram=64_000))
    files = package_files(library, model=model)
    assert b'"weights_in_ram": 64000' in files["metadata.json"]
    assert read_package("m", files).name == "m"
