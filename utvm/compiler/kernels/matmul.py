# SPDX-License-Identifier: Apache-2.0
"""Matrix products in float, 8 bits, 16 bits, and hybrid (float activations, 8-bit weights)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite
from tvm import relax, te

from utvm.compiler.kernels import Kernel
from utvm.compiler.kernels.arithmetic import broadcast, number
from utvm.compiler.kernels.functions import add_function
from utvm.compiler.kernels.hybrid import is_hybrid, quantise_rows
from utvm.compiler.kernels.sums import float_ending, hybrid_ending, integer_ending
from utvm.compiler.kernels.use import Use, scale_of, zero_of
from utvm.errors import CompileError

_SUMS = {"int8": "int32", "uint8": "int32", "int16": "int64", "float32": "float32"}


def _product(use: Use, operands: list[Any]) -> Any:
    left, right, result = use.input(0), use.input(1), use.result
    hybrid = is_hybrid(use)
    kind = _SUMS.get(result.dtype)
    if kind is None or not (hybrid or left.dtype == right.dtype == result.dtype):
        return None
    options = use.options(tflite.BatchMatMulOptions)
    rank, data = len(left.shape), operands[0]
    lines = (*left.shape[:-2], *(left.shape[:-3:-1] if options.AdjX() else left.shape[-2:]))
    depth = _match(lines, right.shape, result.shape, turned_right=options.AdjY())
    turned = options.AdjX() and not hybrid
    if hybrid:
        rows, kind = left.size // max(depth, 1), "int32"
        if options.AdjX():
            data = use.builder.emit(relax.op.permute_dims(data, [*range(rank - 2), rank - 1, rank - 2]))
        flat = use.builder.emit(relax.op.reshape(data, (rows, depth)))
        own = quantise_rows(use, flat, rows, depth, symmetric=not options.AsymmetricQuantizeInputs())
        data = use.builder.emit(relax.op.reshape(own.numbers, lines))
        ending = hybrid_ending(use, own, result.shape[-1], tflite.ActivationFunctionType.NONE)
    elif kind == "float32":
        ending = float_ending(None, tflite.ActivationFunctionType.NONE)
    else:
        real = np.float64(scale_of(left) * scale_of(right)) / np.float64(scale_of(result))
        ending = integer_ending(use, np.array([real]), None, kind == "int64", tflite.ActivationFunctionType.NONE)

    def compute(first: Any, second: Any, *tables: Any) -> Any:
        inner = te.reduce_axis((0, depth), "inner")

        def total(*at: Any) -> Any:
            *outer, row, column = at
            a = broadcast(first, [*outer, inner, row] if turned else [*outer, row, inner])
            b = broadcast(second, [*outer, column, inner] if options.AdjY() else [*outer, inner, column])
            if kind == "float32":
                return te.sum(a * b, axis=[inner])
            zero = ending.data_zero(tables, _row(lines, at))
            value = (a.astype("int32") - zero) * (b.astype("int32") - zero_of(right))
            return te.sum(value.astype(kind), axis=[inner])

        def end(*at: Any) -> Any:
            channel = at[-1] if hybrid else number(0)
            return ending.apply(sums[at], tables, channel, _row(lines, at))

        sums = te.compute(result.shape, total, "accumulator")
        return te.compute(result.shape, end, "output")

    name = f"batch_matmul_{'hybrid' if hybrid else left.dtype}"
    return add_function(use.builder, name, [data, operands[1], *ending.tables], compute, macs=result.size * depth)


def _row(shape: Sequence[int], at: Sequence[Any]) -> Any:
    row = number(0)
    for extent, place in zip(shape[:-1], at[len(at) - len(shape) : -1], strict=True):
        row = row * extent + (number(0) if extent == 1 else place)
    return row


def _match(left: Sequence[int], right: Sequence[int], result: Sequence[int], *, turned_right: bool) -> int:
    if min(len(left), len(right)) < 2:
        raise CompileError(f"the shapes {tuple(left)} and {tuple(right)} are not matrices")
    columns, depth = right[-2:] if turned_right else right[:-3:-1]
    try:
        batches = np.broadcast_shapes(tuple(left[:-2]), tuple(right[:-2]))
    except ValueError:
        batches = (-1,)
    if depth != left[-1] or tuple(result) != (*batches, left[-2], columns):
        raise CompileError(f"the shapes {tuple(left)} and {tuple(right)} do not make {tuple(result)}")
    return int(depth)


KERNEL = Kernel(tflite={"BATCH_MATMUL": _product})
