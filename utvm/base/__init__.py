# SPDX-License-Identifier: Apache-2.0
"""Processes, storage, logging, text; independent of boards and models."""
