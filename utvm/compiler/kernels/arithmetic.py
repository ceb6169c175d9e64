# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite's fixed-point arithmetic in TIRx expressions.

Rescaling calls a helper of C, ``requantize``; :func:`expand_helpers` writes it out for TVM, which simplifies it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from utvm.compiler.kernels.fixed_point import quantize_multiplier
from utvm.compiler.kernels.records import Rescale
from utvm.compiler.tvm_types import element_type


def number(value: int, dtype: str = "int32") -> Any:
    return tirx.IntImm(dtype, int(value))


def clamp_value(value: Any, low: int, high: int, dtype: str = "int8") -> Any:
    """An integer expression limited to a range, in the narrower type of a result."""
    kind = element_type(value)
    return tirx.max(tirx.min(value, number(high, kind)), number(low, kind)).astype(dtype)


def rescale_value(value: Any, factor: Rescale | float) -> Any:
    """An int32 expression times a factor that is known while compiling, rounded twice, as gemmlowp does."""
    if isinstance(factor, Rescale):
        multiplier, shift = int(factor.multipliers[0]), int(factor.shifts[0])
    else:
        multiplier, shift = quantize_multiplier(factor)
    return rescale_by(value, number(multiplier), number(shift))


def rescale_by(value: Any, multiplier: Any, shift: Any) -> Any:
    """An int32 expression times ``multiplier / 2**31 * 2**shift``, rounded twice; both are int32 expressions."""
    return tirx.call_pure_extern("int32", "requantize", value, multiplier, shift)


def rescale_wide(value: Any, multiplier: Any, total: Any) -> Any:
    """An int64 expression times a multiplier of 16 bits, divided by ``2**total``, halves up: int32."""
    one = number(1, "int64")
    rounded = value * multiplier + tirx.shift_left(one, total - one)
    return tirx.shift_right(rounded, total).astype("int32")


def narrow_multiplier(real: float) -> tuple[int, int]:
    """A real number as TensorFlow Lite multiplies sums of 64 bits by it: 15 bits, and how far to shift."""
    multiplier, shift = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, 0x7FFF), 15 - shift


def broadcast(tensor: Any, at: Sequence[Any]) -> Any:
    """An operand's element for a place of the result, which may have more or longer axes."""
    own = list(at)[len(at) - len(tensor.shape) :]
    return tensor[
        tuple(number(0) if int(extent) == 1 else place for place, extent in zip(own, tensor.shape, strict=True))
    ]


def expand_helpers(function: Any, helpers: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> Any:
    """A function with expressions in place of calls of ``requantize``, and of further helpers of C."""
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
    # Halves away from zero: a half less is added to a negative number. Nothing is, where nothing is shifted out.
    amount = (
        tirx.min(tirx.max(number(0) - shift, number(0)), number(62)) if constant is None else number(-constant)
    )
    right, zero, one = amount.astype("int64"), number(0, "int64"), number(1, "int64")
    half = tirx.shift_right(tirx.shift_left(one, right), one)
    negative = tirx.Select(tirx.all(high < zero, right > zero), one, zero)
    return tirx.shift_right(high + half - negative, right).astype("int32")
