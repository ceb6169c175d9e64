# SPDX-License-Identifier: Apache-2.0
"""Changes in histories that were imported from reports."""

import itertools
import re
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.history.reports import BAD, GOOD, WORSE, Query, project, query, report_of
from utvm.history.changes import Flicker, chance

__all__ = ["project", "query"]


@pytest.mark.slow
def test_changed_count_names_its_commits(query: Query) -> None:
    result = query(
        *("history.changes", "--since", "2026-11-02"),
        reports=(
            report_of(1, GOOD, models={"digits": {"instructions": 1000}}),
            report_of(2, BAD, models={"digits": {"instructions": 1007}}),
            report_of(3, WORSE, models={"digits": {"instructions": 1007}}),
        ),
    )
    (change,) = result["changes"]
    assert change == {
        "what": "instructions",
        "name": "digits (host-driven)",
        "board": "VIRTUAL stm32f746",
        "was": 1000,
        "now": 1007,
        "last": GOOD,
        "first": BAD,
        "at": "2026-11-02T01:00:00Z",
        "sure": 1.0,
    }
    assert query("history.changes", "--since", "2026-11-03")["changes"] == []
    # Since the last run of a commit, by its first digits; by default since the last night.
    assert len(query("history.changes", "--since", GOOD[:8])["changes"]) == 1
    assert query("history.changes", "--since", BAD)["changes"] == []
    assert query("history.changes")["changes"] == []
    assert "+7 (+0.70 %)" in inv("history.changes", "--since", "2026-11-02").stdout
    for wrong in ("yesterday", "2026-13-13", "ffff"):
        refused = inv("history.changes", "--since", wrong)
        assert (refused.returncode, refused.stderr.count(wrong)) == (2, 1)


def test_changed_outputs_are_reported(query: Query) -> None:
    result = query(
        "history.changes",
        reports=(
            report_of(1, models={"digits": {}}, outputs="ab"),
            report_of(1, models={"digits": {"flash_bytes": 10}}, board="host", kind="process"),
            report_of(2, BAD, models={"digits": {}}, outputs="cd"),
            report_of(2, BAD, models={"digits": {"flash_bytes": 9}}, board="host", kind="process"),
        ),
    )
    assert {(change["what"], change["board"], change["was"], change["now"]) for change in result["changes"]} == {
        ("outputs_sha256", "VIRTUAL stm32f746", "abababababababab", "cdcdcdcdcdcdcdcd"),
        ("flash_bytes", "PROCESS host", 10, 9),
    }


def test_measured_figure_needs_two_windows(query: Query) -> None:
    def night(day: int, cycles: int) -> dict[str, object]:
        commit = GOOD if day <= 6 else BAD
        return report_of(day, commit, models={"digits": {"cycles": cycles}}, kind="physical")

    noise = [1000, 1003, 998, 1001, 999, 1002]
    first = [night(day, cycles) for day, cycles in enumerate(noise, 1)]
    later = [night(day, cycles + 40) for day, cycles in enumerate(noise[:4], 7)]
    assert query("history.changes", "--since", "2026-11-07", reports=(*first, *later))["changes"] == []
    result = query("history.changes", "--since", "2026-11-07", reports=(night(11, 1039),))
    (change,) = result["changes"]
    # All five values are above all six others, as in 2 of 462 ways to choose them.
    assert change["sure"] == pytest.approx(1 - 2 / 462, abs=1e-5)
    assert (change["was"], change["now"], change["last"], change["first"]) == (1000.5, 1040, GOOD, BAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]), ([1, 1, 2, 5, 5, 7], [1, 2, 2, 2, 9]), ([3, 3, 3, 3, 3], [3, 3, 3, 3, 3])],
)
def test_chance_counts_all_ways_to_choose_the_windows(before: list[int], after: list[int]) -> None:
    values = sorted(before + after)
    ranks = [sum(v < w for v in values) + (sum(v == w for v in values) + 1) / 2 for w in values]
    middle = len(after) * (len(values) + 1) / 2
    sums = [sum(subset) for subset in itertools.combinations(ranks, len(after))]
    observed = sum(sum(v < w for v in values) + (sum(v == w for v in values) + 1) / 2 for w in after)
    extreme = [total for total in sums if abs(total - middle) >= abs(observed - middle)]
    assert chance(before, after) == pytest.approx(len(extreme) / len(sums))


def test_breaks_and_fixes_are_found_despite_infrastructure(query: Query) -> None:
    nights = (
        report_of(1, GOOD, tests={"test_a": "passed", "test_b": "failed", "test_c": "passed", "test_d": "failed"}),
        report_of(2, BAD, tests={"test_a": "failed", "test_b": "passed", "test_c": "infrastructure"}),
        report_of(3, WORSE, tests={"test_a": "error", "test_c": "skipped", "test_d": "infrastructure"}),
    )
    result = query("history.changes", "--since", "2026-11-02", reports=nights)
    assert [
        (change["what"], change["name"], change["was"], change["now"], change["first"]) for change in result["changes"]
    ] == [("test", "it::test_a", "passed", "failed", BAD), ("test", "it::test_b", "failed", "passed", BAD)]
    (state,) = query("history.trend", "test_a")["boards"]
    assert (state["now"], state["good"], state["bad"]) == ("failed", GOOD, BAD)
    assert (state["good_at"], state["message"]) == ("2026-11-01T01:00:00Z", "it said 3")
    (state,) = query("history.trend", "it::test_d")["boards"]
    assert (state["now"], state["good"], state["bad"]) == ("failed", None, GOOD)
    assert "test_x" in inv("history.trend", "test_x").stderr


@pytest.mark.slow
def test_flaky_means_both_outcomes_at_one_commit(query: Query) -> None:
    passed, failed, infrastructure = ({"test_a": outcome} for outcome in ("passed", "failed", "infrastructure"))
    nights = (
        report_of(1, GOOD, tests=passed),
        report_of(2, BAD, tests=failed),  # another commit
        report_of(3, GOOD, tests=infrastructure),  # no answer
        report_of(4, GOOD, tests=failed, kind="physical"),  # another kind
    )
    assert query("history.changes", "--flaky", "--since", "2026-11-01", reports=nights)["flaky"] == []
    changed = report_of(5, GOOD, tests=failed)
    changed["source"] = {"commit": GOOD, "dirty": True}
    assert query("history.changes", "--flaky", "--since", "2026-11-01", reports=(changed,))["flaky"] == []
    (flicker,) = query(
        "history.changes", "--flaky", "--since", "2026-11-01", reports=(report_of(6, GOOD, tests=failed),)
    )["flaky"]
    assert (flicker["test"], flicker["board"], flicker["commit"]) == ("it::test_a", "VIRTUAL stm32f746", GOOD)
    assert (flicker["passed"], flicker["failed"]) == (1, 1)
    # Even odds: 1/3 for an unknown failure rate, 2 * 0.01 * 0.99 for a stable test that was disturbed once.
    assert flicker["probability"] == pytest.approx((1 / 3) / (1 / 3 + 0.0198), abs=1e-4)
    assert [run[:8] for run in flicker["runs"]] == ["20261106"]
    often, once = (Flicker("a", "b", "c", 99, failed, "", ()).probability for failed in (20, 1))
    assert often > 0.999 and once < 0.06  # A disturbance gives one failure in a hundred.


@pytest.mark.slow
def test_trend_is_ordered_and_refuses_unknown_figures(query: Query, project: Path) -> None:
    nights = [report_of(day, models={"digits": {"instructions": 1000 + day}}) for day in (3, 1, 2)]
    points = query("history.trend", "digits:instructions", "--board", "stm32f746", reports=nights)["points"]
    assert [point["value"] for point in points] == [1001, 1002, 1003]
    refused = inv("history.trend", "digits:cycles")
    assert (refused.returncode, "digits has no figure 'cycles'" in refused.stderr) == (2, True)
    assert inv("history.export", "--output", "out.csv").returncode == 0
    rows = [line.split(",") for line in (project / "out.csv").read_text().splitlines()]
    assert rows[0][:4] == ["run_id", "started", "commit", "dirty"]
    assert sorted(row[-1] for row in rows if row[-2] == "instructions") == ["1001", "1002", "1003"]
    assert inv("history.export", "--output", "out.csv", "--format", "outcomes").returncode == 0
    assert (project / "out.csv").read_text().count(",it::test_a,passed,250,\n") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["changes --since 2026-11-02", "trend digits", "changes --flaky --since 2026-11-01", "trend test_a[one]"]
)
def test_table_is_complete_at_80_columns(query: Query, words: str) -> None:
    tests = [{"test_a[one]": outcomes} for outcomes in ("passed", "failed", "failed")]
    commits = (GOOD, BAD, GOOD)
    long = "a_board_of_ours_with_a_long_name"
    nights = tuple(
        report_of(day, commit, tests=outcomes, models={"digits": {"instructions": 10**6 + day}}, board=long)
        for day, (commit, outcomes) in enumerate(zip(commits, tests, strict=True), 1)
    )
    query("history.changes", reports=nights)
    wide, narrow = (inv(*f"history.{words}".split(), COLUMNS=columns) for columns in ("400", "80"))
    assert wide.returncode == narrow.returncode == 0
    assert "\\" not in wide.stdout
    assert max(map(len, narrow.stdout.splitlines()[:-1])) <= 80, narrow.stdout
    assert len(wide.stdout.splitlines()) > 1
    letters = [sorted(re.sub(r"\W", "", completed.stdout)) for completed in (wide, narrow)]
    assert letters[0] == letters[1], narrow.stdout
