# SPDX-License-Identifier: Apache-2.0
"""Removes channels that no input changes, and channels that nothing reads; results stay bit-identical.

An interval per channel bounds the numbers that any input can give. A channel whose interval has one number is
constant: dead filters, activations that always cut, saturated channels. Its products are added to the biases of
the convolutions that read it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from utvm.compiler import library, tvm_types
from utvm.compiler.kernels import convolution, fixed_point, lookup, pooling, reduction
from utvm.compiler.kernels.quantities import Native, Node, Value, tensor_type
from utvm.compiler.kernels.records import Computation, Convolution, Rescale

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]
_Range = tuple[_Numbers, _Numbers]
_LIMIT = 2**31


def remove_constant_channels(
    nodes: Sequence[Node], results: Sequence[Value], name_of: Callable[[Value], str]
) -> tuple[list[Node], tuple[library.Removal, ...]]:
    """Return nodes that compute only the channels that some result depends on, and the removed channels."""
    ranges = _ranges(nodes)
    masks = _find_needed(nodes, results, ranges)
    _align(nodes, masks)
    if all(mask.all() for mask in masks.values()):
        return list(nodes), ()
    removals = tuple(
        library.Removal(name_of(node.output), int((~mask).sum()), len(mask))
        for node in nodes
        if isinstance(node.work, Convolution) and (mask := masks.get(id(node.output))) is not None and not mask.all()
    )
    return _Rewriter(ranges, masks, name_of).rewrite(nodes), removals


def _channels(value: Value) -> int:
    return value.shape[-1] if value.shape else 1


def _origins(node: Node) -> npt.NDArray[np.intp] | None:
    """Return the one input channel that each output channel depends on; None if it depends on several."""
    work = node.work
    reshapes = isinstance(work, Native) and work.operator == "relax.reshape" and bool(node.inputs)
    if tvm_types.dtype_of(node.output.type) != "int8" or not (reshapes or isinstance(work, Computation)):
        return None
    outputs, channels = np.arange(_channels(node.output)), _channels(node.inputs[0])
    if isinstance(work, Convolution):
        plain = work.depthwise and work.residual is None and work.input_shape[2] == channels
        return outputs // (len(work.bias) // channels) if plain else None
    if reshapes:
        # The operator flattens, or drops or adds extents of 1.
        return outputs % channels if len(outputs) == int(np.prod(node.inputs[0].shape)) else None
    if isinstance(work, reduction.Reduction) and len(work.shape) - 1 in work.axes:
        return None
    return (
        outputs
        if isinstance(work, lookup.Lookup | pooling.Pool | reduction.Reduction) and len(outputs) == channels
        else None
    )


def _mixes(node: Node) -> bool:
    """True if each output channel may depend on every input channel, as in a convolution or dense layer."""
    work = node.work
    return (
        isinstance(work, Convolution)
        and not work.depthwise
        and work.residual is None
        and work.input_shape[2] == _channels(node.inputs[0])
    )


def _ranges(nodes: Sequence[Node]) -> dict[int, _Range]:
    """Return the least and largest number of each channel, by the value's identity, where they are known."""
    ranges: dict[int, _Range] = {}
    for node in nodes:
        origins = _origins(node)
        if origins is None and not _mixes(node):
            continue
        work = node.work
        low, high = ranges.get(id(node.inputs[0])) or _full(_channels(node.inputs[0]))
        if isinstance(work, Convolution):
            low, high = _convolve(work, low, high)
        elif isinstance(work, reduction.Reduction):
            count = int(np.prod([work.shape[axis] for axis in work.axes]))
            ends = [bound * count + work.bias for bound in (low, high)]
            low, high = _rescale(ends, work.factor, (-128, 127, work.output_zero))
        elif isinstance(work, pooling.Pool):
            low, high = (np.clip(bound, work.low, work.high) for bound in (low, high))
        elif isinstance(work, lookup.Lookup):
            parts = [work.table[first + 128 : last + 129] for first, last in zip(low, high, strict=True)]
            low, high = _bounds([(int(part.min()), int(part.max())) for part in parts])
        elif origins is not None:
            low, high = low[origins], high[origins]
        ranges[id(node.output)] = low, high
    return ranges


def _bounds(pairs: Sequence[tuple[int, int]]) -> _Range:
    array = np.array(pairs, np.int64)
    return array[:, 0], array[:, 1]


def _full(channels: int) -> _Range:
    return np.full(channels, -128), np.full(channels, 127)


def _convolve(record: Convolution, low: _Numbers, high: _Numbers) -> _Range:
    low, high = low - record.input_zero, high - record.input_zero
    if any(record.padding):
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    weights = record.weights.astype(np.int64)
    if record.depthwise:
        copies = len(record.bias) // record.input_shape[2]
        low, high = (np.repeat(bound, copies)[:, None, None, None] for bound in (low, high))
    positive = weights > 0
    ends = [
        np.where(positive, weights * first, weights * last).sum((1, 2, 3)) + record.bias
        for first, last in ((low, high), (high, low))
    ]
    return _rescale(ends, record.rescale, (record.low, record.high, record.output_zero))


def _rescale(ends: Sequence[_Numbers], rescale: Rescale, limits: tuple[int, int, int]) -> _Range:
    columns = np.broadcast_arrays(*ends, rescale.multipliers, rescale.shifts)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return _bounds(
        [fixed_point.bounds((first, last), multiplier, shift, limits) for first, last, multiplier, shift in rows]
    )


def _find_needed(nodes: Sequence[Node], results: Sequence[Value], ranges: dict[int, _Range]) -> dict[int, _Mask]:
    """Return the channels that must exist, from the results to the inputs."""
    masks: dict[int, _Mask] = {}
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            readers.setdefault(id(value), []).append(node)
    whole = {id(value) for value in results}
    for node in reversed(nodes):
        value = node.output
        if id(value) not in ranges or id(value) in whole:
            continue
        low, high = ranges[id(value)]
        needed, removable = np.zeros(len(low), bool), low == high
        for reader in readers[id(value)]:
            reads, absorbs = _reads(reader, value, low, masks)
            needed |= reads
            removable = removable & absorbs
        mask = needed & ~removable
        if not mask.any():
            mask[0] = True  # A tensor has at least one channel.
        masks[id(value)] = mask
    return masks


def _reads(reader: Node, value: Value, numbers: _Numbers, masks: dict[int, _Mask]) -> tuple[_Mask, _Mask]:
    """Return which channels a node reads, and which of them it could take as constants."""
    work, channels = reader.work, len(numbers)
    everything, nothing = np.ones(channels, bool), np.zeros(channels, bool)
    outputs, origins = masks.get(id(reader.output)), _origins(reader)
    if origins is not None and outputs is not None:
        reads = nothing
        np.logical_or.at(reads, origins, outputs)
        return reads, ~reads
    if not _mixes(reader):
        return everything, nothing
    assert isinstance(work, Convolution)
    weights = work.weights if outputs is None else work.weights[outputs]
    reads = (weights != 0).any(axis=(0, 1, 2))
    offsets = numbers - work.input_zero
    # Around the image, the zero point is read instead of the constant.
    absorbs: _Mask = offsets == 0 if any(work.padding) else everything
    sums = np.abs(weights.astype(np.int64).sum(axis=(1, 2)) * np.where(absorbs, offsets, 0)).sum(axis=1)
    if (sums + np.abs(work.bias.astype(np.int64)).max(initial=0) >= _LIMIT).any():
        absorbs = nothing
    return reads, absorbs | ~reads


def _align(nodes: Sequence[Node], masks: dict[int, _Mask]) -> None:
    """Give tensors whose channels have one origin each the channels of their inputs."""
    for node in nodes:
        origins, mask = _origins(node), masks.get(id(node.output))
        source = masks.get(id(node.inputs[0])) if node.inputs else None
        if origins is not None and (mask is not None or source is not None):
            masks[id(node.output)] = np.ones(len(origins), bool) if source is None else source[origins]


class _Rewriter:
    """Writes nodes without the channels that the masks leave out."""

    def __init__(self, ranges: dict[int, _Range], masks: dict[int, _Mask], name_of: Callable[[Value], str]) -> None:
        self._ranges, self._masks, self._name_of = ranges, masks, name_of
        self._values: dict[int, Value] = {}

    def rewrite(self, nodes: Sequence[Node]) -> list[Node]:
        return [self._rewrite(node) for node in nodes]

    def _rewrite(self, node: Node) -> Node:
        inputs = tuple(self._values.get(id(value), value) for value in node.inputs)
        outputs, output = self._masks.get(id(node.output)), node.output
        if inputs == node.inputs and (outputs is None or outputs.all()):
            return node
        if outputs is not None and not outputs.all():
            name, shape = self._name_of(output), (*output.shape[:-1], int(outputs.sum()))
            output = self._values[id(node.output)] = Value(name, tensor_type(shape, "int8"))
        return Node(self._work(node, inputs, outputs, output.shape), inputs, output)

    def _work(self, node: Node, inputs: Sequence[Value], outputs: _Mask | None, shape: tuple[int, ...]) -> Any:
        work = node.work
        if isinstance(work, Native) and work.operator == "relax.reshape":
            return Native(lambda values: relax.op.reshape(values[0], shape), work.operator)
        if isinstance(work, lookup.Lookup):
            return replace(work, shape=shape)
        if isinstance(work, reduction.Reduction):
            return replace(work, shape=inputs[0].shape)
        if isinstance(work, pooling.Pool):
            return replace(work, input_shape=(*work.input_shape[:3], shape[-1]))
        assert isinstance(work, Convolution)
        source = self._masks.get(id(node.inputs[0]), np.ones(work.input_shape[2], bool))
        outputs = np.ones(len(work.bias), bool) if outputs is None else outputs
        return self._convolution(work, node.inputs[0], source, outputs)

    def _convolution(self, work: Convolution, value: Value, source: _Mask, outputs: _Mask) -> Convolution:
        weights, bias = work.weights[outputs], work.bias[outputs].astype(np.int64)
        if not work.depthwise:
            if not source.all():
                low, high = self._ranges[id(value)]
                offsets = np.where(~source & (low == high), low - work.input_zero, 0)
                bias += (weights.astype(np.int64).sum(axis=(1, 2)) * offsets).sum(axis=1)
            weights = weights[..., source]
        multipliers, shifts = (part[outputs] for part in convolution.channels_of(work))
        channels = int(source.sum())
        return replace(
            work,
            input_shape=(*work.input_shape[:2], channels),
            weights=np.ascontiguousarray(weights),
            bias=bias.astype(np.int32),
            rescale=Rescale(multipliers, shifts),
            depthwise=work.depthwise and channels > 1,
        )
