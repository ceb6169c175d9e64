# SPDX-License-Identifier: Apache-2.0
"""Signals of processes that tests begin."""

import signal


def with_usual_signals() -> None:
    """Have this process take the signals that whoever began the tests, nohup or a shell, may have it ignore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
