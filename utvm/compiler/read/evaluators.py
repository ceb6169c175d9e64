# SPDX-License-Identifier: Apache-2.0
"""ONNX models on this computer: by ONNX Runtime, and by ONNX's evaluator with its BatchNormalization corrected."""

from typing import Any

import numpy as np
import onnx


def runtime(model: onnx.ModelProto | bytes, optimised: str = "") -> Any:
    """Session of ONNX Runtime, node by node; with ``optimised``, its folded form is written to that file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_BASIC if optimised else level.ORT_DISABLE_ALL
    options.optimized_model_filepath = optimised
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def definition(model: onnx.ModelProto) -> Any:
    """ONNX's evaluator, which computes BatchNormalization of sets 7 to 13 as in training, or not at all."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):  # type: ignore[misc]
        def _run(self, x: Any, *numbers: Any, epsilon: float = 1e-5, **_: Any) -> tuple[Any]:
            scale, shift, mean, variance = (array.reshape(-1, *[1] * (x.ndim - 2)) for array in numbers)
            return (np.asarray(scale * (x - mean) / np.sqrt(variance + epsilon) + shift, x.dtype),)

    version = next((entry.version for entry in model.opset_import if not entry.domain), 1)
    return ReferenceEvaluator(model, new_ops=[BatchNormalization] if 7 <= version <= 13 else [])
