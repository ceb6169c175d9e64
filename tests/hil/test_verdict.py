# SPDX-License-Identifier: Apache-2.0
"""The verdict follows from the outcomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.errors import ExitCode
from utvm.hil.results import CaseResult, Outcome, Verdict, Whereabouts, board_entry, decide, first_line

# Tests that did not run have no influence.
_ENDED = [outcome for outcome in Outcome if outcome is not Outcome.NOT_RUN]
_OUTCOMES = st.lists(st.sampled_from(_ENDED), max_size=8)


def _cases(outcomes: list[Outcome]) -> list[CaseResult]:
    return [CaseResult(f"test_x.py::test_{n}", outcome, 0.0) for n, outcome in enumerate(outcomes)]


@given(_OUTCOMES, st.sampled_from(["", "OpenOCD died"]), st.booleans())
def test_pass_needs_a_passed_test_and_no_errors(outcomes: list[Outcome], trouble: str, interrupted: bool) -> None:
    verdict, _ = decide(_cases(outcomes), trouble=trouble, interrupted=interrupted)
    nothing_wrong = not trouble and not interrupted and set(outcomes) <= {Outcome.PASSED, Outcome.SKIPPED}
    assert (verdict is Verdict.PASSED) == (nothing_wrong and Outcome.PASSED in outcomes)


@given(_OUTCOMES)
def test_infrastructure_outcome_means_no_verdict(outcomes: list[Outcome]) -> None:
    verdict, _ = decide(_cases([*outcomes, Outcome.INFRASTRUCTURE]), trouble="", interrupted=False)
    assert verdict is Verdict.INFRASTRUCTURE


@given(_OUTCOMES)
def test_error_in_a_test_means_no_verdict(outcomes: list[Outcome]) -> None:
    verdict, why = decide(_cases([*outcomes, Outcome.ERROR]), trouble="", interrupted=False)
    assert verdict is (Verdict.INFRASTRUCTURE if Outcome.INFRASTRUCTURE in outcomes else Verdict.ERROR)
    assert why


@given(_OUTCOMES)
def test_failure_needs_results_of_all_tests(outcomes: list[Outcome]) -> None:
    verdict, _ = decide(_cases(outcomes), trouble="", interrupted=False)
    answers = {Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED}
    assert (verdict is Verdict.FAILED) == (Outcome.FAILED in outcomes and set(outcomes) <= answers)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.PASSED, ExitCode.PASSED),
        (Verdict.FAILED, ExitCode.FAILED),
        (Verdict.ERROR, ExitCode.USAGE),
        (Verdict.INFRASTRUCTURE, ExitCode.INFRASTRUCTURE),
        (Verdict.INTERRUPTED, ExitCode.INFRASTRUCTURE),
    ],
)
def test_exit_codes(verdict: Verdict, code: ExitCode) -> None:
    assert verdict.exit_code is code


def test_verdict_without_tests_has_a_reason() -> None:
    assert decide(_cases([Outcome.SKIPPED]), trouble="", interrupted=False) == (Verdict.ERROR, "no test ran")


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("no such probe\nit says", "no such probe"),
        (
            "OpenOCD ended unexpectedly (exit code 1); its log /x/y ends with:\nError: z",
            "OpenOCD ended unexpectedly (exit code 1)",
        ),
        ("gcc failed with exit code 1:\nx.c:1: error", "gcc failed with exit code 1"),
        ("", ""),
    ],
)
def test_first_line_omits_the_log(text: str, brief: str) -> None:
    assert first_line(text) == brief


def test_first_infrastructure_test_is_the_reason() -> None:
    cases = [
        CaseResult("a/test_x.py::test_1", Outcome.ERROR, 0.0, "a mistake\nmore"),
        CaseResult("a/test_x.py::test_2", Outcome.INFRASTRUCTURE, 0.0, "unplugged\nmore"),
        CaseResult("a/test_x.py::test_3", Outcome.INFRASTRUCTURE, 0.0, "unplugged still"),
    ]
    expected = (Verdict.INFRASTRUCTURE, "infrastructure trouble in a/test_x.py::test_2: unplugged")
    assert decide(cases, trouble="", interrupted=False) == expected
    assert decide(cases, trouble="OpenOCD died", interrupted=False) == expected
    assert decide(cases[:1], trouble="OpenOCD died", interrupted=False)[1] == "OpenOCD died"
    assert decide(cases[:1], trouble="", interrupted=False) == (Verdict.ERROR, "a/test_x.py::test_1: a mistake")
    assert decide(cases, trouble="", interrupted=True) == (Verdict.INTERRUPTED, "interrupted before the end")


def test_case_is_named_by_suite_and_test() -> None:
    case = CaseResult("a/b/test_x.py::TestY::test_z[1]", Outcome.PASSED, 0.0)
    assert (case.id, case.suite, case.name) == ("x::TestY::test_z[1]", "test_x.py", "TestY::test_z[1]")
    suite = CaseResult("a/test_x.py", Outcome.ERROR, 0.0)
    assert (suite.id, suite.suite, suite.name) == ("x", "test_x.py", "test_x.py")
    troubled = {Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE}
    assert {outcome for outcome in Outcome if outcome.has_trouble} == troubled


def test_board_is_split_into_name_and_settings() -> None:
    assert board_entry("pynq-z1:driver=qemu,memory=a=b") == {
        "id": "pynq-z1:driver=qemu,memory=a=b",
        "name": "pynq-z1",
        "settings": {"driver": "qemu", "memory": "a=b"},
    }


@pytest.mark.parametrize(
    ("kind", "environment", "title"),
    [
        ("host", "", ""),
        ("docker", "", "in docker, with other tools than the lock's"),
        ("vm", "0123456789abcdef", "in vm, environment 0123456789ab"),
    ],
)
def test_unusual_location_has_a_title(kind: str, environment: str, title: str) -> None:
    place = Whereabouts(kind, environment, "", "here", {})
    assert (place.title, place.frozen) == (title, bool(environment))
