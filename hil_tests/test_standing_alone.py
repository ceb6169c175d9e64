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
def _is_heard(board: Connection) -> None:
    """Skip boards without a console and without RTT."""
    if "console" not in board.capabilities and "rtt" not in pipes(board.board.architecture):
        pytest.skip("not on this board: it has no console, and nothing to report through in its place")


@pytest.fixture(scope="module")
def digits(compile_for_board: Callable[..., Library]) -> Library:
    return compile_for_board(load(quantize.MODEL))


@pytest.fixture(scope="module")
def picture() -> npt.NDArray[Any]:
    return quantize.quantized_images(held_out()[0])[0][np.newaxis]


def _alone(board: Connection, library: Library, stored: npt.NDArray[Any]) -> StandaloneRunner:
    image = build(board.board, [library], "standing_alone", [stored], able=board.capabilities)
    return StandaloneRunner(board, image)


def _start(alone: StandaloneRunner) -> RunResult:
    return alone.power_cycle() if alone.has_power_switch else alone.reset()


def test_the_result_is_the_reference_s_after_every_start(
    board: Connection, digits: Library, picture: npt.NDArray[Any]
) -> None:
    ((expected,),) = tflite_micro(quantize.MODEL.read_bytes(), [[picture]])
    alone = _alone(board, digits, picture)
    for _ in range(2):
        result = _start(alone)
        assert result.outputs[0].tobytes() == expected.tobytes()
        assert result.outputs[0].shape == expected.shape
        assert 0 < result.stack_used < board.board.layout.stack_size
    assert alone.reset().outputs[0].tobytes() == expected.tobytes()


@pytest.mark.needs("reset cause")
def test_it_says_why_it_was_reset(board: Connection, digits: Library, picture: npt.NDArray[Any]) -> None:
    alone = _alone(board, digits, picture)
    if alone.has_power_switch:
        alone.power_cycle()
        assert alone.reset_cause == "power on"
    # The board clears the cause at start-up, so this is the cause of the last reset only.
    alone.reset()
    assert alone.reset_cause == "reset pin"


def test_it_takes_as_long_as_with_a_host(
    board: Connection,
    digits: Library,
    picture: npt.NDArray[Any],
    firmware: Callable[..., Firmware],
    session: Callable[[Firmware], Session],
) -> None:
    if board.count_unit != "instructions":
        pytest.skip("a chip counts cycles, which depend on where its flash accelerator finds the input")
    result = _start(_alone(board, digits, picture))
    assert session(firmware([digits])).run(digits.name, [picture]).count == result.count


def test_a_fault_is_said_to_whoever_listens(board: Connection, facts: Facts) -> None:
    faulty = handwritten("faulty", f"  {facts.undefined} /* here */\n  return x[0];")
    alone = _alone(board, faulty, np.zeros(4, np.int32))
    for _ in range(2):
        with pytest.raises(DeviceFault) as caught:
            _start(alone)
        assert caught.value.record.meaning.name == facts.undefined_name
        assert f"faulty.c:{line_of(faulty, '/* here */')}" in caught.value.source_line
        assert any("utvm_main" in line for line in caught.value.backtrace)
