# SPDX-License-Identifier: Apache-2.0
"""Suites on a board: pytest plugin, verdicts and reports."""
