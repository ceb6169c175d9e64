# SPDX-License-Identifier: Apache-2.0
"""Accelerators, one folder each, with scheduling and lowering of operators."""
