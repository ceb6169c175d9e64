# SPDX-License-Identifier: Apache-2.0
"""TFLite_Detection_PostProcess: the best boxes that do not overlap, as TensorFlow Lite Micro finds them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as building

from utvm.compiler.kernels import Kernel, arithmetic, signal
from utvm.compiler.kernels.cores.constants import call_helper
from utvm.compiler.kernels.use import Use, scale_of, zero_of
from utvm.errors import CompileError

_REALS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")


def _detect(use: Use, operands: list[Any]) -> Any:
    options = use.operator
    reals = np.array([options.setting(name, kind="AsFloat") for name in _REALS], np.float32)
    most, classes = options.setting("max_detections"), options.setting("num_classes")
    regular = options.setting("use_regular_nms", 0) != 0
    share = options.setting("detections_per_class", 100) if regular else options.setting("max_classes_per_detection")
    boxes, scores, anchors = (use.input(place).shape for place in range(3))
    fits = len(boxes) == len(scores) == 3 and boxes[0] == scores[0] == 1 and boxes[1] == scores[1]
    fits = fits and boxes[2] >= 4 and anchors == (boxes[1], 4) and scores[2] - classes in (0, 1)
    sizes = [output.size for output in use.outputs]
    room = sizes[1] if len(sizes) == 4 else 0
    fits = fits and sizes == [4 * room, room, room, 1] and {output.dtype for output in use.outputs} == {"float32"}
    if not fits or not 0 < most <= room or classes < 1 or share < 1 or not 0 < reals[1] <= 1:
        raise CompileError(
            "its shapes and options do not fit together",
            "its four results need fixed shapes, with room for max_detections boxes",
        )
    columns = [boxes[2], scores[2], classes, most, room, 0 if regular else min(share, classes), share]

    count = boxes[1]
    scratch = {"corners": ((4 * count,), "float32"), "best": ((count,), "float32"), "open": ((count,), "bool")}

    def body(read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        for name, (shape, dtype) in scratch.items():  # A buffer that only a helper uses would lose its size.
            with building.serial(0, shape[0]) as at:
                own[name][at] = tirx.const(0, dtype)
        pointers = [tirx.address_of(buffer[0]) for buffer in (*writes, *own.values(), *read)]
        call_helper("detect_boxes", *pointers, *map(arithmetic.number, (count, *columns)))

    real = [_real(use, place, operand) for place, operand in enumerate(operands)]
    return signal.add_flat(use, "detection_postprocess", [*real, reals], scratch, body)


def _real(use: Use, place: int, operand: Any) -> Any:
    """Return an operand as float32; TensorFlow Lite's own kernel takes quantised ones, too."""
    if use.dtype(place) == "float32":
        return operand
    steps = relax.op.astype(operand, "float32") - relax.const(float(zero_of(use.input(place))), "float32")
    return use.builder.emit(steps * relax.const(float(scale_of(use.input(place))), "float32"))


KERNEL = Kernel(tflite={"TFLite_Detection_PostProcess": _detect})
