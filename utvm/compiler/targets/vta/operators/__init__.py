# SPDX-License-Identifier: Apache-2.0
"""Operators for VTA: records that create schedules. ``layout`` packs their tensors into blocks."""

from utvm.compiler.targets.vta.operators.pooling import MaxPool
from utvm.compiler.targets.vta.operators.products import Conv2d, Elementwise, Matmul, Requantise, Sums

__all__ = ["Conv2d", "Elementwise", "Matmul", "MaxPool", "Requantise", "Sums"]
