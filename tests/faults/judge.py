# SPDX-License-Identifier: Apache-2.0
"""Says how a run has ended, and whether anything that it said is not so."""

import re
from collections.abc import Mapping
from typing import Any

from tests.faults.course import Left

# A suite's own verdict on a board that works, and its exit code.
TRUTH = {"right": ("passed", 0), "wrong": ("failed", 1)}
_WORDS = {"PASSED": "passed", "FAILED": "failed", "NO VERDICT": "none"}
_NO_ANSWER = ("interrupted", "infrastructure")


def ending_of(left: Left, suite: str, *, signals: tuple[int, ...] = (), owes_report: bool = True) -> str:
    """Return the ending, one of the table's, or what is wrong with it.

    Args:
        signals: those that the command itself was struck with.
        owes_report: whether it had begun, and has a disk to write on.
    """
    said = (left.report or {}).get("verdict", "")
    if left.exit_code is None:
        return "hangs"
    if "Traceback (most recent call last)" in left.output:
        return "traceback"
    if lie := _lie(left, suite):
        return lie
    if left.exit_code < 0:
        return _death(left, signals, said)
    return _word(left.exit_code, said, suite, owes_report)


def _death(left: Left, signals: tuple[int, ...], said: str) -> str:
    number = -(left.exit_code or 0)
    if number not in signals:
        return f"died of signal {number}"
    return "killed" if left.output or said else "unbegun"


def _word(exit_code: int, said: str, suite: str, owes_report: bool) -> str:
    verdict, code = TRUTH[suite]
    if exit_code == code:
        return "answer" if said == verdict else f"exit code {code} with the report {said or 'missing'}"
    if exit_code != 3:
        return f"exit code {exit_code}"
    if said:
        return "none" if said in _NO_ANSWER else f"exit code 3 with the report {said}"
    return "the report is lost" if owes_report else "none"


def _lie(left: Left, suite: str) -> str:
    """Return what of the last line or the report contradicts what is so, or what the other says."""
    lines = [line for line in left.output.splitlines() if re.match(r"(PASSED|FAILED|NO VERDICT)\b.* on a ", line)]
    spoken = [next(word for said, word in _WORDS.items() if line.startswith(said)) for line in lines]
    truth = TRUTH[suite][0]
    if {*spoken} - {truth, "none"}:
        return f"says {', '.join(spoken)} of a suite that is {truth}"
    report: Mapping[str, Any] = left.report or {}
    written = report.get("verdict", "")
    if written and written not in (truth, *_NO_ANSWER):
        return f"reports {written} of a suite that is {truth}"
    # In a farm, a run without a verdict is followed by one on another board: the last word is that of the report.
    if written and spoken and (spoken[-1] == "none") != (written in _NO_ANSWER):
        return f"says {', '.join(spoken)} and reports {written}"
    for test in report.get("tests", ()):
        right = "failed" if suite == "wrong" and not test["id"].endswith("[2]") else "passed"
        if test["outcome"] not in (right, "not run", "infrastructure"):
            return f"reports {test['outcome']} of a test that is {right}"
        if written == truth and test["outcome"] != right:
            return f"reports {written} without an answer of each test"
    return ""
