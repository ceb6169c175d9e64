# SPDX-License-Identifier: Apache-2.0
"""Operators for the accelerator VTA: TIRx with on-chip buffers, lowered to calls of its driver."""
