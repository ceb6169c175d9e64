# SPDX-License-Identifier: Apache-2.0
"""Writes benchmarks/README.md."""

from benchmarks.seen import write_page

write_page()
