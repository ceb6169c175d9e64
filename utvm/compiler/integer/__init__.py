# SPDX-License-Identifier: Apache-2.0
"""Quantised models in integers: from dequantise-compute-quantise to TensorFlow Lite's int8 operators."""

from utvm.compiler.integer.rewrite import Integerized, integerize

__all__ = ["Integerized", "integerize"]
