# SPDX-License-Identifier: Apache-2.0
"""Tests notice most mutants of the code that decides verdicts; each survivor has a reason."""

from pathlib import Path

import pytest
import yaml

from tests.mutants.campaign import candidates, copy_checkout, run
from tests.mutants.mutate import draw, mutants

COUNT, SEED = 300, 1
_LEAST_KILLED, _LEAST_QUICK = 0.95, 0.8
_SURVIVORS = Path(__file__).with_name("survivors.yaml")


def _reasons() -> dict[str, str]:
    reasons: dict[str, str] = yaml.safe_load(_SURVIVORS.read_text(encoding="utf-8"))
    return reasons


def test_mutant_is_one_change(tmp_path: Path) -> None:
    source = "def f(a: int = 1) -> int:\n    if a < 2 and not a:\n        g()\n    return f'{a + 1}'  # 3\n"
    (tmp_path / "m.py").write_text(source)
    result = [(mutant.scope, mutant.apply(source.encode()).decode()) for mutant in mutants(tmp_path, "m.py")]
    changes = [
        ("a < 2 and not a", "(a < 2 or not a)"),
        ("a < 2", "(a <= 2)"),
        ("2", "(3)"),
        ("2", "(1)"),
        ("not a", "(a)"),
        ("g()", "pass"),
        ("return f'{a + 1}'", "return None"),
        ("= 1", "= (2)"),
        ("= 1", "= (0)"),
    ]
    assert sorted(result) == sorted(("f", source.replace(before, after, 1)) for before, after in changes)


@pytest.mark.slow
def test_survivors_exist_and_have_a_reason() -> None:
    names = {mutant.name for mutant in candidates()}
    assert set(_reasons()) <= names
    assert all(reason.strip() for reason in _reasons().values())


@pytest.mark.nightly
def test_tests_notice_mutants_of_verdict_code(tmp_path: Path) -> None:
    results = list(run(copy_checkout(tmp_path), draw(candidates(), COUNT, SEED)))
    survivors = [result.mutant.name for result in results if result.killer == "none"]
    quick = sum(result.killer == "quick" for result in results)
    assert not set(survivors) - set(_reasons())
    assert len(results) - len(survivors) >= _LEAST_KILLED * len(results)
    assert quick >= _LEAST_QUICK * (len(results) - len(survivors))
