# SPDX-License-Identifier: Apache-2.0
"""ONNX's CumProd and TopK as Relax, which TVM's importer reads not at all, or not in every version."""

from collections.abc import Sequence
from typing import Any

from tvm import relax, topi

from utvm.compiler.frontend.onnx_quantised import Converter
from utvm.errors import CompileError


def cumulative_product(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert CumProd."""
    data, axis = inputs[0], _number(inputs[1], "its axis")
    backwards = attributes.get("reverse", 0)
    if backwards:
        data = builder.emit_te(topi.flip, data, axis=axis)
    product = builder.emit(relax.op.cumprod(data, axis, exclusive=bool(attributes.get("exclusive", 0))))
    return builder.emit_te(topi.flip, product, axis=axis) if backwards else product


def best(builder: Any, inputs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Convert TopK; where any order will do, it is that of the elements."""
    count = int(attributes["k"]) if len(inputs) == 1 else _number(inputs[1], "its number of elements")
    largest = bool(attributes.get("largest", 1))
    return relax.op.topk(inputs[0], count, attributes.get("axis", -1), "both", largest, "int64")


def _number(value: Any, what: str) -> int:
    if not hasattr(value, "value"):
        raise CompileError(f"{what} must be constant: a library's shapes and loops are fixed")
    return int(value.value.numpy().reshape(-1)[0])


SCANS: dict[str, Converter] = {"CumProd": cumulative_product, "TopK": best}
