# SPDX-License-Identifier: Apache-2.0
"""VTA beside the board's CPU: outputs equal TensorFlow Lite Micro's reference kernels, bit for bit."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from hil_tests.bitstreams import build_bitstream
from hil_tests.int8_cases import Int8Case
from hil_tests.many_models import ManyModels
from hil_tests.vta_cases import VTA_CASES
from hil_tests.vta_faults import FAULTS, faulty
from models.digits import quantize
from models.tflite_reference import tflite_micro
from utvm.boards.accelerators import accelerator_of
from utvm.compiler import Library, from_tflite, load
from utvm.firmware import Firmware
from utvm.hil.plugin import board_of
from utvm.session import Session
from utvm.session.fault import DeviceFault

pytestmark = pytest.mark.needs("accelerator vta")


@pytest.fixture(scope="module")
def designs() -> list[str]:
    """Names of the bitstreams that were programmed into a virtual board."""
    return []


@pytest.fixture(autouse=True)
def _logic_of_a_virtual_board(request: pytest.FixtureRequest, designs: list[str], tmp_path: Path) -> None:
    """Program a virtual board with a dummy bitstream; the owner programs a physical one."""
    logic = board_of(request.config).logic
    if logic and not designs:
        connection = request.getfixturevalue("board")
        if connection.kind == "virtual":
            (tmp_path / "vta.bit").write_bytes(build_bitstream(part=logic.part.encode()))
            designs.append(connection.program_logic(tmp_path / "vta.bit").design)


@pytest.fixture(scope="module")
def models(compile_for_board: Callable[..., Library], firmware: Callable[[Sequence[Library]], Firmware]) -> ManyModels:
    def compiler_of(case: Int8Case) -> Callable[[], Library]:
        return lambda: compile_for_board(from_tflite(case.content(), f"vta_{case.name}"), accelerator="all")

    return ManyModels({case.name: compiler_of(case) for case in VTA_CASES}, firmware)


@pytest.mark.parametrize("case", VTA_CASES, ids=lambda case: case.name)
def test_layer_equals_the_reference_kernel(
    case: Int8Case, models: ManyModels, session: Callable[[Firmware], Session]
) -> None:
    library = models.library(case.name)
    assert any(call.kind == "conv2d_int8_on_vta" for call in library.calls)
    running, inputs = session(models.image), case.runs()
    for sample, (expected,) in zip(inputs, tflite_micro(case.content(), inputs), strict=True):
        np.testing.assert_array_equal(running.run(library.name, sample).outputs[0], expected)


def test_network_equals_the_reference_kernels(
    compile_for_board: Callable[..., Library],
    firmware: Callable[[Sequence[Library]], Firmware],
    session: Callable[[Firmware], Session],
) -> None:
    library = compile_for_board(load(quantize.MODEL), name="digits_with_vta", accelerator="all")
    running = session(firmware([library]))
    numbers = np.random.default_rng(0).integers(-128, 128, (5, *library.inputs[0].shape), "int8")
    pictures = [[array] for array in numbers]
    for picture, (expected,) in zip(pictures, tflite_micro(quantize.MODEL.read_bytes(), pictures), strict=True):
        np.testing.assert_array_equal(running.run(library.name, picture).outputs[0], expected)


def test_fault_names_the_instruction_and_a_reset_recovers(
    request: pytest.FixtureRequest,
    firmware: Callable[[Sequence[Library]], Firmware],
    session: Callable[[Firmware], Session],
) -> None:
    identity = accelerator_of(board_of(request.config)).identity
    image = firmware([faulty(name, body, identity) for name, (body, _) in FAULTS.items()])
    running = session(image)
    for name, (_, message) in FAULTS.items():
        with pytest.raises(DeviceFault, match=message):
            running.run(name, [np.zeros(4, np.int32)])
        running.reset()
