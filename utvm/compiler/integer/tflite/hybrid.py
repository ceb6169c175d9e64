# SPDX-License-Identifier: Apache-2.0
"""Weights of 8 bits for real numbers: each batch is quantised while the model runs, as TensorFlow Lite does.

TensorFlow Lite Micro refuses such layers. This is the arithmetic of TensorFlow Lite's portable kernels
(``portable_tensor_utils.cc``, ``reference/conv.h``).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from utvm.compiler.integer.exact import called, number
from utvm.compiler.integer.kernel import described
from utvm.compiler.tflite_kernel import Use
from utvm.errors import CompileError

_WIDE = "float64"


@dataclass(frozen=True)
class Quantised:
    """A tensor of real numbers as integers of 8 bits, batch by batch; Relax expressions.

    Attributes:
        numbers: int8, of the tensor's shape.
        scales: float32, one for each batch.
        zeros: int32, one for each batch; None where all are 0.
    """

    numbers: Any
    scales: Any
    zeros: Any


def is_hybrid(use: Use) -> bool:
    """Return whether real numbers are multiplied by weights of 8 bits."""
    return use.dtype(0) == "float32" and use.dtype(1) == "int8" and use.result.dtype == "float32"


def quantised(use: Use, data: Any, rows: int, size: int, *, symmetric: bool) -> Quantised:
    """Quantise a tensor while the model runs.

    Args:
        data: rows of numbers; each becomes integers by its own smallest and largest one.
        symmetric: whether a zero stays 0: then a step is the largest size / 127, and -128 is not used.
    """
    source = te.placeholder((rows, size), "float32", "data")
    along = [te.reduce_axis((0, size), name) for name in ("i", "j")]
    low = te.compute((rows,), lambda row: te.min(source[row, along[0]], axis=along[0]), "low")
    high = te.compute((rows,), lambda row: te.max(source[row, along[1]], axis=along[1]), "high")
    if symmetric:
        numbers, scales = _symmetric(source, low, high, rows, size)
        outputs = [numbers, scales]
    else:
        outputs = _asymmetric(source, low, high, rows, size)
    name = "quantize_rows" if symmetric else "quantize_rows_with_zeros"
    function = described(te.create_prim_func([source, *outputs]), name, [None])
    made = called(use.builder, function, name, [data], len(outputs))
    parts = [use.builder.emit(relax.TupleGetItem(made, place)) for place in range(len(outputs))]
    return Quantised(parts[0], parts[1], None if symmetric else parts[2])


def _symmetric(source: Any, low: Any, high: Any, rows: int, size: int) -> tuple[Any, Any]:
    zero, most = tirx.FloatImm("float32", 0.0), tirx.FloatImm("float32", 127.0)
    largest = te.compute((rows,), lambda row: tirx.max(zero - low[row], high[row]), "largest")

    def scale(row: Any) -> Any:
        return tirx.Select(largest[row] == zero, tirx.FloatImm("float32", 1.0), largest[row] / most)

    def inverse(row: Any) -> Any:
        return tirx.Select(largest[row] == zero, zero, most / largest[row])

    inverses = te.compute((rows,), inverse, "inverse")
    numbers = te.compute((rows, size), lambda row, at: _integer(source[row, at] * inverses[row], -127), "numbers")
    return numbers, te.compute((rows,), scale, "scales")


def _asymmetric(source: Any, low: Any, high: Any, rows: int, size: int) -> list[Any]:
    nothing = tirx.FloatImm(_WIDE, 0.0)
    least = te.compute((rows,), lambda row: tirx.min(low[row].astype(_WIDE), nothing), "least")
    most = te.compute((rows,), lambda row: tirx.max(high[row].astype(_WIDE), nothing), "most")
    flat = te.compute((rows,), lambda row: (least[row] == most[row]).astype("int32"), "flat")
    one = tirx.FloatImm(_WIDE, 1.0)

    def step(row: Any) -> Any:
        return tirx.Select(flat[row] == number(1), one, (most[row] - least[row]) / tirx.FloatImm(_WIDE, 255.0))

    steps = te.compute((rows,), step, "step")

    def exact_zero(row: Any) -> Any:
        below, above = least[row] / steps[row], most[row] / steps[row]
        # Of the two ends, that which is told with the smaller error says where zero is.
        near = tirx.FloatImm(_WIDE, 128.0) - below < tirx.FloatImm(_WIDE, 127.0) + above
        return tirx.Select(near, tirx.FloatImm(_WIDE, -128.0) - below, tirx.FloatImm(_WIDE, 127.0) - above)

    exact = te.compute((rows,), exact_zero, "exact")

    def zero(row: Any) -> Any:
        bounded = tirx.max(tirx.min(exact[row], tirx.FloatImm(_WIDE, 127.0)), tirx.FloatImm(_WIDE, -128.0))
        whole = tirx.call_pure_extern(_WIDE, "round", bounded).astype("int32")
        return tirx.Select(flat[row] == number(1), number(0), whole)

    zeros = te.compute((rows,), zero, "zeros")
    scales = te.compute((rows,), lambda row: steps[row].astype("float32"), "scales")
    inverses = te.compute((rows,), lambda row: tirx.FloatImm("float32", 1.0) / scales[row], "inverse")
    numbers = te.compute(
        (rows, size),
        lambda row, at: _integer(zeros[row].astype("float32") + source[row, at] * inverses[row], -128),
        "numbers",
    )
    return [numbers, scales, zeros]


def _integer(real: Any, least: int) -> Any:
    """Return a float32 rounded to int8, halves away from zero."""
    whole = tirx.call_pure_extern("float32", "roundf", real)
    low, high = (tirx.FloatImm("float32", float(limit)) for limit in (least, 127))
    return tirx.max(tirx.min(whole, high), low).astype("int8")


def hybrid_scales(use: Use) -> npt.NDArray[np.float32]:
    """Return the weights' scales: one, or one for each channel.

    Raises:
        CompileError: they have none, or a zero point.
    """
    known = use.input(1).quantisation
    if known is None or np.any(known.zero_points != 0) or not np.all(known.scales > 0):
        raise CompileError(
            "its weights have no scale, or a zero point, which is not supported beside real numbers"
        )
    return known.scales.astype(np.float32)
