# SPDX-License-Identifier: Apache-2.0
"""ONNX's operators in models drawn at random, and at each version of them: right by one of the references."""

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

_SIDE_BY_SIDE = 14
_OFTEN = 10  # A sample has one of so many operators.


def surprises(cases: Sequence[Case], directory: Path) -> list[str]:
    """Return what is not right of cases."""
    outcomes = onnx_suite.judge(cases, directory, onnx_random.difference)
    return [
        f"{case.operator}, version {case.opset}: {outcomes[case.name].verdict}: {outcomes[case.name].text}"
        for case in cases
        if outcomes[case.name].verdict != "right"
    ]


def _drawn(names: Sequence[str], number: int) -> list[Case]:
    cases = [onnx_random.drawn(name, number, f"m{count}_{number}") for count, name in enumerate(names)]
    return [case for case in cases if case]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_a_sample_of_models_drawn_at_random_is_right(part: int, tmp_path: Path) -> None:
    names = list(onnx_random.OPERATORS)[part::_OFTEN]
    assert not surprises([*_drawn(names, 0), *_drawn(names, 1)], tmp_path)


def _chained(numbers: range) -> list[Case]:
    """Return chains of operators: of floats, and of 8 bits."""
    cases = []
    for number in numbers:
        for kind, drawing in (("floats", onnx_chains.chain), ("8 bits", onnx_chains.quantised_chain)):
            random = np.random.default_rng([number, len(kind)])
            draw = Draw(int(random.integers(20, 23)), random)
            cases.append(onnx_random.made_by(drawing, f"chain {number} of {kind}", draw, f"m{len(cases)}"))
    return [case for case in cases if case]


@pytest.mark.slow
def test_chains_of_operators_are_right(tmp_path: Path) -> None:
    cases = _chained(range(4))
    assert len(cases) > 6
    assert not surprises(cases, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(100, 400, 15))
def test_so_are_other_chains(first: int, tmp_path: Path) -> None:
    assert not surprises(_chained(range(first, first + 15)), tmp_path)


def _walked(versions: Mapping[str, Sequence[int]]) -> list[Case]:
    """Return models of operators at versions of the operator set, those of a version side by side."""
    cases: list[Case] = []
    for opset in sorted({each for several in versions.values() for each in several}):
        names = [name for name, several in versions.items() if opset in several]
        tries = ((onnx_random.drawn(name, number, "m", opset) for number in range(3)) for name in names)
        alike = [case for case in (next(filter(None, each), None) for each in tries) if case]
        for begin in range(0, len(alike), _SIDE_BY_SIDE):
            cases.append(onnx_random.joined(alike[begin : begin + _SIDE_BY_SIDE], f"m{len(cases)}"))
    return cases


def _ends(low: int, high: int) -> dict[str, list[int]]:
    """Return the versions before which the definition of an operator changes, and the newest."""
    return {
        name: [last for _, last in onnx_random.definitions(name) if low <= last <= high]
        for name in onnx_random.OPERATORS
    }


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(OLDEST, 10), (11, 12)])
def test_operators_are_right_at_older_opset_versions(low: int, high: int, tmp_path: Path) -> None:
    assert not surprises(_walked(_ends(low, high)), tmp_path)


@pytest.mark.slow
def test_what_onnx_takes_apart_is_right_at_the_newest_version(tmp_path: Path) -> None:
    schemas = {each.name: each for each in onnx.defs.get_all_schemas()}
    parts = {name for name, each in schemas.items() if each.has_function or each.has_context_dependent_function}
    names = [name for name in onnx_random.OPERATORS if name in parts]
    assert not surprises(_walked({name: [NEWEST] for name in names}), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("low", "high"), [(13, 17), (18, 21), (22, NEWEST - 1), (NEWEST, NEWEST)])
def test_so_is_it_at_the_last_of_each_newer_one(low: int, high: int, tmp_path: Path) -> None:
    assert not surprises(_walked(_ends(low, high)), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("low", "high"), [(OLDEST, 12), (13, 17), (18, 22), (23, NEWEST)])
def test_so_is_it_at_the_first_of_each(low: int, high: int, tmp_path: Path) -> None:
    begins = {
        name: [first for first, _ in onnx_random.definitions(name) if low <= first <= high]
        for name in onnx_random.OPERATORS
    }
    assert not surprises(_walked(begins), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(2, 30))
def test_so_are_other_models(number: int, tmp_path: Path) -> None:
    assert not surprises(_drawn(list(onnx_random.OPERATORS), number), tmp_path)
