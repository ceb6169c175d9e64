# SPDX-License-Identifier: Apache-2.0
"""Float activations, 8-bit weights, as TFLite's ``portable_tensor_utils.cc`` and ``reference/conv.h``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from utvm.compiler.kernels import arithmetic, functions
from utvm.compiler.kernels.use import Use
from utvm.errors import CompileError

_WIDE = "float64"


@dataclass(frozen=True)
class Quantised:
    """A float tensor quantised to 8 bits per batch, as Relax expressions; ``zeros`` None means all 0."""

    numbers: Any
    scales: Any
    zeros: Any


def is_hybrid(use: Use) -> bool:
    """True if a float tensor is multiplied by 8-bit weights."""
    return use.dtype(0) == "float32" and use.dtype(1) == "int8" and use.result.dtype == "float32"


def quantise_rows(use: Use, data: Any, rows: int, size: int, *, symmetric: bool) -> Quantised:
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
    function = functions.describe(te.create_prim_func([source, *outputs]), name, [None])
    rows_of = functions.call_function(use.builder, function, name, [data], len(outputs))
    parts = [use.builder.emit(relax.TupleGetItem(rows_of, place)) for place in range(len(outputs))]
    return Quantised(parts[0], parts[1], None if symmetric else parts[2])


def _symmetric(source: Any, low: Any, high: Any, rows: int, size: int) -> tuple[Any, Any]:
    largest = te.compute((rows,), lambda row: symmetric_size(low[row], high[row]), "largest")
    inverses = te.compute((rows,), lambda row: symmetric_inverse(largest[row]), "inverse")
    numbers = te.compute((rows, size), lambda row, at: integer(source[row, at] * inverses[row], -127), "numbers")
    return numbers, te.compute((rows,), lambda row: symmetric_scale(largest[row]), "scales")


def symmetric_size(low: Any, high: Any) -> Any:
    return tirx.max(_real(0.0) - low, high)


def symmetric_scale(size: Any) -> Any:
    return tirx.Select(size == _real(0.0), _real(1.0), size / _real(127.0))


def symmetric_inverse(size: Any) -> Any:
    return tirx.Select(size == _real(0.0), _real(0.0), _real(127.0) / size)


def _asymmetric(source: Any, low: Any, high: Any, rows: int, size: int) -> list[Any]:
    steps = te.compute((rows,), lambda row: asymmetric_step(low[row], high[row]), "step")
    zeros = te.compute((rows,), lambda row: asymmetric_zero(low[row], high[row], steps[row]), "zeros")
    scales = te.compute((rows,), lambda row: steps[row].astype("float32"), "scales")
    inverses = te.compute((rows,), lambda row: _real(1.0) / scales[row], "inverse")
    numbers = te.compute(
        (rows, size),
        lambda row, at: integer(zeros[row].astype("float32") + source[row, at] * inverses[row], -128),
        "numbers",
    )
    return [numbers, scales, zeros]


def _ends(low: Any, high: Any) -> tuple[Any, Any]:
    return tirx.min(low.astype(_WIDE), _real(0.0, _WIDE)), tirx.max(high.astype(_WIDE), _real(0.0, _WIDE))


def asymmetric_step(low: Any, high: Any) -> Any:
    least, most = _ends(low, high)
    return tirx.Select(least == most, _real(1.0, _WIDE), (most - least) / _real(255.0, _WIDE))


def asymmetric_zero(low: Any, high: Any, step: Any) -> Any:
    least, most = _ends(low, high)
    below, above = least / step, most / step
    # The end of the range with the smaller error determines the zero point.
    near = _real(128.0, _WIDE) - below < _real(127.0, _WIDE) + above
    exact = tirx.Select(near, _real(-128.0, _WIDE) - below, _real(127.0, _WIDE) - above)
    bounded = tirx.max(tirx.min(exact, _real(127.0, _WIDE)), _real(-128.0, _WIDE))
    whole = tirx.call_pure_extern(_WIDE, "round", bounded).astype("int32")
    return tirx.Select(least == most, arithmetic.number(0), whole)


def _real(value: float, dtype: str = "float32") -> Any:
    return tirx.FloatImm(dtype, value)


def integer(real: Any, least: int) -> Any:
    """Round float32 to int8, halves away from zero."""
    whole = tirx.call_pure_extern("float32", "roundf", real)
    return tirx.max(tirx.min(whole, _real(127.0)), _real(float(least))).astype("int8")


def hybrid_scales(use: Use, place: int = 1) -> npt.NDArray[np.float32]:
    known = use.input(place).quantisation
    if known is None or np.any(known.zero_points != 0) or not np.all(known.scales > 0):
        raise CompileError("its weights have no scale, or a zero point, which is not supported beside real numbers")
    return known.scales.astype(np.float32)


def one_scale(use: Use, place: int) -> float:
    scales = hybrid_scales(use, place)
    if scales.size != 1:
        raise CompileError(f"its operand {place} has several scales, which is not supported beside real numbers")
    return float(scales[0])
