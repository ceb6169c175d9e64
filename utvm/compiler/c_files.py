# SPDX-License-Identifier: Apache-2.0
"""A library's files. Brief files have placeholder arrays; :mod:`utvm.toolchain.object_file` patches them."""

import base64
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

C_TYPES = {
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for bits in (8, 16, 32, 64) for sign in ("", "u")},
    "float32": "float",
    "float64": "double",
}
"""C99 name of each element type, by numpy name."""

_INTEGER_SUFFIX = {"uint32": "u", "int64": "LL", "uint64": "ULL"}


_ROW = 8  # Numbers per line.
_PLAIN = ("int8", "uint8", "int16", "uint16")


def rows(array: npt.NDArray[Any]) -> str:
    dtype = str(array.dtype)
    values = array.ravel().tolist()
    # Most weights have these types, and there are millions.
    numbers = list(map(str, values)) if dtype in _PLAIN else [literal(value, dtype) for value in values]
    return ",\n".join("    " + ", ".join(numbers[start : start + _ROW]) for start in range(0, len(numbers), _ROW))


def literal(value: float | int, dtype: str) -> str:
    """Return a C99 literal; floats have the fewest digits that read back as the same bits."""
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
        # Applies to nearly all weights: numpy's own text is identical and three times as fast.
        digits = str(rounded)
    elif 1e-4 <= size < 1e7:
        digits = np.format_float_positional(rounded, unique=True, trim="0")
    else:
        digits = np.format_float_scientific(rounded, unique=True, trim="0")
    return digits + ("f" if dtype == "float32" else "")


_LEAST_BYTES = 4096  # Minimum size of a large array. No compiler inlines an array of this size.
_STAND_IN = re.compile(r"^ *\d+, \d+ /\* instead of (\w+) \*/$", re.MULTILINE)


def is_large(array: npt.NDArray[Any]) -> bool:
    return array.nbytes >= _LEAST_BYTES


def stand_in(name: str, number: int) -> str:
    """Return a large array's placeholder in brief files; it is unique, since compilers merge equal arrays."""
    return f"    {number % 100 + 1}, {number // 100 % 100} /* instead of {name} */"


class CFiles(Mapping[str, str]):
    """File name to text; ``arrays`` has the content of each large array by its C name."""

    def __init__(self, brief: Mapping[str, str], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.brief = dict(brief)
        self.arrays = dict(arrays)

    def __getitem__(self, file: str) -> str:
        return _STAND_IN.sub(lambda match: rows(self.arrays[match[1]]), self.brief[file])

    def __iter__(self) -> Iterator[str]:
        return iter(self.brief)

    def __len__(self) -> int:
        return len(self.brief)

    def large_in(self, file: str) -> dict[str, bytes]:
        """Return the bytes of a file's large arrays by C name."""
        return {name: self.arrays[name].tobytes() for name in _STAND_IN.findall(self.brief[file])}

    def join(self, others: "Iterable[CFiles]") -> "CFiles":
        files = [self, *others]
        return CFiles(
            {name: text for file in files for name, text in file.brief.items()},
            {name: array for file in files for name, array in file.arrays.items()},
        )

    def to_values(self) -> dict[str, Any]:
        arrays = {
            name: [str(array.dtype), base64.b64encode(array.tobytes()).decode()] for name, array in self.arrays.items()
        }
        return {"brief": self.brief, "arrays": arrays}


def sources_of(packed: Mapping[str, Any]) -> CFiles:
    arrays = {name: np.frombuffer(base64.b64decode(data), dtype) for name, (dtype, data) in packed["arrays"].items()}
    return CFiles(packed["brief"], arrays)
