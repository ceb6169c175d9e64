# SPDX-License-Identifier: Apache-2.0
"""A library in two threads with preemptive switches: the outputs are the same bits."""

import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from models.tflite_reference import tflite_micro
from models.tflite_writer import Builder
from tests.cli.running import inv
from utvm.drivers import choose
from utvm.paths import ROOT
from utvm.project import Project, open_transport
from utvm.selection import BoardSelection

DIGITS = ROOT / "models" / "digits"


def _depthwise() -> bytes:
    """Return an int8 depthwise convolution and a 1x1 convolution: their kernels process several channels at once."""
    random, builder = np.random.default_rng(17), Builder()
    builder.tensor("x", (1, 8, 8, 8), "int8", scale=0.05, zero_point=-3)
    builder.tensor("w", (1, 3, 3, 8), "int8", random.integers(-127, 128, (1, 3, 3, 8)), scale=0.01)
    builder.tensor("b", (8,), "int32", random.integers(-900, 900, 8), scale=0.05 * 0.01)
    builder.tensor("h", (1, 8, 8, 8), "int8", scale=0.08, zero_point=5)
    builder.operator("DEPTHWISE_CONV_2D", ["x", "w", "b"], ["h"], padding="SAME")
    builder.tensor("v", (16, 1, 1, 8), "int8", random.integers(-127, 128, (16, 1, 1, 8)), scale=0.01)
    builder.tensor("y", (1, 8, 8, 16), "int8", scale=0.1, zero_point=-8)
    builder.operator("CONV_2D", ["h", "v", None], ["y"], padding="SAME")
    return builder.finish(["x"], ["y"])


def _model(name: str, folder: Path) -> Path:
    if name != "depthwise.tflite":
        return DIGITS / name
    (folder / name).write_bytes(_depthwise())
    return folder / name


_DAILY = [("mps2-an385", "digits_int8.tflite"), ("mps2-an500", "digits.onnx")]
_CORES = ("microbit", "mps2-an385", "netduinoplus2", "mps2-an500", "mps2-an505", "mps3-an547")
_ALL = [(core, model) for core in _CORES for model in ("digits_int8.tflite", "digits.onnx", "depthwise.tflite")]
_ALL.remove(("microbit", "digits.onnx"))  # Two copies do not fit into 16 KiB.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "model"),
    [*_DAILY, *(pytest.param(*case, marks=pytest.mark.nightly) for case in _ALL if case not in _DAILY)],
)
def test_two_threads_run_one_library(board: str, model: str, tmp_path: Path) -> None:
    path, app = _model(model, tmp_path), tmp_path / "app"
    completed = inv("project.create", "--model", path, "--board", board, "--platform", "bare", "--output", app)
    assert completed.returncode == 0, completed.stderr
    with np.load(app / "expected.npz") as known:
        output = known["arr_0"]
    name, elements = path.stem, 512 if path.stem == "depthwise" else 64
    macros = {
        "RUN": f"{name}_run",
        "ARENA_BYTES": f"{name.upper()}_ARENA_BYTES",
        "ELEMENT": "float" if output.dtype == np.float32 else "int8_t",
        "ELEMENTS": f"{elements}u",
        "OUTPUT_BYTES": f"{output.nbytes}u",
    }
    lines = [f'#include "{name}.h"', *(f"#define {macro} {value}" for macro, value in macros.items())]
    (app / "app" / "model.h").write_text("\n".join(lines) + "\n")
    shutil.copyfile(Path(__file__).with_name("two_threads.c"), app / "app" / "main.c")
    config = app / "app" / "config.h"
    config.write_text(f"{config.read_text()}#define UTVM_PENDSV test_switch\n#define UTVM_SYSTICK test_tick\n")
    image = Project(app).build()
    received, deadline = b"", time.monotonic() + 120
    with (
        choose(image.board, BoardSelection()).open(tmp_path, print) as connection,
        open_transport(connection, image) as wire,
    ):
        while not received.endswith(b" end\r\n") and time.monotonic() < deadline:
            received += wire.read(1.0)
    match = re.search(rb"switches (\w+) wrong (\w+) output (\w+) output (\w+) stack (\w+)", received)
    assert match, received
    assert int(match[1], 16) > 100
    assert int(match[2], 16) == 0
    outputs = [bytes.fromhex(digits.decode()) for digits in match.groups()[2:4]]
    # The library's stack size is sufficient and tight: the lowest words of a frame may stay unwritten.
    needed = json.loads((app / "model" / "metadata.json").read_text())["utvm"]["stack"]["bytes"]
    assert int(match[5], 16) <= needed <= int(match[5], 16) + 64
    if path.suffix == ".tflite":
        shape = (1, 8, 8, elements // 64)
        inputs = [
            [(np.arange(elements) * (37 + 18 * index) + index).astype(np.uint8).view(np.int8).reshape(shape)]
            for index in range(2)
        ]
        assert outputs == [array.tobytes() for (array,) in tflite_micro(path.read_bytes(), inputs)]
    assert outputs[0] != outputs[1]
