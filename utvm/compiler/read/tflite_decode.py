# SPDX-License-Identifier: Apache-2.0
"""Unpack the weights of TensorFlow Lite Micro's compressor (``TFLM_DECODE``; kernels/decode_state*.cc there)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.read.tflite_records import TfliteGraph, TfliteTensor
from utvm.errors import CompileError

_HEADER = 16  # Bytes before the table: type, version, two reserved, and the type's own.
_Bytes = npt.NDArray[np.uint8]


def with_unpacked_weights(graph: TfliteGraph, origin: str) -> TfliteGraph:
    tensors = list(graph.tensors)
    rest = tuple(operator for operator in graph.operators if operator.name != "TFLM_DECODE")
    others = {number for operator in rest for number in operator.inputs}
    for operator in graph.operators if len(rest) < len(graph.operators) else ():
        for count, number in enumerate(operator.outputs if operator.name == "TFLM_DECODE" else ()):
            pair = operator.inputs[2 * count : 2 * count + 2]
            try:
                tensors[number] = _unpack(tensors, pair, tensors[number])
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                name = tensors[number].name if 0 <= number < len(tensors) else f"tensor {number}"
                raise CompileError(
                    f"{origin}: TFLM_DECODE (at {name}): its packed weights are damaged or of an unknown kind",
                    "take the model from before it was compressed",
                ) from error
            for place in set(pair) - others:  # Packed bytes have the scales of the weights, but not their shape.
                tensors[place] = replace(tensors[place], quantisation=None)
    return replace(graph, tensors=tuple(tensors), operators=rest)


def _unpack(tensors: Sequence[TfliteTensor], pair: Sequence[int], result: TfliteTensor) -> TfliteTensor:
    packed, table = (tensors[place].data for place in pair)
    if min(pair) < 0 or packed is None or table is None or tuple(table[[1, 4]]) != (1, 1):
        raise ValueError
    values = _TYPES[table[0]](packed, table, result)
    return replace(result, data=values.reshape(result.shape).view(np.uint8).reshape(-1))


def _looked_up(packed: _Bytes, table: _Bytes, result: TfliteTensor) -> npt.NDArray[Any]:
    width, stride = int(table[5] & 7), int(table[6])
    if not width:
        raise ValueError
    bits = np.unpackbits(packed)[: result.size * width].reshape(result.size, width)
    places = _channels(result) * stride + bits @ (1 << np.arange(width)[::-1])
    return np.asarray(_values(table, result)[places])


def _pruned(packed: _Bytes, table: _Bytes, result: TfliteTensor) -> npt.NDArray[Any]:
    given = np.unpackbits(packed)[: result.size].reshape(result.size).astype(bool)
    zeros = np.zeros(1) if result.quantisation is None else result.quantisation.zero_points
    values = zeros[_channels(result)].astype(result.dtype)
    values[given] = _values(table, result)[: given.sum()]
    return values


def _huffman(packed: _Bytes, table: _Bytes, result: TfliteTensor) -> npt.NDArray[Any]:
    if result.dtype not in ("int8", "int16"):
        raise TypeError
    wide, first = table[5] & 1, int(table[5] >> 4) + 1
    entries = table[_HEADER:].view("<u4" if wide else "<u2").tolist()
    shift = 27 if wide else 11
    content, place, values = packed.tobytes() + bytes(8), 0, []

    def number(size: int) -> int:
        part = content[place >> 3 : (place >> 3) + 4]
        return int.from_bytes(part, "big") >> 8 * len(part) - (place & 7) - size & (1 << size) - 1

    for _ in range(result.size):
        size = first
        at = number(size)
        place += size
        while not (entry := entries[at]) >> shift + 4:
            size = (entry >> shift & 15) + 1
            at += (entry & (1 << shift) - 1) + number(size)
            place += size
        place -= max(size - (entry >> shift & 15), 0)
        values.append(entry & 0xFFFF)
    return np.array(values, np.uint16).astype(result.dtype)


def _channels(result: TfliteTensor) -> npt.NDArray[np.int64]:
    known, places = result.quantisation, np.arange(result.size)
    channels = 1 if known is None else known.scales.size
    if channels > 1 and known is not None and known.axis == len(result.shape) - 1:
        return places % channels
    return places // (result.size // channels)


def _values(table: _Bytes, result: TfliteTensor) -> npt.NDArray[Any]:
    kind = np.dtype(result.dtype)
    return table[_HEADER:][: (table.size - _HEADER) // kind.itemsize * kind.itemsize].view(kind)


_TYPES = {0: _looked_up, 1: _huffman, 2: _pruned}
