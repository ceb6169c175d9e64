# SPDX-License-Identifier: Apache-2.0
"""float32 to integers, where a model's floats end."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from utvm.compiler.int8_operator import Int8Operator
from utvm.compiler.integer.kernel import Shape, described, with_one_loop
from utvm.compiler.integer.records import Computation, Operator
from utvm.compiler.target import Target


@dataclass(frozen=True)
class Rounding(Computation):
    """float32 to int8, uint8 or int16, where a model's floats end.

    Attributes:
        shape: of input and output.
        scale, zero: of the output.
        target: element type.
        rounding: C function that rounds: ``roundf`` takes halves away from zero, ``rintf`` to even.
    """

    shape: Shape
    scale: float
    zero: int
    target: str
    rounding: str


def rounded(real: Any, record: Rounding) -> Any:
    """Return a float32 as an integer of the record's type: divided, rounded, and limited while it is a float."""
    limits = np.iinfo(record.target)
    steps = tirx.call_pure_extern("float32", record.rounding, real / tirx.FloatImm("float32", record.scale))
    low, high = (tirx.FloatImm("float32", float(limit - record.zero)) for limit in (limits.min, limits.max))
    limited = tirx.max(tirx.min(steps, high), low)
    return (limited.astype("int32") + record.zero).astype(record.target)


def _make(record: Rounding, _: Target) -> Operator:
    data = te.placeholder(record.shape, "float32", "data")

    def compute(*at: Any) -> Any:
        return rounded(data[at], record)

    output = te.compute(record.shape, compute, "output")
    function = with_one_loop(te.create_prim_func([data, output]))
    return Operator(described(function, f"quantize_{record.target}", [0]), (), (0,))


OPERATOR = Int8Operator(Rounding, _make)
