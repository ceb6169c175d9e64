# SPDX-License-Identifier: Apache-2.0
"""A library under a preemptive switch: the same bits, wherever another run of it comes in between."""

import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from utvm.bench import Asked, choose
from utvm.paths import ROOT
from utvm.project import Project, open_transport

MODEL = ROOT / "models" / "digits" / "digits_int8.tflite"


@pytest.mark.slow
def test_two_threads_run_one_library_at_once(tmp_path: Path) -> None:
    words = ("--model", MODEL, "--board", "mps2-an385", "--platform", "bare", "--output", tmp_path / "app")
    assert inv("project.create", *words).returncode == 0
    app = tmp_path / "app"
    shutil.copyfile(Path(__file__).with_name("two_threads.c"), app / "app" / "main.c")
    config = app / "app" / "config.h"
    config.write_text(f"{config.read_text()}#define UTVM_PENDSV test_switch\n#define UTVM_SYSTICK test_tick\n")
    image = Project(app).build()
    said, until = b"", time.monotonic() + 60
    with (
        choose(image.board, Asked("auto", "")).opened(tmp_path, print) as bench,
        open_transport(bench, image) as wire,
    ):
        while not said.endswith(b" end\r\n") and time.monotonic() < until:
            said += wire.read(1.0)
    found = re.search(rb"switches (\w+) wrong (\w+) output (\w+) output (\w+)", said)
    assert found, said
    switches, wrong, *outputs = (int(number, 16) for number in found.groups())
    assert switches > 100
    assert wrong == 0
    inputs = [
        [(np.arange(64) * (37 + 18 * index) + index).astype(np.uint8).view(np.int8).reshape(1, 8, 8, 1)]
        for index in range(2)
    ]
    assert outputs == [int(output.ravel()[0]) & 0xFF for (output,) in tflite_micro(MODEL.read_bytes(), inputs)]
