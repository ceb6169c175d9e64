# SPDX-License-Identifier: Apache-2.0
"""Random detection outputs: boxes, scores and anchors, and the results that TensorFlow Lite Micro defines.

Undefined outputs of the kernel (unused results, gaps between boxes of several classes) are not compared.
"""

import numpy as np
import numpy.typing as npt
from tflite_draw import Draw, Layer, Spec

OPERATOR = "TFLite_Detection_PostProcess"


def draw_detection(draw: Draw, *, regular: bool, dtype: str = "float32") -> Layer:
    count, labels, limit = draw.integer(5, 60), draw.integer(1, 5), draw.integer(2, 12)
    variants = 1 if regular else min(labels, draw.pick(1, 2))
    options = {
        "max_detections": limit,
        "max_classes_per_detection": variants,
        "num_classes": labels,
        "use_regular_nms": regular,
        "nms_score_threshold": draw.pick(0.0, 0.3, 0.6),
        "nms_iou_threshold": draw.pick(0.1, 0.5, 1.0),
        **dict(zip(("y_scale", "x_scale", "h_scale", "w_scale"), (10.0, 9.0, 5.0, 4.0), strict=True)),
    }
    if draw.pick(True, False):
        options["detections_per_class"] = draw.integer(1, 20)
    scale = None if dtype == "float32" else 1 / 64
    boxes = Spec((1, count, draw.integer(4, 6)), dtype, scale, 100)
    scores = Spec((1, count, labels + draw.integer(0, 1)), dtype, scale, 3)
    anchors = Spec((count, 4), "float32", data=draw.random.uniform(0.05, 0.7, (count, 4)))
    capacity = limit * variants * variants
    results = [Spec(shape, "float32") for shape in ((1, capacity, 4), (1, capacity), (1, capacity), (1,))]
    return Layer([boxes, scores, anchors], results, options)


def defined_results(layer: Layer, results: list[npt.NDArray[np.float32]]) -> list[npt.NDArray[np.float32]]:
    """The defined part of the results."""
    corners, classes, scores, count = (np.array(result) for result in results)
    total, variants = int(count.ravel()[0]), layer.options["max_classes_per_detection"]
    indices = [variants * position + position % variants for position in range(total)]
    return [corners.reshape(-1, 4)[indices], classes.ravel()[indices], scores.ravel()[indices], count.ravel()]
