# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow Lite file as records; field numbers are those of ``tensorflow/lite/schema/schema.fbs``."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import numpy as np
import numpy.typing as npt
import tflite

from utvm.compiler.model import Model
from utvm.compiler.read.tflite_decode import with_unpacked_weights
from utvm.compiler.read.tflite_fold import fold_graph, set_shapes
from utvm.compiler.read.tflite_records import Buffer, Quantisation, Table, TfliteGraph, TfliteOperator, TfliteTensor
from utvm.compiler.read.tflite_state import with_constant_conditions, with_states
from utvm.errors import CompileError, ConfigError, did_you_mean

MAX_RANK = 8  # TensorFlow Lite has no operators for more dimensions.


def _names(enumeration: type) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


_ELEMENT_TYPES = {number: name.lower() for number, name in _names(tflite.TensorType).items()}
_OPERATORS = _names(tflite.BuiltinOperator)


def read(content: bytes, origin: str) -> TfliteGraph:
    """Read the first graph and those that it calls."""
    root = Buffer(content, origin).root()
    names = [_operator_name(code) for code in root.tables(1)]
    data = [_data(buffer, number, origin) for number, buffer in enumerate(root.tables(4))]
    graphs = [
        TfliteGraph(
            tuple(_tensor(table, data, origin) for table in graph.tables(0)),
            tuple(_operator(table, names, origin) for table in graph.tables(3)),
            _integers(graph, 1),
            _integers(graph, 2),
        )
        for graph in root.tables(2)
    ]
    if not graphs:
        raise CompileError(f"{origin}: holds no graph", "export the model again")
    graphs = [fold_graph(_with_whole_floats(with_unpacked_weights(graph, origin))) for graph in graphs]
    graphs = with_constant_conditions(graphs, origin)
    return replace(with_states(graphs, origin), graphs=tuple(graphs))


def _with_whole_floats(graph: TfliteGraph) -> TfliteGraph:
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        numbers = (*operator.inputs, *operator.outputs)
        half, whole = numbers if len(numbers) == 2 and operator.name == "DEQUANTIZE" else (-1, -1)
        if not (0 <= half < len(tensors) and 0 <= whole < len(tensors)):
            operators.append(operator)
            continue
        stored, data = tensors[half], tensors[half].data
        if stored.dtype != "float16" or data is None or data.size != 2 * tensors[whole].size:
            operators.append(operator)
            continue
        floats = data.view(np.float16).astype(np.float32)
        tensors[whole] = replace(tensors[whole], data=floats.view(np.uint8))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _operator_name(code: Table) -> str:
    # The first field is the older one, a byte: the larger value counts.
    number = max(code.integer(0, "<b"), code.integer(3, "<i"))
    if number == tflite.BuiltinOperator.CUSTOM:
        return code.text(1) or "a custom operator without a name"
    return _OPERATORS.get(number, f"operator {number}")


def _data(buffer: Table, number: int, origin: str) -> npt.NDArray[np.uint8] | None:
    # Offset 1 means no such buffer; see the schema's comment at Buffer.
    if buffer.integer(1, "<Q") > 1 or buffer.integer(2, "<Q") > 1:
        raise CompileError(
            f"{origin}: the data of buffer {number} lies outside the file's tables, which is not supported",
            "export a model of less than 2 GB",
        )
    data = buffer.array(0, np.uint8)
    return cast("npt.NDArray[np.uint8]", data) if data.size else None


def _tensor(table: Table, buffers: Sequence[npt.NDArray[np.uint8] | None], origin: str) -> TfliteTensor:
    name = table.text(3)
    shape = _shape(table, 0, name, origin)
    number = table.integer(2, "<I")
    if number >= len(buffers) and number:
        raise CompileError(f"{origin}: tensor {name!r}: has buffer {number}, of {len(buffers)}")
    kind = table.integer(1, "<b")
    data = buffers[number] if buffers else None
    dtype = _ELEMENT_TYPES.get(kind, f"number {kind}")
    if dtype == "int4" and data is not None and data.size == (math.prod(shape) + 1) // 2:
        dtype, data = "int8", _from_halves(data)[: math.prod(shape)]
    return TfliteTensor(
        *(name, shape, _shape(table, 7, name, origin) or shape, dtype, data),
        _quantisation(table.table(4), len(shape), name, origin),
        *(bool(table.integer(5, "<b")), table.has(6)),
    )


def _from_halves(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    halves = np.stack([data << 4, data & 0xF0], axis=1).ravel()
    return (halves.view(np.int8) >> 4).view(np.uint8)


def _shape(table: Table, field: int, name: str, origin: str) -> tuple[int, ...]:
    shape = table.array(field, np.int32)
    if shape.size > MAX_RANK:
        raise CompileError(f"{origin}: tensor {name!r}: has {shape.size} dimensions; {MAX_RANK} are supported")
    return tuple(int(extent) for extent in shape.tolist())


def _quantisation(table: Table | None, rank: int, name: str, origin: str) -> Quantisation | None:
    if table is None:
        return None
    scales = cast("npt.NDArray[np.float32]", table.array(2, np.float32))
    zeros = cast("npt.NDArray[np.int64]", table.array(3, np.int64))
    if not scales.size:
        return None
    if zeros.size in (0, 1):
        # Several writers omit zeros, or write one value for all channels.
        zeros = np.full(scales.size, zeros[0] if zeros.size else 0, np.int64)
    if zeros.size != scales.size:
        raise CompileError(f"{origin}: tensor {name!r}: has {scales.size} scales, but {zeros.size} zero points")
    # A bias has one dimension, whatever its writer stored: the kernels ignore the field.
    return Quantisation(scales, zeros, table.integer(6, "<i") if scales.size > 1 and rank != 1 else 0)


def _operator(table: Table, names: list[str], origin: str) -> TfliteOperator:
    number = table.integer(0, "<I")
    if number >= len(names):
        raise CompileError(f"{origin}: an operator has number {number}, of {len(names)} that are declared")
    inputs = list(_integers(table, 1))
    while inputs and inputs[-1] == -1:
        inputs.pop()
    return TfliteOperator(
        names[number],
        tuple(inputs),
        _integers(table, 2),
        table.integer(3, "<B"),
        table.table(4),
        bytes(table.array(5, np.uint8)),
    )


def _integers(table: Table, field: int) -> tuple[int, ...]:
    return tuple(int(value) for value in table.array(field, np.int32).tolist())


def choose_signature(content: bytes, name: str, origin: str) -> bytes:
    """Return the file with the graph of a signature in the place of the first one, which no operator calls."""
    root = Buffer(content, origin).root()
    known = {table.text(2): table.integer(4, "<I") for table in root.tables(7)}
    start, count = root.vector(2, 4)
    if known.get(name, count) >= count:
        hint = did_you_mean(name, known, f"signatures: {', '.join(known) or 'none'}")
        raise ConfigError(f"{origin}: has no signature {name!r}", hint)
    chosen = start + 4 * known[name]
    distance = struct.unpack_from("<I", content, chosen)[0] + chosen - start
    return content[:start] + struct.pack("<I", distance) + content[start + 4 :]


IDENTIFIER = b"TFL3"  # Bytes 4 to 7 of every file.


def from_tflite(
    content: bytes, name: str, origin: str | None = None, shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> Model:
    from utvm.compiler.read.tflite_validate import check

    origin = origin or f"TFLite model {name}"
    content = set_shapes(content, shapes, origin) if shapes else content
    check(read(content, origin), origin)
    return Model(name, origin, "tflite", content)
