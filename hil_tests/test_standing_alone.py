# SPDX-License-Identifier: Apache-2.0
"""Standalone firmware: the board starts by itself, runs its model on a stored input, and reports the outputs.

A virtual board is power-cycled. Physical and emulated boards have no power switch and are reset.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hil_tests.architectures import Facts
from hil_tests.programs import handwritten, line_of
from models.digits import quantize
from models.digits.data import held_out
from models.tflite_reference import tflite_micro
from utvm.compiler import Library, load
from utvm.drivers import Connection
from utvm.firmware import Firmware, build
from utvm.runtime import pipes
from utvm.session import DeviceFault, RunResult, Session, StandaloneRunner

pytestmark = pytest.mark.needs("debug port")


@pytest.fixture(autouse=True)
def _require_output(board: Connection) -> None:
    """Skip boards without a console and without RTT."""
    if "console" not in board.capabilities and "rtt" not in pipes(board.board.architecture):
        pytest.skip("not on this board: it has no console, and nothing to report through in its place")


@pytest.fixture(scope="module")
def digits(compile_for_board: Callable[..., Library]) -> Library:
    return compile_for_board(load(quantize.MODEL))


@pytest.fixture(scope="module")
def picture() -> npt.NDArray[Any]:
    return quantize.quantized_images(held_out()[0])[0][np.newaxis]


def _standalone(board: Connection, library: Library, input_values: npt.NDArray[Any]) -> StandaloneRunner:
    image = build(board.board, [library], "standing_alone", [input_values], able=board.capabilities)
    return StandaloneRunner(board, image)


def _start(runner: StandaloneRunner) -> RunResult:
    return runner.power_cycle() if runner.has_power_switch else runner.reset()


def test_output_equals_the_reference_after_every_start(
    board: Connection, digits: Library, picture: npt.NDArray[Any]
) -> None:
    ((expected,),) = tflite_micro(quantize.MODEL.read_bytes(), [[picture]])
    runner = _standalone(board, digits, picture)
    for _ in range(2):
        result = _start(runner)
        assert result.outputs[0].tobytes() == expected.tobytes()
        assert result.outputs[0].shape == expected.shape
        assert 0 < result.stack_used < board.board.layout.stack_size
    assert runner.reset().outputs[0].tobytes() == expected.tobytes()


@pytest.mark.needs("reset cause")
def test_reset_cause_is_reported(board: Connection, digits: Library, picture: npt.NDArray[Any]) -> None:
    runner = _standalone(board, digits, picture)
    if runner.has_power_switch:
        runner.power_cycle()
        assert runner.reset_cause == "power on"
    # The board clears the cause at start-up, so this is the cause of the last reset only.
    runner.reset()
    assert runner.reset_cause == "reset pin"


def test_count_equals_a_run_with_a_host(
    board: Connection,
    digits: Library,
    picture: npt.NDArray[Any],
    firmware: Callable[..., Firmware],
    session: Callable[[Firmware], Session],
) -> None:
    if board.count_unit != "instructions":
        pytest.skip("a chip counts cycles, which depend on where its flash accelerator finds the input")
    result = _start(_standalone(board, digits, picture))
    assert session(firmware([digits])).run(digits.name, [picture]).count == result.count


def test_fault_is_reported_without_a_host(board: Connection, facts: Facts) -> None:
    faulty = handwritten("faulty", f"  {facts.undefined} /* here */\n  return x[0];")
    runner = _standalone(board, faulty, np.zeros(4, np.int32))
    for _ in range(2):
        with pytest.raises(DeviceFault) as caught:
            _start(runner)
        assert caught.value.record.meaning.name == facts.undefined_name
        assert f"faulty.c:{line_of(faulty, '/* here */')}" in caught.value.source_line
        assert any("utvm_main" in line for line in caught.value.backtrace)
