# SPDX-License-Identifier: Apache-2.0
"""Post-training quantisation of an ONNX model: real numbers become integers, with scales from samples.

:func:`quantize` writes a model in QDQ form, after TensorFlow Lite's int8 and 16x8 specifications; what each tensor
has lost by that, :func:`costs` says. Values come from ONNX's own reference implementation.
"""

from utvm.quantize.observe import Cost, costs, model_outputs
from utvm.quantize.write import quantize

__all__ = ["Cost", "costs", "model_outputs", "quantize"]
