# SPDX-License-Identifier: Apache-2.0
"""SMLAD dot products: reductions of packed int8 weights, replaced by C helpers through tensorize."""

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as script

PIXELS = 4
"""How many output pixels are computed together."""


def weight(weights: Any, channel: Any, pair: Any, which: Any) -> Any:
    """Return one weight of packed ones: int32 ``[channels / 2][pairs]``, two channels' two weights in each.

    Args:
        which: 0 or 1, of the pair.
    """
    byte = tirx.floormod(channel, 2) + 2 * which
    word = weights[tirx.floordiv(channel, 2), pair]
    return tirx.shift_right(tirx.shift_left(word, 24 - 8 * byte), tirx.IntImm("int32", 24))


def accumulate_columns(sums: Any, columns: Any, weights: Any, channels: int, pairs: int) -> None:
    """Write the block ``accumulate``: ``sums[o, p] += weights of (o, k) * columns of (k, p)``."""
    with script.grid(channels, PIXELS, pairs, 2) as (o, p, k, i), script.sblock("accumulate"):
        channel, pixel = script.axis.spatial(channels, o), script.axis.spatial(PIXELS, p)
        pair, which = script.axis.reduce(pairs, k), script.axis.reduce(2, i)
        product = columns[pair, pixel, which].astype("int32") * weight(weights, channel, pair, which)
        script.buffer_store(sums, sums[channel, pixel] + product, [channel, pixel])


def accumulate_vector(sums: Any, values: Any, weights: Any, channels: int, pairs: int) -> None:
    """Write the block ``accumulate`` for one pixel, whose values are not expanded.

    Pairs 2n and 2n + 1 are the values 4n and 4n + 2, and 4n + 1 and 4n + 3.
    """
    with script.grid(channels, pairs, 2) as (o, k, i), script.sblock("accumulate"):
        channel = script.axis.spatial(channels, o)
        pair, which = script.axis.reduce(pairs, k), script.axis.reduce(2, i)
        value = values[tirx.floordiv(pair, 2) * 4 + tirx.floormod(pair, 2) + 2 * which].astype("int32")
        script.buffer_store(sums, sums[channel] + value * weight(weights, channel, pair, which), [channel])


def tensorize_columns(function: Any, channels: int, pairs: int) -> Any:
    """Replace the block ``accumulate`` of columns by the helper ``dot_columns``."""
    shapes = [("int32", (channels, PIXELS)), ("int16", (pairs, PIXELS, 2)), ("int32", (channels // 2, pairs))]
    return _tensorize(function, "dot_columns", shapes, accumulate_columns, channels, pairs, pairs)


def tensorize_vector(function: Any, channels: int, pairs: int) -> Any:
    """Replace the block ``accumulate`` of one vector by the helper ``dot_vector``."""
    shapes = [("int32", (channels,)), ("int8", (2 * pairs,)), ("int32", (channels // 2, pairs))]
    return _tensorize(function, "dot_vector", shapes, accumulate_vector, channels, pairs, 2 * pairs)


def _tensorize(
    function: Any,
    helper: str,
    shapes: list[tuple[str, tuple[int, ...]]],
    accumulate: Callable[[Any, Any, Any, int, int], None],
    channels: int,
    pairs: int,
    length: int,
) -> Any:
    def call(sums: Any, values: Any, weights: Any, *_: int) -> None:
        pointers = [sums.access_ptr("rw"), values.access_ptr("r"), weights.access_ptr("r")]
        script.evaluate(script.call_extern("int32", helper, *pointers, channels, length))

    name = f"utvm_{helper}_{channels}_{pairs}"
    s_tir.TensorIntrin.register(
        name,
        _intrinsic(shapes, accumulate, channels, pairs),
        _intrinsic(shapes, call, channels, pairs),
        override=True,
    )
    plan = s_tir.Schedule(function)
    block = plan.get_sblock("accumulate")
    loops = plan.get_loops(block)
    plan.tensorize(loops[-(2 + len(shapes[0][1]))], name)
    return plan.mod["main"]


def _intrinsic(
    shapes: list[tuple[str, tuple[int, ...]]],
    body: Callable[[Any, Any, Any, int, int], None],
    channels: int,
    pairs: int,
) -> Any:
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name("intrinsic")
        handles = [script.arg(name, script.handle()) for name in ("a", "b", "c")]
        buffers = [
            script.match_buffer(handle, shape, dtype, offset_factor=1)
            for handle, (dtype, shape) in zip(handles, shapes, strict=True)
        ]
        whole = [
            buffer[tuple(slice(0, extent) for extent in shape)]
            for buffer, (_, shape) in zip(buffers, shapes, strict=True)
        ]
        with script.sblock("root"):
            script.reads(*whole)
            script.writes(whole[0])
            sums, values, weights = buffers
            body(sums, values, weights, channels, pairs)
    return builder.get()
