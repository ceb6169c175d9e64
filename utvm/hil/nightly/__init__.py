# SPDX-License-Identifier: Apache-2.0
"""Nightly runs: the suites on every board of a list, several in parallel, in one report.

:func:`load` reads the list, :func:`select` filters it, :func:`run` runs it. A job runs the suite ``health`` on its
board, then the other suites, each as ``./inv hil`` in a process of its own. A board that fails its health check is
*bad*; the other jobs continue. docs/nightly.md defines the verdicts.
"""

from utvm.hil.nightly.plan import Job, default_list, load, select
from utvm.hil.nightly.report import parse_targets
from utvm.hil.nightly.runner import count_parallel_jobs, run

__all__ = ["Job", "count_parallel_jobs", "default_list", "load", "parse_targets", "run", "select"]
