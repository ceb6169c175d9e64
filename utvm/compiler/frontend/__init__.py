# SPDX-License-Identifier: Apache-2.0
"""From a model's bytes to a Relax module, and the least bytes of weights that it needs, before anything is compiled."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from utvm.compiler import library, refusal, tvm_types
from utvm.compiler.frontend import onnx_model, tflite_model
from utvm.compiler.frontend.imported import Imported
from utvm.compiler.kernels.use import IntegerLayer
from utvm.compiler.target import ANY, Target
from utvm.compiler.tvm_types import dtype_of, operator_name
from utvm.errors import CompileError


def import_model(model: library.Model, target: Target = ANY) -> Imported:
    with refusal.tvm_errors(model.origin, "read the model"):
        imported = _FRONTENDS[model.format](model, target)
        _check(imported, model.origin)
    return imported


def _check(imported: Imported, origin: str) -> None:
    _check_tensors(imported.module, origin)
    for control in imported.control.values():
        for graph in control.graphs:
            _check(graph, origin)


def _import_relax(model: library.Model, _: Target) -> Imported:
    module = tvm.ir.load_json(model.content.decode())
    main = module["main"]
    kind = main.body.body.ty
    count = len(kind.fields) if isinstance(kind, relax.TupleType) else 1
    names = ("output",) if count == 1 else tuple(f"output_{number}" for number in range(count))
    return Imported(module, tuple(str(parameter.name) for parameter in main.params), names)


def _check_tensors(module: Any, origin: str) -> None:
    main = module["main"]
    if not isinstance(main.body, relax.SeqExpr):
        raise CompileError(f"{origin}: computes nothing", "a model needs at least one operator")
    values = [*main.params, *(binding.var for block in main.body.blocks for binding in block.bindings)]
    for value in values:
        for kind in _leaves(value.ty):
            tvm_types.tensor_of(kind, f"{origin}: {value.name}")


def _leaves(kind: Any) -> list[Any]:
    if isinstance(kind, relax.TupleType):
        return [leaf for field in kind.fields for leaf in _leaves(field)]
    # Shapes are computed at compile time and take no memory on a board.
    return [] if isinstance(kind, relax.ShapeType) else [kind]


_FRONTENDS: dict[str, Callable[[library.Model, Target], Imported]] = {
    "onnx": onnx_model.import_onnx,
    "relax": _import_relax,
    "tflite": tflite_model.import_tflite,
}


# Operators that multiply a tensor by all of their weights: a needed result needs each weight.
_WEIGHTED = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.nn.conv2d_transpose", "relax.matmul")
# Operators that keep all elements of a constant, whenever they are computed.
_NAMES = "astype dequantize expand_dims permute_dims reshape squeeze"
_KEEPING = tuple(f"relax.{name}" for name in _NAMES.split())
# Results independent of the operand's elements, so its computation may be dropped.
_SHAPE_ONLY = ("relax.full_like", "relax.ones_like", "relax.shape_of", "relax.zeros_like")


def least_bytes(module: Any, enough: int, layers: Mapping[str, IntegerLayer] = MappingProxyType({})) -> int:
    """Return a lower bound of any library's weight bytes; above ``enough``, equal weights count once."""
    main = module["main"]
    bound = {hash(binding.var): binding.value for block in main.body.blocks for binding in block.bindings}
    stored = []
    for value in (bound[key] for key in _reachable(main.body.body, bound) if key in bound):
        if operator_name(value) in _WEIGHTED and _varies(value.args[0], bound):
            stored += _constant(value.args[1], bound)
        elif operator_name(value) == "relax.call_dps_packed" and _varies(value.args[1], bound):
            layer = layers.get(str(value.args[0].global_symbol))
            stored += [(layer.weights, 1)] if layer is not None and layer.weights is not None else []
    total = sum(array.size * size for array, size in stored)
    if total <= enough:
        return total
    return sum({_likeness(array): array.size * size for array, size in stored}.values())


def _variables(expression: Any) -> list[Any]:
    variables: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.Var, variables.append), order="pre")
    return variables


def _reachable(expression: Any, bound: dict[int, Any]) -> Iterable[int]:
    """Yield the variables that the elements of an expression depend on."""
    waiting, visited = _variables(expression), set()
    while waiting:
        key = hash(waiting.pop())
        if key in visited:
            continue
        visited.add(key)
        yield key
        if key in bound and operator_name(bound[key]) not in _SHAPE_ONLY:
            waiting.extend(_variables(bound[key]))


def _varies(expression: Any, bound: dict[int, Any]) -> bool:
    return any(key not in bound for key in _reachable(expression, bound))


def _constant(expression: Any, bound: dict[int, Any]) -> list[tuple[npt.NDArray[Any], int]]:
    narrowest = 8
    while not isinstance(expression, tvm.ir.GenericConst):
        value = bound.get(hash(expression), expression)
        if isinstance(value, tvm.ir.GenericConst):
            break
        if operator_name(value) not in _KEEPING:
            return []
        narrowest = min(narrowest, np.dtype(dtype_of(value.ty) or "int8").itemsize)
        expression = value.args[0]
    array = bound.get(hash(expression), expression).value.numpy()
    return [(array, min(narrowest, array.itemsize))]


def _likeness(array: npt.NDArray[Any]) -> bytes:
    ordered = np.sort(array, axis=None)
    moved = ordered.astype(np.int64) - int(ordered[0]) if ordered.dtype.kind in "iu" else ordered
    return moved.astype(np.float64).tobytes()
