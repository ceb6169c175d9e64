# SPDX-License-Identifier: Apache-2.0
"""A tenth of a farm's year, from benchmarks/history.py: small, with fast queries."""

import pytest

from benchmarks.history import main


@pytest.mark.nightly
def test_history_stays_small_and_fast() -> None:
    boards, nights = 10, 120
    figures = main(boards, nights)
    assert figures.pop("bytes") < 23 * 300 * boards * nights
    assert figures.pop("the pages of a night") < 1
    assert max(figures.values()) < 0.3, figures
