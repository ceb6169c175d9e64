# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend cases on a Cortex-M7, many in one firmware, within the suite's tolerances."""

from collections.abc import Sequence
from pathlib import Path

import onnx_suite
import pytest
from test_onnx_suite import REFUSED

from utvm import boards, firmware
from utvm.compiler import Library
from utvm.drivers import attach
from utvm.session import HostDriven

BOARD = "stm32f746"
_LARGEST_ARENA = 200_000  # Working memory that remains of the board's RAM when several libraries share it.
_STRIDE = 80
BATCHES = 12


def accepted_cases() -> list[str]:
    refused = {name for names in REFUSED.values() for name in names}
    return [name for name in onnx_suite.cases() if name not in refused]


def failures_of(names: Sequence[str], logs: Path) -> list[str]:
    """Failures of cases on a virtual board."""
    failures, libraries = [], {}
    cases = [onnx_suite.cases()[name] for name in names]
    for case, result in zip(cases, onnx_suite.compile_cases(cases), strict=True):
        if not isinstance(result, Library):
            failures.append(f"{case.name} is refused: {result}")
        elif result.arena_bytes <= _LARGEST_ARENA:
            libraries[case.name] = result
    assert len(libraries) > len(names) // 2
    board = boards.load(BOARD)
    image = firmware.build(board, list(libraries.values()))
    with attach(board, "virtual", log_directory=logs) as connection, HostDriven(connection, image) as session:
        for case in cases:
            if case.name in libraries:
                outputs = [list(session.run(case.name, inputs).outputs) for inputs, _ in case.sets]
                text = onnx_suite.difference(case, outputs)
                failures += [f"{case.name} is wrong: {text}"] if text else []
    return failures


@pytest.mark.slow
def test_sample_of_the_cases_passes_on_a_board(tmp_path: Path) -> None:
    assert not failures_of(accepted_cases()[::_STRIDE], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_cases_pass_on_a_board(batch: int, tmp_path: Path) -> None:
    assert not failures_of(accepted_cases()[batch::BATCHES], tmp_path)
