# SPDX-License-Identifier: Apache-2.0
"""SVDF: a feature filter, whose results are kept as state, and a time filter over that state."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as building

from utvm.compiler.kernels import Kernel
from utvm.compiler.kernels.arithmetic import clamp_value, number, rescale_value
from utvm.compiler.kernels.functions import add_loops
from utvm.compiler.kernels.hybrid import one_scale, quantise_rows
from utvm.compiler.kernels.sums import clamp_float
from utvm.compiler.kernels.use import Use, check_states, scale_of, zero_of
from utvm.errors import CompileError

_HYBRID = ("float32", "int8", "int8", "float32", "float32")
_KINDS = (  # Types of input, both filters, state and result.
    ("float32",) * 5,
    _HYBRID,
    ("int8", "int8", "int8", "int8", "int8"),
    ("int8", "int8", "int16", "int16", "int8"),
)


@dataclass(frozen=True)
class _Svdf:
    """Dimensions and arithmetic of an SVDF; ``newest`` returns the new state entry from the first filter's sum."""

    batches: int
    depth: int
    filters: int
    memory: int
    rank: int
    kind: str
    sums: str
    newest: Callable[[Any, Any, Sequence[Any]], Any]
    ending: Callable[[Any], Any]

    def run(self, use: Use, read: Sequence[Any], writes: Sequence[Any], own: Mapping[str, Any]) -> None:
        source, feature, time, before, offsets, *steps = read
        output, after = writes
        total, products, one = own["sums"], own["products"], 1
        filters, memory, rank = self.filters, self.memory, self.rank
        with building.serial(0, self.batches) as batch:
            with building.serial(0, filters) as unit:
                first = (batch * filters + unit) * memory
                with building.serial(0, memory - 1) as place:
                    after[first + place] = before[first + place + one]
                products[0] = tirx.const(0, self.kind)
                zero = steps[1][batch] if steps[1:] else tirx.const(zero_of(use.input(0)), self.kind)
                with building.serial(0, self.depth) as inner:
                    value = source[batch * self.depth + inner].astype(self.kind) - zero
                    products[0] = products[0] + value * feature[unit * self.depth + inner].astype(self.kind)
                after[first + (memory - one)] = self.newest(products[0], batch, steps)
            with building.serial(0, filters // rank) as unit:
                total[1] = offsets[unit]
                with building.serial(0, rank) as part:
                    row = unit * rank + part
                    total[0] = tirx.const(0, self.sums)
                    with building.serial(0, memory) as place:
                        value = after[(batch * filters + row) * memory + place].astype(self.sums)
                        value = value - tirx.const(zero_of(use.input(4)), self.sums)
                        total[0] = total[0] + value * time[row * memory + place].astype(self.sums)
                    total[1] = total[1] + total[0]
                output[batch * (filters // rank) + unit] = self.ending(total[1])


def _svdf(use: Use, operands: list[Any]) -> Any:
    check_states(use, (4,))
    kinds = (*(use.dtype(place) for place in (0, 1, 2, 4)), use.result.dtype)
    if kinds not in _KINDS:
        raise CompileError(f"elements of the types {', '.join(kinds)} are not supported")
    hybrid = kinds == _HYBRID
    svdf = _read(use, hybrid)
    units = svdf.filters // svdf.rank
    bias = use.constant(3) if use.has(3) else np.zeros(units, svdf.sums)
    if bias.shape != (units,):
        raise CompileError(f"its bias has the shape {bias.shape}, for {units} units")
    inputs = [operands[0], use.constant(1), use.constant(2), operands[4], bias]
    if hybrid:
        flat = use.builder.emit(relax.op.reshape(operands[0], (svdf.batches, svdf.depth)))
        symmetric = not use.options(tflite.SVDFOptions).AsymmetricQuantizeInputs()
        entered = quantise_rows(use, flat, svdf.batches, svdf.depth, symmetric=symmetric)
        inputs[0], inputs[2] = entered.numbers, use.constant(2).astype(np.float32) * np.float32(one_scale(use, 2))
        inputs += [entered.scales] if entered.zeros is None else [entered.scales, entered.zeros]
    macs = svdf.batches * svdf.filters * (svdf.depth + svdf.memory)
    scratch = {"sums": ((2,), svdf.sums), "products": ((1,), svdf.kind)}
    name = f"svdf_{'hybrid' if hybrid else use.dtype(0)}"
    return add_loops(use.builder, name, inputs, use.outputs, scratch, functools.partial(svdf.run, use), macs)


def _read(use: Use, hybrid: bool) -> _Svdf:
    data, times, options = use.input(0), use.input(2), use.options(tflite.SVDFOptions)
    (filters, depth), memory, rank = use.input(1).shape, times.shape[1], options.Rank()
    if rank < 1 or filters % rank:
        raise CompileError(f"its rank is {rank}, of {filters} filters")
    batches = data.shape[0]
    sizes = (data.size, times.shape[0], use.input(4).size, use.result.size)
    if sizes != (batches * depth, filters, batches * filters * memory, batches * filters // rank):
        raise CompileError(f"its operands' shapes are not those of {filters} filters")
    if data.dtype == "float32":
        factor = tirx.FloatImm("float32", one_scale(use, 1)) if hybrid else None
        ending: Callable[[Any], Any] = functools.partial(clamp_float, activation=options.FusedActivationFunction())
        sums, kind = "float32", "int32" if hybrid else "float32"

        def newest(total: Any, batch: Any, steps: Sequence[Any]) -> Any:
            return total if factor is None else total.astype("float32") * (steps[0][batch] * factor)
    else:
        sums = kind = "int32"
        real = float(np.float64(scale_of(use.input(4)) * scale_of(use.input(2)) / scale_of(use.result)))

        def end_in_integers(total: Any) -> Any:  # The kernels apply no activation here.
            return clamp_value(rescale_value(total, real) + number(zero_of(use.result)), -128, 127)

        ending = end_in_integers

        def newest(total: Any, batch: Any, steps: Sequence[Any]) -> Any:
            return _newest(use, total)

    return _Svdf(batches, depth, filters, memory, rank, kind, sums, newest, ending)


def _newest(use: Use, total: Any) -> Any:
    scales = [scale_of(use.input(place)) for place in (0, 1, 4)]
    state = use.input(4)
    info = np.iinfo(state.dtype)
    value = rescale_value(total, float(np.float64(scales[0] * scales[1] / scales[2])))
    value, zero = clamp_value(value, int(info.min), int(info.max), "int32"), zero_of(state)
    if zero:
        # The kernel adds the zero point after clamping and keeps the low bits of the sum.
        value = ((value + number(zero - int(info.min))) & number(int(info.max) - int(info.min))) + number(info.min)
    return value.astype(state.dtype)


KERNEL = Kernel(tflite={"SVDF": _svdf})
