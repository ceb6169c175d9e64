# SPDX-License-Identifier: Apache-2.0
"""The memory of a project: each run's outcomes and figures in one SQLite file, and what has changed since when.

:mod:`utvm.history.store` adds what reports hold, and :mod:`utvm.history.changes` answers. Rules:

- a figure that is counted has changed where it differs; one that is measured is compared in two windows of runs;
- what gave no answer (infrastructure, an error in a test, not run, skipped) makes no test red, green or flaky;
- a test is flaky that passed and failed at one commit on boards of one name and kind.
"""

from utvm.history.store import record

__all__ = ["record"]
