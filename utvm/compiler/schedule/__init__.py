# SPDX-License-Identifier: Apache-2.0
"""Loops: Relax's operators become TIRx functions, whose loops are arranged and lowered."""
