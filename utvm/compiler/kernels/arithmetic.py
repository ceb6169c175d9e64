# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's fixed-point arithmetic as TIRx expressions; ``requantize`` is a C helper, or inlined."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from utvm.compiler.kernels import fixed_point, records
from utvm.compiler.tvm_types import element_type


def number(value: int, dtype: str = "int32") -> Any:
    return tirx.IntImm(dtype, int(value))


def clamp_value(value: Any, low: int, high: int, dtype: str = "int8") -> Any:
    """Clamp an integer expression to a range and cast it to the result's type."""
    kind = element_type(value)
    return tirx.max(tirx.min(value, number(high, kind)), number(low, kind)).astype(dtype)


def rescale_value(value: Any, factor: records.Rescale | float) -> Any:
    """Multiply an int32 expression by a compile-time factor, rounded twice, as gemmlowp does."""
    if isinstance(factor, records.Rescale):
        multiplier, shift = int(factor.multipliers[0]), int(factor.shifts[0])
    else:
        multiplier, shift = fixed_point.quantize_multiplier(factor)
    return rescale_by(value, number(multiplier), number(shift))


def rescale_by(value: Any, multiplier: Any, shift: Any) -> Any:
    """Multiply an int32 expression by ``multiplier / 2**31 * 2**shift`` (int32 expressions), rounded twice."""
    return tirx.call_pure_extern("int32", "requantize", value, multiplier, shift)


def rescale_wide(value: Any, multiplier: Any, total: Any) -> Any:
    """Multiply an int64 expression by a 16-bit multiplier, divide by ``2**total`` and round half up to int32."""
    one = number(1, "int64")
    rounded = value * multiplier + tirx.shift_left(one, total - one)
    return tirx.shift_right(rounded, total).astype("int32")


def narrow_multiplier(real: float) -> tuple[int, int]:
    """Return a real number as a 15-bit multiplier and a shift, as TensorFlow Lite does for 64-bit sums."""
    multiplier, shift = fixed_point.quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, 0x7FFF), 15 - shift


def broadcast(tensor: Any, at: Sequence[Any]) -> Any:
    """Return the operand's element for an index of the result, which may have more or longer axes."""
    own = list(at)[len(at) - len(tensor.shape) :]
    return tensor[tuple(number(0) if int(extent) == 1 else at for at, extent in zip(own, tensor.shape, strict=True))]


def expand_helpers(function: Any, helpers: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> Any:
    """Replace calls of ``requantize``, and of further C helpers, by expressions."""
    known = {"requantize": _requantize, **helpers}

    def expand(call: Any) -> Any:
        helper = known.get(str(getattr(call.args[0], "value", ""))) if call.args else None
        return call if helper is None else helper(*call.args[1:])

    return function.with_body(tvm_ffi.structural_map(function.body, [(tvm.ir.Call, expand)], order="post"))


def _requantize(value: Any, multiplier: Any, shift: Any) -> Any:
    constant = int(shift.value) if isinstance(shift, tirx.IntImm) else None
    left = tirx.max(shift, number(0)) if constant is None else number(max(constant, 0))
    shifted = value if constant is not None and constant <= 0 else tirx.shift_left(value, left)
    product = shifted.astype("int64") * multiplier.astype("int64") + number(1 << 30, "int64")
    high = tirx.shift_right(product, number(31, "int64"))
    if constant is not None and constant >= 0:
        return high.astype("int32")
    # Round half away from zero: a negative number gets one less. With no shift there is nothing to round.
    amount = tirx.min(tirx.max(number(0) - shift, number(0)), number(62)) if constant is None else number(-constant)
    right, zero, one = amount.astype("int64"), number(0, "int64"), number(1, "int64")
    half = tirx.shift_right(tirx.shift_left(one, right), one)
    negative = tirx.Select(tirx.all(high < zero, right > zero), one, zero)
    return tirx.shift_right(high + half - negative, right).astype("int32")
