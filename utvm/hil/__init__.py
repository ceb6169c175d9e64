# SPDX-License-Identifier: Apache-2.0
"""Suites on a board: from a command to a verdict that a firmware engineer believes.

:func:`utvm.hil.suites.run` runs the suites in ``hil_tests/`` on one board, physical or virtual, prints progress
and verdict, and writes a report. :mod:`utvm.hil.plugin` is the pytest plugin that suites are written against; it
works with pytest's own command line too.

Outcomes of a test: passed, failed, skipped, or *infrastructure*, when probe, OpenOCD or board gave no answer.
Verdicts of a run, the first that applies:

========================  =========  ==============================================================
interrupted               exit 3     Ctrl-C or SIGTERM; the tests that did not run are so called
infrastructure            exit 3     no board, or a test without an answer, whatever the others said
failed                    exit 1     a test failed, or no test ran
passed                    exit 0     at least one test passed and none failed
========================  =========  ==============================================================
"""
