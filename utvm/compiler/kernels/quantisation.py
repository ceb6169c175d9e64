# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's QUANTIZE: from float, and between integer scales, types and signs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm.compiler.kernels import Kernel, functions, records
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Rounding(records.Computation):
    """float32 to an integer type, by C's ``roundf`` (halves away from zero) or ``rintf`` (to even)."""

    shape: functions.Shape
    scale: float
    zero: int
    target: str
    rounding: str


def _round_element(real: Any, record: Rounding) -> Any:
    limits = np.iinfo(record.target)
    steps = tirx.call_pure_extern("float32", record.rounding, real / tirx.FloatImm("float32", record.scale))
    low, high = (tirx.FloatImm("float32", float(limit - record.zero)) for limit in (limits.min, limits.max))
    limited = tirx.max(tirx.min(steps, high), low)
    return (limited.astype("int32") + record.zero).astype(record.target)


def _round(record: Rounding, _: Target | None) -> records.Operator:
    data = te.placeholder(record.shape, "float32", "data")

    def compute(*at: Any) -> Any:
        return _round_element(data[at], record)

    output = te.compute(record.shape, compute, "output")
    function = functions.with_one_loop(te.create_prim_func([data, output]))
    return records.Operator(functions.describe(function, f"quantize_{record.target}", [0]))


@dataclass(frozen=True)
class Shift(records.Computation):
    """uint8 to int8 or back: numbers shifted by 128."""

    shape: functions.Shape
    source: str
    target: str


def _shift(record: Shift, _: Target | None) -> records.Operator:
    data = te.placeholder(record.shape, record.source, "data")
    offset = 128 if record.target == "uint8" else -128
    output = te.compute(
        record.shape, lambda *at: (data[at].astype("int32") + offset).astype(record.target), "output"
    )
    function = functions.with_one_loop(te.create_prim_func([data, output]))
    return records.Operator(functions.describe(function, f"shift_{record.target}", [0]))


KERNEL = Kernel({Rounding: _round, Shift: _shift})
