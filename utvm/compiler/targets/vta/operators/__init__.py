# SPDX-License-Identifier: Apache-2.0
"""Operators for VTA: records that create schedules. ``layout`` packs their tensors into blocks."""

from utvm.compiler.targets.vta.operators.elementwise import Elementwise, Requantise, Sums
from utvm.compiler.targets.vta.operators.pooling import MaxPool
from utvm.compiler.targets.vta.operators.products import Conv2d, Matmul

__all__ = ["Conv2d", "Elementwise", "Matmul", "MaxPool", "Requantise", "Sums"]
