# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's QUANTIZE: from float, and between integer scales, types and signs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm.compiler.kernels import Kernel, functions, records
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Rounding(records.Unary):
    """float32 to an integer type, by C's ``roundf`` (halves away from zero) or ``rintf`` (to even)."""

    operand_bytes = 4
    scale: float
    zero: int
    target: str
    rounding: str


def round_steps(steps: Any, rounding: str, zero: int, low: int, high: int, dtype: str = "int8") -> Any:
    """Round a float expression, add a zero point, and limit the integer to a range; NaN gives a limit."""
    steps = tirx.call_pure_extern("float32", rounding, steps)
    least, most = (tirx.FloatImm("float32", float(limit - zero)) for limit in (low, high))
    return (tirx.max(tirx.min(steps, most), least).astype("int32") + zero).astype(dtype)


def _round(record: Rounding, _: Target | None) -> records.Operator:
    data = te.placeholder(record.shape, "float32", "data")

    limits = np.iinfo(record.target)

    def compute(*at: Any) -> Any:
        steps = data[at] / tirx.FloatImm("float32", record.scale)
        return round_steps(steps, record.rounding, record.zero, int(limits.min), int(limits.max), record.target)

    output = te.compute(record.shape, compute, "output")
    function = functions.with_one_loop(te.create_prim_func([data, output]))
    return records.Operator(functions.describe(function, f"quantize_{record.target}", [0]))


@dataclass(frozen=True)
class Shift(records.Unary):
    """uint8 to int8 or back: numbers shifted by 128."""

    source: str
    target: str


def _shift(record: Shift, _: Target | None) -> records.Operator:
    data = te.placeholder(record.shape, record.source, "data")
    offset = 128 if record.target == "uint8" else -128
    output = te.compute(record.shape, lambda *at: (data[at].astype("int32") + offset).astype(record.target), "output")
    function = functions.with_one_loop(te.create_prim_func([data, output]))
    return records.Operator(functions.describe(function, f"shift_{record.target}", [0]))


KERNEL = Kernel({Rounding: _round, Shift: _shift})
