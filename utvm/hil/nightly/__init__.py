# SPDX-License-Identifier: Apache-2.0
"""Nightly runs: the suites on every board of a list, as many at once as the machine carries, in one report.

:func:`load` reads the list, :func:`select` picks from it, :func:`run` runs it. Each board has a turn: a health
check, which is the suite ``health``, then its suites, both as ``./inv hil`` in a process of its own. A board that
does not get through its health check is *bad*; the others run on.

Verdicts of a board are those of :class:`utvm.hil.results.Verdict`, and two more: ``bad`` and ``not run``. The
verdict of the whole, the first that applies:

========================  =========  ==============================================================
interrupted               exit 3     Ctrl-C or SIGTERM
infrastructure            exit 3     a board without a verdict on its tests, whatever the others said
error                     exit 2     a test has an error of its own, or no test ran on a board
failed                    exit 1     a test failed on a board
passed                    exit 0     all boards passed
========================  =========  ==============================================================
"""

from utvm.hil.nightly.plan import Job, default_list, load, select
from utvm.hil.nightly.runner import jobs_carried, run

__all__ = ["Job", "default_list", "jobs_carried", "load", "run", "select"]
