# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch: right as PyTorch computes them, or refused for the reason that is written down."""

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
def test_one_operator_programs_are_right_or_refused_as_listed(batch: int, tmp_path: Path) -> None:
    outcomes = torch_suite.judge(torch_suite.cases()[batch::8], tmp_path)
    expected = {case for names in torch_suite.lists().values() for case in names}
    wrong = [
        f"{case}: {outcome.verdict} {outcome.text}"
        for case, outcome in outcomes.items()
        if outcome.verdict != ("refused" if case in expected else "right")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_list_of_refusals_names_cases_each_once() -> None:
    listed = [case for names in torch_suite.lists().values() for case in names]
    assert len(listed) == len(set(listed)) and set(listed) <= set(torch_suite.cases())


@pytest.mark.nightly
@_needs_torch
@pytest.mark.parametrize("seed", range(60))
def test_drawn_arguments_of_an_operator_give_pytorchs_results_or_a_refusal(seed: int, tmp_path: Path) -> None:
    drawn = list(torch_draw.programs(seed))
    outcomes = torch_suite.judge_programs(drawn, tmp_path)
    wrong = [f"{case}: {outcome.text}" for case, outcome in outcomes.items() if outcome.verdict == "wrong"]
    assert not wrong, "\n".join(wrong)
    assert sum(outcome.verdict == "right" for outcome in outcomes.values()) > len(drawn) * 0.8


@_needs_torch
def test_the_importers_table_names_arguments_of_the_schemas() -> None:
    for name, arguments in torch_draw.arguments().items():
        known = {argument.name for argument in torch_draw.aten(name)._schema.arguments}
        assert set(arguments) - {"False"} <= known, name
