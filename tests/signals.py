# SPDX-License-Identifier: Apache-2.0
"""Signals of processes that tests start."""

import signal


def reset_signals() -> None:
    """Restore the default handling of signals that the tests' parent, such as nohup or a shell, may ignore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
