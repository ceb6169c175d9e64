# SPDX-License-Identifier: Apache-2.0
"""The figures of a model, compared with calculations by hand."""

import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from utvm import boards
from utvm.firmware import Firmware
from utvm.hil.figures import summarise
from utvm.hil.project import Limits, ProjectModel
from utvm.session import RunResult


def _run(count: int, *logits: float) -> RunResult:
    return RunResult((np.array([logits], dtype=np.float32),), count, "instructions", 0)


def test_figures(small_firmware: Firmware) -> None:
    runs = [_run(30, 0, 1), _run(10, 5, 2), _run(20, 0, 3)]
    result = summarise("m", small_firmware, runs, executor="host-driven", labels=[1, 0, 0])
    assert result.figures == {
        "samples": 3,
        "accuracy": pytest.approx(2 / 3),
        "instructions": 20,
        "flash_bytes": small_firmware.flash_bytes,
        "ram_bytes": small_firmware.ram_bytes,
    }
    assert result.confusion == ((1, 1), (0, 1))
    assert result.outputs_sha256 == hashlib.sha256(struct.pack("<6f", 0, 1, 5, 2, 0, 3)).hexdigest()


def test_no_accuracy_without_labels(small_firmware: Firmware) -> None:
    result = summarise("m", small_firmware, [_run(7, 1, 2)], executor="host-driven")
    assert result.figures["accuracy"] is None
    assert result.confusion == ()


def test_model_without_runs_has_no_figures(small_firmware: Firmware) -> None:
    with pytest.raises(ValueError, match="without runs"):
        summarise("m", small_firmware, [], executor="host-driven")
    with pytest.raises(ValueError, match="2 labels for 1 runs"):
        summarise("m", small_firmware, [_run(1, 1)], executor="host-driven", labels=[0, 1])


def test_modelled_cycles_are_not_instructions(small_firmware: Firmware) -> None:
    board = boards.load("nucleo-l4r5zi:cycles=model")
    run = RunResult((np.array([[1.0]]),), 1_200_000, "modelled cycles", 0)
    figures = summarise("m", replace(small_firmware, board=board), [run], executor="host-driven").figures
    assert (figures["instructions"], figures["modelled_cycles"], figures["ms"]) == (None, 1_200_000, 10.0)


def test_time_has_a_limit(small_firmware: Firmware) -> None:
    board = boards.load("nucleo-l4r5zi:cycles=model")
    run = RunResult((np.array([[1.0]]),), 1_200_000, "modelled cycles", 0)
    result = summarise("m", replace(small_firmware, board=board), [run], executor="host-driven")
    for limit, violations in ((9.5, ["m: ms is 10.0, and the limit is 9.5"]), (10, [])):
        limits = Limits(file=Path("m.onnx"), samples=Path("m.npz"), ms=limit)
        assert ProjectModel("m", limits, Path()).broken(result) == violations
