# SPDX-License-Identifier: Apache-2.0
"""Int8 layers on VTA, bit-identical to the CPU's: the CPU packs, VTA multiplies, the CPU requantises."""

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from utvm.compiler.accelerator import INCLUDE, Offer, Part, Refused
from utvm.compiler.kernels import arithmetic, convolution, functions, records
from utvm.compiler.targets.vta import layout, operators
from utvm.compiler.targets.vta.env import Env
from utvm.compiler.targets.vta.lower import lower
from utvm.errors import CompileError, DoesNotFitError
from utvm.runtime.vta.configuration import Configuration


def offers(configuration: Configuration) -> Callable[[Any], Offer]:
    """Return a function that offers VTA for an int8 operator, or raises ``Refused``."""
    env = Env(configuration)

    def offer(record: Any) -> Offer:
        return _Divided(env, record).offer()

    return offer


class _Divided:
    def __init__(self, env: Env, record: records.Convolution) -> None:
        self._env = env
        self._record = record
        if record.depthwise:
            raise Refused("a depthwise convolution would leave its blocks of weights nearly empty")
        if record.dilation != (1, 1):
            raise Refused("dilated convolutions are not lowered for VTA")
        outputs, rows, columns, channels = record.weights.shape
        height, width, _ = record.input_shape
        top, left, bottom, right = record.padding
        # A 1x1 window reads only the pixels that were packed.
        self._apart = record.strides if (rows, columns) == (1, 1) else (1, 1)
        if self._apart == (1, 1) and record.strides[0] != record.strides[1]:
            raise Refused("strides that differ are not lowered for VTA")
        size = tuple(
            -(-extent // apart)
            for extent, apart in zip((height + top + bottom, width + left + right), self._apart, strict=True)
        )
        self._inner, self._outer = -(-channels // env.BLOCK_IN), -(-outputs // env.BLOCK_OUT)
        self._blocks = (1, self._inner, *size, env.BATCH, env.BLOCK_IN)
        stride = 1 if self._apart != (1, 1) else record.strides[0]
        try:
            self._work = operators.Conv2d(
                (1, channels, *size), outputs, (rows, columns), stride, requantise=operators.Sums()
            )
            self._cycles, self._moved = self._work.estimate(env)
        except (CompileError, DoesNotFitError) as error:
            raise Refused(error.message) from error

    def offer(self) -> Offer:
        blocks = 0 if self._is_blocks else int(np.prod(self._blocks))
        sums = self._work.requantise.results * int(np.prod(self._record.output_shape))
        return Offer(self._cycles, self._moved, blocks + sums, self._parts)

    @property
    def _is_blocks(self) -> bool:
        one_after_another = self._inner == 1 or self._blocks[2:4] == (1, 1)
        whole = self._record.input_shape == (*self._blocks[2:4], self._inner * self._env.BLOCK_IN)
        return self._env.BATCH == 1 and one_after_another and whole

    def _parts(self) -> list[Part]:
        # The residual operand is the second input.
        others = 1 if self._record.residual is None else 2
        product, rounding = self._product(), self._rounding()
        parts = [Part(product, (0,))] if self._is_blocks else [Part(self._blocking(), (0,)), Part(product, (others,))]
        return [*parts, Part(rounding, (others + len(parts) - 1, *range(1, others)))]

    def _blocking(self) -> records.Operator:
        record, (height, width, channels) = self._record, self._record.input_shape
        data = te.placeholder((1, height, width, channels), "int8", "data")
        top, left, _, _ = record.padding
        block = self._env.BLOCK_IN

        def value(_n: Any, ko: Any, i: Any, j: Any, _b: Any, ki: Any) -> Any:
            y, x, c = i * self._apart[0] - top, j * self._apart[1] - left, ko * block + ki
            inside = tirx.all(y >= 0, y < height, x >= 0, x < width, c < channels)
            return tirx.if_then_else(inside, data[0, y, x, c], tirx.const(record.input_zero, "int8"))

        function = te.create_prim_func([data, te.compute(self._blocks, value, "output")])
        return records.Operator(functions.describe(function, "blocks_for_vta", (None,)))

    def _product(self) -> records.Operator:
        record, env = self._record, self._env
        weights = layout.weights(env, record.weights.transpose(0, 3, 1, 2))
        lowered = lower(self._work.schedule(env).mod, env, linked=True)
        (function,) = lowered.functions.values()
        function = functions.describe(function, "conv2d_int8_on_vta", (None,), record.macs)
        return records.Operator(function.with_attr(INCLUDE, "vta.h"), (weights,))

    def _rounding(self) -> records.Operator:
        record = self._record
        height, width, outputs = record.output_shape
        batch, block = self._env.BATCH, self._env.BLOCK_OUT
        planes = te.placeholder((1, self._outer, height, width, 4, batch, block), "int8", "planes")
        other = te.placeholder((1, height, width, outputs), "int8", "other")
        per_channel = [te.placeholder((outputs,), "int32", name) for name in ("bias", "multipliers", "shifts")]
        bias, multipliers, shifts = per_channel

        def result(n: Any, y: Any, x: Any, o: Any) -> Any:
            place = (0, te.indexdiv(o, block), y, x)
            low = [planes(*place, plane, 0, te.indexmod(o, block)) for plane in range(4)]
            total = low[3].astype("int32") << arithmetic.number(24)
            for plane in range(3):
                total = total | low[plane].astype("uint8").astype("int32") << arithmetic.number(8 * plane)
            return convolution.narrow_sum(record, total + bias[o], multipliers[o], shifts[o], lambda: other[n, y, x, o])

        output = te.compute((1, height, width, outputs), result, "output")
        inputs = [planes] if record.residual is None else [planes, other]
        function = te.create_prim_func([*inputs, *per_channel, output])
        plan = s_tir.Schedule(function)
        if outputs % block == 0:
            plan.split(plan.get_loops(plan.get_sblock("output"))[-1], [None, block])
        overlap = (None, 0)[: len(inputs)]
        # Sums wrap around as the CPU's do, so the zero point's contribution can be subtracted afterwards.
        added = record.weights.astype(np.int64).sum(axis=(1, 2, 3)) * record.input_zero
        left = (record.bias.astype(np.int64) - added).astype(np.int32)
        function = functions.describe(plan.mod["main"], "rounding_of_vta", overlap)
        return records.Operator(function, (left, *convolution.channels_of(record)))
