# SPDX-License-Identifier: Apache-2.0
"""Int8 operators on the board: outputs equal TensorFlow Lite Micro's reference kernels, bit for bit."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from hil_tests.int8_cases import INT8_CASES, Int8Case
from hil_tests.many_models import ManyModels
from models.tflite_reference import tflite_micro
from utvm.compiler import Library, from_tflite
from utvm.firmware import Firmware
from utvm.session import Session


@pytest.fixture(scope="module")
def models(compile_for_board: Callable[..., Library], firmware: Callable[[Sequence[Library]], Firmware]) -> ManyModels:
    def compiler_of(case: Int8Case) -> Callable[[], Library]:
        return lambda: compile_for_board(from_tflite(case.content(), f"int8_{case.name}"))

    return ManyModels({case.name: compiler_of(case) for case in INT8_CASES}, firmware)


@pytest.mark.parametrize("case", INT8_CASES, ids=lambda case: case.name)
def test_operator_against_the_reference_kernel(
    case: Int8Case, models: ManyModels, session: Callable[[Firmware], Session]
) -> None:
    library = models.library(case.name)
    running, inputs = session(models.image), case.runs()
    for sample, (expected,) in zip(inputs, tflite_micro(case.content(), inputs), strict=True):
        np.testing.assert_array_equal(running.run(library.name, sample).outputs[0], expected)
