# SPDX-License-Identifier: Apache-2.0
"""Time that a probe's command takes: what a model would do at once."""

import time

_SLEEP_ERROR = 0.0002  # seconds


def wait_until(moment: float) -> None:
    """Wait for a moment of the monotonic clock, to within a few microseconds; sleep() alone misses 50 to 100."""
    remaining = moment - time.monotonic()
    if remaining > _SLEEP_ERROR:
        time.sleep(remaining - _SLEEP_ERROR)
    while time.monotonic() < moment:
        pass
