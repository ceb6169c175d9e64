# SPDX-License-Identifier: Apache-2.0
"""Operators for the accelerator VTA: TIRx whose buffers lie on the chip becomes calls of its driver."""
