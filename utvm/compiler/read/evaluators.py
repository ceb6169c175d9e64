# SPDX-License-Identifier: Apache-2.0
"""Run ONNX models on this computer: in ONNX Runtime, or in ONNX's reference evaluator with a correction."""

from typing import Any

import numpy as np
import onnx


def runtime(model: onnx.ModelProto | bytes, optimised: str = "") -> Any:
    """Open a session of ONNX Runtime without optimisations; ``optimised`` is a file for the folded model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # Threads that wait take no processor.
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_BASIC if optimised else level.ORT_DISABLE_ALL
    options.optimized_model_filepath = optimised
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def definition(model: onnx.ModelProto) -> Any:
    """Return ONNX's evaluator; it gets BatchNormalization of sets 7 to 13 wrong, which is corrected here."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class BatchNormalization(OpRun):  # type: ignore[misc]
        def _run(self, x: Any, *numbers: Any, epsilon: float = 1e-5, **_: Any) -> tuple[Any]:
            scale, shift, mean, variance = (array.reshape(-1, *[1] * (x.ndim - 2)) for array in numbers)
            return (np.asarray(scale * (x - mean) / np.sqrt(variance + epsilon) + shift, x.dtype),)

    version = next((entry.version for entry in model.opset_import if not entry.domain), 1)
    return ReferenceEvaluator(model, new_ops=[BatchNormalization] if 7 <= version <= 13 else [])
