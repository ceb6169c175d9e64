# SPDX-License-Identifier: Apache-2.0
"""How the verdict follows from the outcomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.errors import ExitCode
from utvm.hil.results import CaseResult, Outcome, Verdict, Whereabouts, board_entry, decide, first_line

# What had not run has no say.
_ENDED = [outcome for outcome in Outcome if outcome is not Outcome.NOT_RUN]
_OUTCOMES = st.lists(st.sampled_from(_ENDED), max_size=8)


def _cases(outcomes: list[Outcome]) -> list[CaseResult]:
    return [CaseResult(f"test_x.py::test_{n}", outcome, 0.0) for n, outcome in enumerate(outcomes)]


@given(_OUTCOMES, st.sampled_from(["", "OpenOCD died"]), st.booleans())
def test_a_pass_takes_a_passed_test_and_nothing_wrong(outcomes: list[Outcome], trouble: str, interrupted: bool) -> None:
    verdict, _ = decide(_cases(outcomes), trouble=trouble, interrupted=interrupted)
    nothing_wrong = not trouble and not interrupted and set(outcomes) <= {Outcome.PASSED, Outcome.SKIPPED}
    assert (verdict is Verdict.PASSED) == (nothing_wrong and Outcome.PASSED in outcomes)


@given(_OUTCOMES)
def test_a_test_without_an_answer_leaves_no_verdict(outcomes: list[Outcome]) -> None:
    verdict, _ = decide(_cases([*outcomes, Outcome.INFRASTRUCTURE]), trouble="", interrupted=False)
    assert verdict is Verdict.INFRASTRUCTURE


@given(_OUTCOMES)
def test_an_error_in_a_test_is_no_word_of_the_board(outcomes: list[Outcome]) -> None:
    verdict, why = decide(_cases([*outcomes, Outcome.ERROR]), trouble="", interrupted=False)
    assert verdict is (Verdict.INFRASTRUCTURE if Outcome.INFRASTRUCTURE in outcomes else Verdict.ERROR)
    assert why


@given(_OUTCOMES)
def test_failed_takes_an_answer_of_the_board(outcomes: list[Outcome]) -> None:
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


def test_nothing_that_ran_is_said_to_be_the_reason() -> None:
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
def test_a_log_that_follows_is_left_out_where_there_is_one_line(text: str, brief: str) -> None:
    assert first_line(text) == brief


def test_first_infrastructure_test_is_the_reason() -> None:
    cases = [
        CaseResult("a/test_x.py::test_1", Outcome.ERROR, 0.0, "a mistake\nmore"),
        CaseResult("a/test_x.py::test_2", Outcome.INFRASTRUCTURE, 0.0, "unplugged\nmore"),
        CaseResult("a/test_x.py::test_3", Outcome.INFRASTRUCTURE, 0.0, "unplugged still"),
    ]
    lost = (Verdict.INFRASTRUCTURE, "infrastructure trouble in a/test_x.py::test_2: unplugged")
    assert decide(cases, trouble="", interrupted=False) == lost
    assert decide(cases, trouble="OpenOCD died", interrupted=False) == lost
    assert decide(cases[:1], trouble="OpenOCD died", interrupted=False)[1] == "OpenOCD died"
    assert decide(cases[:1], trouble="", interrupted=False) == (Verdict.ERROR, "a/test_x.py::test_1: a mistake")
    assert decide(cases, trouble="", interrupted=True) == (Verdict.INTERRUPTED, "interrupted before the end")


def test_a_case_is_named_by_its_suite_and_itself() -> None:
    case = CaseResult("a/b/test_x.py::TestY::test_z[1]", Outcome.PASSED, 0.0)
    assert (case.id, case.suite, case.name) == ("x::TestY::test_z[1]", "test_x.py", "TestY::test_z[1]")
    whole = CaseResult("a/test_x.py", Outcome.ERROR, 0.0)
    assert (whole.id, whole.suite, whole.name) == ("x", "test_x.py", "test_x.py")
    troubled = {Outcome.FAILED, Outcome.ERROR, Outcome.INFRASTRUCTURE}
    assert {outcome for outcome in Outcome if outcome.has_trouble} == troubled


def test_a_board_is_taken_apart_into_its_name_and_settings() -> None:
    assert board_entry("pynq-z1:driver=qemu,memory=a=b") == {
        "id": "pynq-z1:driver=qemu,memory=a=b",
        "name": "pynq-z1",
        "settings": {"driver": "qemu", "memory": "a=b"},
    }


@pytest.mark.parametrize(
    ("kind", "environment", "spoken"),
    [
        ("host", "", ""),
        ("docker", "", "in docker, with other tools than the lock's"),
        ("vm", "0123456789abcdef", "in vm, environment 0123456789ab"),
    ],
)
def test_a_place_is_spoken_of_where_it_is_no_usual_one(kind: str, environment: str, spoken: str) -> None:
    place = Whereabouts(kind, environment, "", "here", {})
    assert (place.title, place.frozen) == (spoken, bool(environment))
