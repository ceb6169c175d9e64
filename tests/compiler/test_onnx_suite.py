# SPDX-License-Identifier: Apache-2.0
"""ONNX's own backend cases are correct by the suite's tolerances, or refused for a listed reason."""

from pathlib import Path

import onnx_suite
import operators_page
import pytest
import yaml

from utvm.paths import ROOT

BATCHES = 12

REFUSED: dict[str, list[str]] = yaml.safe_load(
    (Path(__file__).parent / "onnx_refused.yaml").read_text(encoding="utf-8")
)
"""Error messages, and the cases with these errors."""

# Words of TVM, Python, gcc or a crash.
FOREIGN = ("TVM", "Check failed", "gcc", "object has no attribute", "out of range", "Traceback")


def _sample(reasons: dict[str, str]) -> list[onnx_suite.Case]:
    """The last correct case of each operator, and the last refused one for each reason."""
    sample = {}
    for name, case in onnx_suite.cases().items():
        operators = frozenset(node.op_type for node in case.model.graph.node)
        sample[operators, reasons.get(name)] = case
    return list(sample.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "batch", ["sample", *(pytest.param(number, marks=pytest.mark.nightly) for number in range(BATCHES))]
)
def test_cases_are_correct_or_refused_as_listed(batch: int | str, tmp_path: Path) -> None:
    reasons = {name: reason for reason, names in REFUSED.items() for name in names}
    if isinstance(batch, int):
        cases = list(onnx_suite.cases().values())[batch::BATCHES]
    else:
        cases = _sample(reasons)
        assert len(cases) >= 195
    failures = []
    for name, outcome in onnx_suite.judge(cases, tmp_path).items():
        reason = reasons.get(name)
        if outcome.verdict == "wrong":
            failures.append(f"{name} is wrong: {outcome.text}")
        elif outcome.verdict == "right" and reason:
            failures.append(f"{name} is right: take it off the list of what is refused")
        elif outcome.verdict == "refused" and (not reason or reason not in outcome.text):
            failures.append(f"{name} is refused for another reason than is listed: {outcome.text}")
        elif outcome.verdict == "refused" and any(word in outcome.text for word in FOREIGN):
            failures.append(f"{name} is refused in somebody else's words: {outcome.text}")
    assert not failures, "\n".join(failures)


@pytest.mark.slow
def test_refusal_list_is_in_scope_unique_and_short() -> None:
    listed = [name for names in REFUSED.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(listed) <= onnx_suite.cases().keys()
    assert len(onnx_suite.cases()) - len(listed) >= 1000


@pytest.mark.slow
def test_page_of_operators_is_current() -> None:
    written = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert written == operators_page.page(), "write it: python tests/compiler/operators_page.py"
