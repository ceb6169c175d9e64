# SPDX-License-Identifier: Apache-2.0
"""Operators on the board, compared with numpy: floats within rounding, integers exactly."""

from collections.abc import Callable, Sequence

import pytest

from hil_tests.many_models import ManyModels
from hil_tests.operator_cases import OPERATOR_CASES, OperatorCase
from utvm.compiler import Library
from utvm.firmware import Firmware
from utvm.session import Session


@pytest.fixture(scope="module")
def models(compile_for_board: Callable[..., Library], firmware: Callable[[Sequence[Library]], Firmware]) -> ManyModels:
    def compiler_of(case: OperatorCase) -> Callable[[], Library]:
        return lambda: compile_for_board(case.model(), name=f"op_{case.name}")

    return ManyModels({case.name: compiler_of(case) for case in OPERATOR_CASES}, firmware)


@pytest.mark.parametrize("case", OPERATOR_CASES, ids=lambda case: case.name)
def test_operator_against_numpy(case: OperatorCase, models: ManyModels, session: Callable[[Firmware], Session]) -> None:
    library = models.library(case.name)
    case.check(session(models.image).run(library.name, case.inputs).outputs)
