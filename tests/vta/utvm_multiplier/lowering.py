# SPDX-License-Identifier: Apache-2.0
"""Lowering for the multiplier: the product runs on it, and the CPU rounds."""

from collections.abc import Sequence
from typing import Any

from utvm.compiler.accelerator import Offer, Part, Refused


def offer(record: Any) -> Offer:
    """Offer a dense layer or a 1 x 1 convolution; raises ``Refused``."""
    _, rows, columns, _ = record.weights.shape
    if (rows, columns, record.strides, record.padding) != (1, 1, (1, 1), (0, 0, 0, 0)) or record.depthwise:
        raise Refused("it multiplies matrices, and no windows")
    return Offer(record.macs // 64, 0, 0, lambda: _parts(record))


def _parts(record: Any) -> Sequence[Part]:
    # TVM takes seconds to import.
    import numpy as np
    from tvm import te, tirx

    from utvm.compiler.accelerator import INCLUDE
    from utvm.compiler.kernels.convolution import channels_of, narrow_sum
    from utvm.compiler.kernels.functions import describe
    from utvm.compiler.kernels.records import Operator

    outputs, _, _, inputs = record.weights.shape
    rows = record.input_shape[0] * record.input_shape[1]
    x = te.placeholder((rows, inputs), "int8", "x")
    weights = te.placeholder((outputs, inputs), "int8", "weights")
    sums = te.compute((rows, outputs), lambda r, o: tirx.const(0, "int32"), "sums")
    function = te.create_prim_func([x, weights, sums])
    pointers = [tirx.reinterpret("handle", item.data) for item in function.params]
    call = tirx.call_extern("int32", "multiplier_run", *pointers, rows, inputs, outputs)
    function = describe(function.with_body(tirx.Evaluate(call)), "product_on_multiplier", (None,), record.macs)
    function = function.with_attr(INCLUDE, "multiplier.h")
    product = Operator(function, (record.weights.reshape(outputs, inputs),))

    sums_input = te.placeholder((rows, outputs), "int32", "sums")
    residual = te.placeholder((rows, outputs), "int8", "other")
    bias, multipliers, shifts = (
        te.placeholder((outputs,), "int32", name) for name in ("bias", "multipliers", "shifts")
    )
    result = te.compute(
        (rows, outputs),
        lambda r, o: narrow_sum(record, sums_input[r, o] + bias[o], multipliers[o], shifts[o], lambda: residual[r, o]),
        "output",
    )
    operands = [sums_input] if record.residual is None else [sums_input, residual]
    function = te.create_prim_func([*operands, bias, multipliers, shifts, result])
    overlap = (None,) * len(operands)
    zero_correction = record.weights.astype(np.int64).sum(axis=(1, 2, 3)) * record.input_zero
    rounding_bias = (record.bias - zero_correction).astype(np.int32)
    rounding = Operator(describe(function, "rounding_of_multiplier", overlap), (rounding_bias, *channels_of(record)))
    return [Part(product, (0,)), Part(rounding, (len(operands), *range(1, len(operands))))]
