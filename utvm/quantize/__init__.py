# SPDX-License-Identifier: Apache-2.0
"""Post-training quantisation of ONNX models, with scales from samples.

:func:`quantize` writes a model in QDQ form, after TensorFlow Lite's int8 and 16x8 specifications; :func:`costs`
gives the quantisation error of each tensor. ONNX's reference implementation computes the values.
"""

from utvm.quantize.observe import Cost, costs, model_outputs
from utvm.quantize.write import quantize

__all__ = ["Cost", "costs", "model_outputs", "quantize"]
