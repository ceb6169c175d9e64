# SPDX-License-Identifier: Apache-2.0
"""History of a project: outcomes and figures of every run in one SQLite file, and their changes.

:mod:`utvm.history.store` adds reports, :mod:`utvm.history.changes` queries them. Rules:

- a counted figure has changed if its value differs; a measured one is compared in two windows of runs;
- infrastructure faults, errors, skipped tests and tests not run do not count as a pass or failure;
- a test is flaky if it passed and failed at one commit on boards of one name and kind.
"""

from utvm.history.store import record

__all__ = ["record"]
