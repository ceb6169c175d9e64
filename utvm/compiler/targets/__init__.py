# SPDX-License-Identifier: Apache-2.0
"""Accelerators: a folder each, with how operators are scheduled and lowered for it."""
