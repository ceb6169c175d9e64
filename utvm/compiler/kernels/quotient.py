# SPDX-License-Identifier: Apache-2.0
"""Quotients: TensorFlow Lite's DIV in int8, by the reciprocal of each number that a divisor can be."""

from typing import Any

import numpy as np
import tflite
from tvm import te, tirx

from utvm.compiler.kernels import Kernel, fixed_point
from utvm.compiler.kernels.arithmetic import broadcast, clamp_value, number, rescale_by
from utvm.compiler.kernels.functions import add_function
from utvm.compiler.kernels.use import Use, limits, scale_of, zero_of


def _divide(use: Use, operands: list[Any]) -> Any:
    if use.result.dtype != "int8" or use.result.quantisation is None:
        return None
    first, second = use.input(0), use.input(1)
    real = float(np.float64(scale_of(first)) / (np.float64(scale_of(second)) * np.float64(scale_of(use.result))))
    multiplier, shift = fixed_point.quantize_multiplier(real)
    sizes = range(256)
    lengths = np.array([max(size, 1).bit_length() for size in sizes], np.int32)
    inverses = [
        fixed_point.reciprocal_of_one_plus((max(size, 1) << (32 - max(size, 1).bit_length())) - 2**31)
        for size in sizes
    ]
    bounds = limits(use.options(tflite.DivOptions).FusedActivationFunction(), use.result)

    def compute(a: Any, b: Any, inverse: Any, length: Any) -> Any:
        shape = use.result.shape
        below = te.compute(shape, lambda *at: broadcast(b, at).astype("int32") - number(zero_of(second)), "below")
        size = te.compute(
            shape, lambda *at: tirx.min(tirx.max(below[at], number(0) - below[at]), number(255)), "size"
        )

        def numerator(*at: Any) -> Any:
            above = broadcast(a, at).astype("int32") - number(zero_of(first))
            return tirx.Select(below[at] < number(0), number(0) - above, above)

        value = te.compute(shape, numerator, "value")

        def free(*at: Any) -> Any:
            # As many bits as the numerator has room for, beside its sign.
            own = tirx.Select(value[at] < number(0), number(-1) - value[at], value[at])
            used = tirx.Select(own == number(0), number(0), length[tirx.min(own, number(255))])
            return number(31) - used

        room = te.compute(shape, free, "room")

        def divide(*at: Any) -> Any:
            return rescale_by(tirx.shift_left(value[at], room[at]), inverse[size[at]], number(0))

        quotient = te.compute(shape, divide, "quotient")
        # That has the room and the reciprocal's point too much.
        total = te.compute(shape, lambda *at: number(shift + 1) - length[size[at]] - room[at], "total")

        def output(*at: Any) -> Any:
            # No more places are shifted out than 64 bits have: of a total of at least shift - 38.
            places = total[at] if shift >= -24 else tirx.max(total[at], number(-62))
            scaled = rescale_by(quotient[at], number(multiplier), places)
            return clamp_value(scaled + number(zero_of(use.result)), *bounds)

        return te.compute(shape, output, "output")

    constants = [np.array(inverses, np.int32), lengths]
    return add_function(use.builder, "divide_int8", [*operands, *constants], compute)


KERNEL = Kernel(tflite={"DIV": _divide})
