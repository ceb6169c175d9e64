# SPDX-License-Identifier: Apache-2.0
"""Tensors by their Relax and TIRx types."""

from typing import Any

from tvm import relax, tirx

from utvm.compiler.library import Tensor, check_tensor
from utvm.errors import CompileError


def element_type(node: Any) -> str:
    """Return the numpy element type name of a TIRx expression, variable or buffer."""
    kind = getattr(node.ty, "dtype", node.ty)
    return str(getattr(kind, "dtype", kind))


def dtype_of(kind: Any) -> str:
    """Return the numpy element type name of a Relax type; empty if it is not a tensor."""
    dtype = getattr(kind, "dtype", "")
    return str(getattr(dtype, "dtype", dtype))


def shape_of(kind: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in kind.shape)


def operator_name(call: Any) -> str:
    """Return the name of the Relax operator of a call; empty for other expressions."""
    return str(getattr(getattr(call, "op", None), "name", ""))


def tensor_of(kind: Any, name: str) -> Tensor:
    if not isinstance(kind, relax.TensorType) or kind.shape is None:
        raise CompileError(f"{name}: is not a tensor of known shape, but {kind}")
    extents = list(kind.shape)
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        raise CompileError(
            f"{name}: has a shape that is known only at run time: {tuple(str(extent) for extent in extents)}",
            "give every dimension a fixed size when exporting the model",
        )
    shape, dtype = shape_of(kind), dtype_of(kind)
    check_tensor(name, shape, dtype)
    return Tensor(name, shape, dtype)
