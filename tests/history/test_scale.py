# SPDX-License-Identifier: Apache-2.0
"""A tenth of a farm's year, as benchmarks/history.py makes it: small, and every question answered at once."""

import pytest

from benchmarks.history import main


@pytest.mark.nightly
def test_a_history_stays_small_and_answers_at_once() -> None:
    boards, nights = 10, 120
    seen = main(boards, nights)
    assert seen.pop("bytes") < 23 * 300 * boards * nights
    assert seen.pop("the pages of a night") < 1
    assert max(seen.values()) < 0.3, seen
