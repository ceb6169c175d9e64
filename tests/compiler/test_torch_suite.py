# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operators equal PyTorch, or are refused for a listed reason."""

import importlib.util
from pathlib import Path

import pytest
import torch_draw
import torch_suite

_needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch, of the optional extra torch, is not installed"
)


@pytest.mark.nightly
@_needs_torch
@pytest.mark.parametrize("batch", range(8))
def test_programs_are_correct_or_refused_as_listed(batch: int, tmp_path: Path) -> None:
    outcomes = torch_suite.judge(torch_suite.cases()[batch::8], tmp_path)
    expected = {case for names in torch_suite.lists().values() for case in names}
    wrong = [
        f"{case}: {outcome.verdict} {outcome.text}"
        for case, outcome in outcomes.items()
        if outcome.verdict != ("refused" if case in expected else "right")
    ]
    assert not wrong, "\n".join(wrong)


def test_refusal_list_is_unique() -> None:
    listed = [case for names in torch_suite.lists().values() for case in names]
    assert len(listed) == len(set(listed)) and set(listed) <= set(torch_suite.cases())


@pytest.mark.nightly
@_needs_torch
@pytest.mark.parametrize("seed", range(60))
def test_random_arguments_equal_pytorch_or_are_refused(seed: int, tmp_path: Path) -> None:
    programs = list(torch_draw.draw_programs(seed))
    outcomes = torch_suite.judge_programs(programs, tmp_path)
    wrong = [f"{case}: {outcome.text}" for case, outcome in outcomes.items() if outcome.verdict == "wrong"]
    assert not wrong, "\n".join(wrong)
    # Most refusals are of linear algebra and special functions.
    assert sum(outcome.verdict == "right" for outcome in outcomes.values()) > len(programs) * 0.6


@_needs_torch
def test_importers_table_names_valid_arguments() -> None:
    for name, arguments in torch_draw.arguments().items():
        known = {argument.name for argument in torch_draw.aten(name)._schema.arguments}
        assert set(arguments) - {"False"} <= known, name
