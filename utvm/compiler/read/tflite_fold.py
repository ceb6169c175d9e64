# SPDX-License-Identifier: Apache-2.0
"""Fold what a TFLite graph computes from shapes and constants, and set its open dimension."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.read.tflite_records import Buffer, Table, TfliteGraph, TfliteOperator, TfliteTensor
from utvm.errors import ConfigError

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
