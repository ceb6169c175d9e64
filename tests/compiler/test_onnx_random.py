# SPDX-License-Identifier: Apache-2.0
"""Random models of ONNX's operators, in each version of their definition, equal one of the references."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx.defs
import onnx_chains
import onnx_random
import onnx_suite
import pytest
from onnx_draw import NEWEST, OLDEST, Draw
from onnx_random import Case

_MODELS_PER_CASE = 14
_STRIDE = 10  # A sample has one of ten operators.


def failures_of(cases: Sequence[Case], directory: Path) -> list[str]:
    """Failures of cases, as messages."""
    outcomes = onnx_suite.judge(cases, directory, onnx_random.difference)
    return [
        f"{case.operator}, version {case.opset}: {outcomes[case.name].verdict}: {outcomes[case.name].text}"
        for case in cases
        if outcomes[case.name].verdict != "right"
    ]


def draw_cases(names: Sequence[str], number: int) -> list[Case]:
    cases = [onnx_random.draw_case(name, number, f"m{count}_{number}") for count, name in enumerate(names)]
    return [case for case in cases if case]


@pytest.mark.slow
@pytest.mark.parametrize("start", range(2))
def test_sample_of_random_models_is_correct(start: int, tmp_path: Path) -> None:
    names = list(onnx_random.OPERATORS)[start::_STRIDE]
    assert not failures_of([*draw_cases(names, 0), *draw_cases(names, 1)], tmp_path)


def draw_chains(numbers: range) -> list[Case]:
    """Chains of operators: of floats, and of 8 bits."""
    cases = []
    for number in numbers:
        for kind, drawing in (("floats", onnx_chains.chain), ("8 bits", onnx_chains.quantised_chain)):
            random = np.random.default_rng([number, len(kind)])
            draw = Draw(int(random.integers(20, 23)), random)
            cases.append(onnx_random.build_case(drawing, f"chain {number} of {kind}", draw, f"m{len(cases)}"))
    return [case for case in cases if case]


@pytest.mark.slow
def test_chains_of_operators_are_correct(tmp_path: Path) -> None:
    cases = draw_chains(range(4))
    assert len(cases) > 6
    assert not failures_of(cases, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(100, 400, 15))
def test_many_chains_of_operators_are_correct(first: int, tmp_path: Path) -> None:
    assert not failures_of(draw_chains(range(first, first + 15)), tmp_path)


def draw_versions(versions: Mapping[str, Sequence[int]]) -> list[Case]:
    """Models of operators at versions of the operator set; models of one version are joined."""
    cases: list[Case] = []
    for opset in sorted({opset_value for opsets in versions.values() for opset_value in opsets}):
        names = [name for name, opsets in versions.items() if opset in opsets]
        attempts_of_operators = (
            (onnx_random.draw_case(name, number, "m", opset) for number in range(3)) for name in names
        )
        drawn = [case for case in (next(filter(None, attempts), None) for attempts in attempts_of_operators) if case]
        for first in range(0, len(drawn), _MODELS_PER_CASE):
            cases.append(onnx_random.join_cases(drawn[first : first + _MODELS_PER_CASE], f"m{len(cases)}"))
    return cases


def last_versions(low: int, high: int) -> dict[str, list[int]]:
    """The last version of each definition of an operator."""
    return {
        name: [last for _, last in onnx_random.definitions(name) if low <= last <= high]
        for name in onnx_random.OPERATORS
    }


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(OLDEST, 10), (11, 12)])
def test_operators_are_correct_at_older_versions(low: int, high: int, tmp_path: Path) -> None:
    assert not failures_of(draw_versions(last_versions(low, high)), tmp_path)


@pytest.mark.slow
def test_composite_operators_are_correct(tmp_path: Path) -> None:
    schemas = {schema.name: schema for schema in onnx.defs.get_all_schemas()}
    composite = {
        name for name, schema in schemas.items() if schema.has_function or schema.has_context_dependent_function
    }
    names = [name for name in onnx_random.OPERATORS if name in composite]
    assert not failures_of(draw_versions({name: [NEWEST] for name in names}), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("low", "high"), [(13, 17), (18, 21), (22, NEWEST - 1), (NEWEST, NEWEST)])
def test_operators_are_correct_at_last_versions(low: int, high: int, tmp_path: Path) -> None:
    assert not failures_of(draw_versions(last_versions(low, high)), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("low", "high"), [(OLDEST, 12), (13, 17), (18, 22), (23, NEWEST)])
def test_operators_are_correct_at_first_versions(low: int, high: int, tmp_path: Path) -> None:
    first_versions = {
        name: [first for first, _ in onnx_random.definitions(name) if low <= first <= high]
        for name in onnx_random.OPERATORS
    }
    assert not failures_of(draw_versions(first_versions), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(2, 30))
def test_many_random_models_are_correct(number: int, tmp_path: Path) -> None:
    assert not failures_of(draw_cases(list(onnx_random.OPERATORS), number), tmp_path)
