# SPDX-License-Identifier: Apache-2.0
"""A few of many cases run by day; the others are nightly."""

from collections.abc import Iterable

import pytest


def by_day(cases: Iterable[object], *daily: object) -> list[object]:
    """Return cases for ``parametrize``; all but the daily ones are nightly."""
    marked = [
        case
        if case in daily
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
        for case in cases
    ]
    assert sum(case in daily for case in marked) == len(daily), "a daily case is none of the cases"
    return marked
