# SPDX-License-Identifier: Apache-2.0
"""C types and literals: every number printed so that C reads back exactly the same number."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

C_TYPES = {
    "bool": "bool",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
}
"""numpy name of an element type to its C99 name."""

_INTEGER_SUFFIX = {"uint32": "u", "int64": "LL", "uint64": "ULL"}


_ROW = 8  # Numbers in a row.
_PLAIN = ("int8", "uint8", "int16", "uint16")


def rows(array: npt.NDArray[Any]) -> str:
    """The elements of an array as C has them between braces, some in a line."""
    dtype = str(array.dtype)
    values = array.ravel().tolist()
    # Most weights are of these types, and there are millions of them.
    numbers = list(map(str, values)) if dtype in _PLAIN else [literal(value, dtype) for value in values]
    return ",\n".join("    " + ", ".join(numbers[start : start + _ROW]) for start in range(0, len(numbers), _ROW))


def literal(value: float | int, dtype: str) -> str:
    """A C99 expression for a number of the given element type.

    Floats have the fewest digits that C rounds back to the same bits (at most 9 for ``float``, 17 for
    ``double``). What has no literal is spelled with a macro of ``<stdint.h>`` or ``<math.h>``.
    """
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in ("float32", "float64"):
        return _float_literal(float(value), dtype)
    number = int(value)
    if dtype in ("int32", "int64") and number == np.iinfo(dtype).min:
        return f"{dtype.upper()}_MIN"
    return f"{number}{_INTEGER_SUFFIX.get(dtype, '')}"


def _float_literal(value: float, dtype: str) -> str:
    rounded = np.float32(value) if dtype == "float32" else np.float64(value)
    if math.isnan(rounded):
        return "NAN"
    if math.isinf(rounded):
        return "INFINITY" if rounded > 0 else "-INFINITY"
    size = abs(rounded)
    if size == 0 or 1e-3 <= size < 1e3:
        # Nearly all of a network's weights: numpy's own text is the same, in a third of the time.
        digits = str(rounded)
    elif 1e-4 <= size < 1e7:
        digits = np.format_float_positional(rounded, unique=True, trim="0")
    else:
        digits = np.format_float_scientific(rounded, unique=True, trim="0")
    return digits + ("f" if dtype == "float32" else "")
