# SPDX-License-Identifier: Apache-2.0
"""A TensorFlow Lite file as records; field numbers are those of ``tensorflow/lite/schema/schema.fbs``."""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tflite

from utvm.compiler.library import Model
from utvm.compiler.read.tflite_records import Buffer, Quantisation, Table, TfliteGraph, TfliteOperator, TfliteTensor
from utvm.compiler.read.tflite_state import with_constant_conditions, with_states
from utvm.errors import CompileError, ConfigError, did_you_mean

_MAX_ELEMENTS = 1 << 16
_DTYPES = ("int32", "int64", "float32", "bool")
_Option = Callable[..., int]
_Values = list[npt.NDArray[Any]]
_Fold = Callable[[_Values, _Option], npt.NDArray[Any]]
"""From constants and an option by its field number in ``schema.fbs`` to the result."""


def fold_graph(graph: TfliteGraph) -> TfliteGraph:
    """Return the graph without operators on integers, or ranges of floats, whose inputs are constants."""
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        result = _result(operator, tensors, graph.outputs)
        if result is None:
            operators.append(operator)
        else:
            number, array = operator.outputs[0], np.ascontiguousarray(result)
            tensors[number] = replace(tensors[number], data=array.reshape(-1).view(np.uint8))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _result(operator: TfliteOperator, tensors: list[TfliteTensor], outputs: tuple[int, ...]) -> npt.NDArray[Any] | None:
    numbers = (*operator.inputs, *operator.outputs)
    if operator.name not in _FOLDS or len(operator.outputs) != 1 or not all(0 <= n < len(tensors) for n in numbers):
        return None
    target = tensors[operator.outputs[0]]
    if operator.outputs[0] in outputs or target.dtype not in _DTYPES or not 0 < target.size <= _MAX_ELEMENTS:
        return None
    if target.dtype == "float32" and operator.name != "RANGE":
        return None  # Arithmetic of floats stays as the kernels do it.
    options = operator.options

    def option(number: int, kind: str = "<i") -> int:
        return options.integer(number, kind) if options else 0

    try:
        if operator.name == "SHAPE":
            values = [np.array(tensors[operator.inputs[0]].shape)]
        else:
            values = [_array(tensors[number]) for number in operator.inputs]
        with np.errstate(all="ignore"):
            result = _FOLDS[operator.name](values, option).astype(target.dtype)
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return None  # Later checks report the problem.
    return result if result.shape == target.shape else None


def _array(tensor: TfliteTensor) -> npt.NDArray[Any]:
    if tensor.data is None or tensor.dtype not in _DTYPES or tensor.variable:
        raise ValueError
    return np.frombuffer(tensor.data.tobytes(), tensor.dtype).reshape(tensor.shape)


def _range(values: _Values, _: _Option) -> npt.NDArray[Any]:
    start, limit, step = (value.item() for value in values)
    count = max(0, int(np.ceil((limit - start) / step)))
    if count > _MAX_ELEMENTS:
        raise ValueError
    places = np.arange(count).astype(values[0].dtype)
    return np.asarray(values[0].reshape(()) + places * values[2].reshape(()))


def _slice(values: _Values, option: _Option) -> npt.NDArray[Any]:
    data, begin, end, step = values
    if option(2) or option(3) or option(5, "<B"):
        raise ValueError
    index: list[Any] = []
    for axis, (low, high, by) in enumerate(zip(begin.tolist(), end.tolist(), step.tolist(), strict=True)):
        if option(4) >> axis & 1:
            index.append(low)
        else:
            index.append(slice(None if option(0) >> axis & 1 else low, None if option(1) >> axis & 1 else high, by))
    return np.asarray(data[tuple(index)])


def _fill(values: _Values, _: _Option) -> npt.NDArray[Any]:
    if np.prod(values[0], dtype=object) > _MAX_ELEMENTS:
        raise ValueError
    return np.full(values[0], values[1].reshape(()))


def _both(function: Callable[[Any, Any], Any]) -> _Fold:
    def fold(values: _Values, option: _Option) -> npt.NDArray[Any]:
        if option(0, "<B"):
            raise ValueError  # A fused activation.
        return np.asarray(function(*values))

    return fold


def _cast(values: _Values, _: _Option) -> npt.NDArray[Any]:
    if values[0].dtype.kind == "f":
        raise ValueError
    return values[0]


def _gather(values: _Values, option: _Option) -> npt.NDArray[Any]:
    if option(1) or (values[1] < 0).any():
        raise ValueError
    return np.asarray(np.take(values[0], values[1], axis=option(0)))


_FOLDS: Mapping[str, _Fold] = {
    "ADD": _both(np.add),
    "CAST": _cast,
    "CONCATENATION": lambda values, option: np.concatenate(values, option(0)),
    "EXPAND_DIMS": lambda values, _: np.expand_dims(values[0], values[1].item()),
    "FILL": _fill,
    "GATHER": _gather,
    "MAXIMUM": lambda values, _: np.maximum(*values),
    "MINIMUM": lambda values, _: np.minimum(*values),
    "MUL": _both(np.multiply),
    "PACK": lambda values, option: np.stack(values, option(1)),
    "RANGE": _range,
    "REDUCE_PROD": lambda values, option: np.asarray(
        np.prod(values[0], tuple(values[1].ravel().tolist()), values[0].dtype, keepdims=bool(option(0, "<B")))
    ),
    "SHAPE": lambda values, _: values[0],
    "STRIDED_SLICE": _slice,
    "SUB": _both(np.subtract),
}


def set_shapes(content: bytes, shapes: Mapping[str, tuple[int, ...]], origin: str) -> bytes:
    """Return the file with the open dimension of its inputs set; sizes that depend on it grow with it."""
    (graph, *others) = Buffer(content, origin).root().tables(2)
    tables = graph.tables(0)
    inputs = [tables[number] for number in graph.array(1, np.int32).tolist() if 0 <= number < len(tables)]
    known = {table.text(3): table for table in inputs}
    sizes = set()
    for name, shape in shapes.items():
        if name not in known:
            raise ConfigError(f"{origin}: has no input {name!r}", f"inputs: {', '.join(known)}")
        old, signature = _extents(known[name], 0), _extents(known[name], 7)
        shown = ["?" if extent == -1 else extent for extent in signature or old]
        if len(shape) != len(old) or any(size not in ("?", new) for size, new in zip(shown, shape, strict=True)):
            raise ConfigError(f"{origin}: input {name} is {shown}, which {list(shape)} does not fit")
        sizes |= {new for size, new in zip(shown, shape, strict=True) if size == "?"}
    if sizes <= {1}:
        return content
    many = [table for table in tables if _extents(table, 7).count(-1) > 1 or -1 in _extents(table, 0)]
    if len(sizes) > 1 or others or many:
        raise ConfigError(
            f"{origin}: has several open dimensions, of which one can be set", "convert it with fixed shapes"
        )
    return _scale(content, tables, sizes.pop(), origin)


def _scale(content: bytes, tables: list[Table], factor: int, origin: str) -> bytes:
    patched = bytearray(content)
    fixed = set()
    for table in tables:
        start, old = table.vector(0, 4)[0], _extents(table, 0)
        signature = _extents(table, 7)
        if -1 not in signature or len(signature) != len(old):
            fixed.add(start)
            continue
        axis = signature.index(-1)
        struct.pack_into("<i", patched, start + 4 * axis, min(old[axis] * factor, (1 << 31) - 1))
    moved = {table.vector(0, 4)[0] for table in tables if -1 in _extents(table, 7)}
    if moved & fixed:
        raise ConfigError(f"{origin}: stores a fixed and an open shape at one place", "convert it with fixed shapes")
    return bytes(patched)


def _extents(table: Table, field: int) -> list[int]:
    return [int(extent) for extent in table.array(field, np.int32).tolist()]


MAX_RANK = 8  # TensorFlow Lite has no operators for more dimensions.
IDENTIFIER = b"TFL3"  # Bytes 4 to 7 of every file.
_HEADER = 16  # Bytes before the table: type, version, two reserved, and the type's own.
_Bytes = npt.NDArray[np.uint8]


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
    known = _quantisation(table.table(4), len(shape), name, origin)
    if known is not None and data is not None and dtype in ("int8", "int32"):
        known, data = _without_signs(known, data, dtype, shape)
    signature = _shape(table, 7, name, origin) or shape
    return TfliteTensor(name, shape, signature, dtype, data, known, bool(table.integer(5, "<b")), table.has(6))


def _without_signs(
    known: Quantisation, data: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]
) -> tuple[Quantisation, npt.NDArray[np.uint8]]:
    """Move the signs of scales to the numbers: converters that fold a negative factor into the scales leave them."""
    signs, count = np.where(known.scales < 0, -1, 1), known.scales.size
    fits = shape[known.axis : known.axis + 1] == (count,) and data.nbytes == math.prod(shape) * np.dtype(dtype).itemsize
    if (signs > 0).all() or known.zero_points.any() or not fits:
        return known, data
    along = [count if axis == known.axis else 1 for axis in range(len(shape))]
    numbers = data.view(dtype).reshape(shape) * signs.reshape(along)
    if numbers.max() > np.iinfo(dtype).max:
        return known, data
    return replace(known, scales=np.abs(known.scales)), numbers.astype(dtype).ravel().view(np.uint8)


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


def from_tflite(
    content: bytes, name: str, origin: str | None = None, shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> Model:
    from utvm.compiler.read.tflite_validate import check

    origin = origin or f"TFLite model {name}"
    content = set_shapes(content, shapes, origin) if shapes else content
    check(read(content, origin), origin)
    return Model(name, origin, "tflite", content)


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
