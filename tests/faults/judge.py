# SPDX-License-Identifier: Apache-2.0
"""Classifies the ending of a run, and finds false statements in its output and report."""

import re
from collections.abc import Mapping
from typing import Any

from tests.faults.suite_run import Outcome

# A suite's verdict on a working board, and its exit code.
TRUTH = {"right": ("passed", 0), "wrong": ("failed", 1)}
_WORDS = {"PASSED": "passed", "FAILED": "failed", "NO VERDICT": "none"}
_NO_ANSWER = ("interrupted", "infrastructure")


def ending_of(outcome: Outcome, suite: str, *, signals: tuple[int, ...] = (), owes_report: bool = True) -> str:
    """Return the ending by its name in the table, or a description of the error.

    Args:
        signals: those that the command itself received.
        owes_report: whether it had started, and has a disk to write on.
    """
    verdict = (outcome.report or {}).get("verdict", "")
    if outcome.exit_code is None:
        return "hangs"
    if "Traceback (most recent call last)" in outcome.output:
        return "traceback"
    if lie := _false_statement(outcome, suite):
        return lie
    if outcome.exit_code < 0:
        return _death(outcome, signals, verdict)
    return _word(outcome.exit_code, verdict, suite, owes_report)


def _death(outcome: Outcome, signals: tuple[int, ...], verdict: str) -> str:
    number = -(outcome.exit_code or 0)
    if number not in signals:
        return f"died of signal {number}"
    return "killed" if outcome.output or verdict else "unbegun"


def _word(exit_code: int, verdict: str, suite: str, owes_report: bool) -> str:
    expected, code = TRUTH[suite]
    if exit_code == code:
        return "answer" if verdict == expected else f"exit code {code} with the report {verdict or 'missing'}"
    if exit_code != 3:
        return f"exit code {exit_code}"
    if verdict:
        return "none" if verdict in _NO_ANSWER else f"exit code 3 with the report {verdict}"
    return "the report is lost" if owes_report else "none"


def _false_statement(outcome: Outcome, suite: str) -> str:
    """Describe a contradiction between the last line, the report and the truth; an empty string without one."""
    lines = [line for line in outcome.output.splitlines() if re.match(r"(PASSED|FAILED|NO VERDICT)\b.* on a ", line)]
    printed = [next(word for prefix, word in _WORDS.items() if line.startswith(prefix)) for line in lines]
    truth = TRUTH[suite][0]
    if {*printed} - {truth, "none"}:
        return f"says {', '.join(printed)} of a suite that is {truth}"
    report: Mapping[str, Any] = outcome.report or {}
    written = report.get("verdict", "")
    if written and written not in (truth, *_NO_ANSWER):
        return f"reports {written} of a suite that is {truth}"
    # In a farm, a run without a verdict is followed by one on another board: the report agrees with the last line.
    if written and printed and (printed[-1] == "none") != (written in _NO_ANSWER):
        return f"says {', '.join(printed)} and reports {written}"
    for test in report.get("tests", ()):
        expected = "failed" if suite == "wrong" and not test["id"].endswith("[2]") else "passed"
        if test["outcome"] not in (expected, "not run", "infrastructure"):
            return f"reports {test['outcome']} of a test that is {expected}"
        if written == truth and test["outcome"] != expected:
            return f"reports {written} without an answer of each test"
    return ""
