# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend cases on a Cortex-M7, many in one firmware: right by the suite's own tolerances."""

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
_MOST_BYTES = 200_000  # Of working memory: what is left of the board's RAM when several libraries share it.
_STRIDE = 80
BATCHES = 12


def _right() -> list[str]:
    refused = {name for names in REFUSED.values() for name in names}
    return [name for name in onnx_suite.cases() if name not in refused]


def wrong(names: Sequence[str], logs: Path) -> list[str]:
    """Return what is not right of some cases, which are run on a virtual board."""
    found, libraries = [], {}
    cases = [onnx_suite.cases()[name] for name in names]
    for case, answer in zip(cases, onnx_suite.compiled(cases), strict=True):
        if not isinstance(answer, Library):
            found.append(f"{case.name} is refused: {answer}")
        elif answer.arena_bytes <= _MOST_BYTES:
            libraries[case.name] = answer
    assert len(libraries) > len(names) // 2
    board = boards.load(BOARD)
    image = firmware.build(board, list(libraries.values()))
    with attach(board, "virtual", log_directory=logs) as connection, HostDriven(connection, image) as session:
        for case in cases:
            if case.name in libraries:
                answers = [list(session.run(case.name, given).outputs) for given, _ in case.sets]
                text = onnx_suite.difference(case, answers)
                found += [f"{case.name} is wrong: {text}"] if text else []
    return found


@pytest.mark.slow
def test_a_sample_of_the_cases_is_right_on_a_microcontroller(tmp_path: Path) -> None:
    assert not wrong(_right()[::_STRIDE], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_of_them_are(batch: int, tmp_path: Path) -> None:
    assert not wrong(_right()[batch::BATCHES], tmp_path)
