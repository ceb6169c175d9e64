# SPDX-License-Identifier: Apache-2.0
"""Operators for VTA: each is a record of what is computed, and makes a schedule of it for a VTA.

Tensors are made of blocks: ``layout`` packs numpy's arrays, with zeros where a dimension ends within a block.
"""

from utvm.compiler.targets.vta.operators.elementwise import Elementwise, Requantise, Sums
from utvm.compiler.targets.vta.operators.pooling import MaxPool
from utvm.compiler.targets.vta.operators.products import Conv2d, Matmul

__all__ = ["Conv2d", "Elementwise", "Matmul", "MaxPool", "Requantise", "Sums"]
