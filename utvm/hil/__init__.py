# SPDX-License-Identifier: Apache-2.0
"""Suites on a board: pytest plugin, verdicts and reports.

:func:`utvm.hil.suites.run` runs suites on one board, physical or virtual, prints progress and verdict, and writes
a report. :mod:`utvm.hil.plugin` is the pytest plugin that suites use; pytest's own command line can use it, too.
docs/report.md defines outcomes, verdicts and exit codes.
"""
