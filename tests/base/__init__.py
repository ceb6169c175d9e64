# SPDX-License-Identifier: Apache-2.0
"""Tests of processes, storage, log and text."""
