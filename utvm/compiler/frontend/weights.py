# SPDX-License-Identifier: Apache-2.0
"""Lower bound of a model's weight bytes, known after import and before anything is compiled."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi

from utvm.compiler.kernels.use import IntegerLayer
from utvm.compiler.tvm_types import dtype_of, operator_name

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
