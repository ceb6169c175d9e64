# SPDX-License-Identifier: Apache-2.0
"""The files of a library whose large arrays become text only when somebody reads them.

To print megabytes of numbers as text takes as long as to compile the model, and gcc takes longer to read them.
So a firmware is built of brief files, which have other numbers in large arrays, and the object file is given the
bytes themselves (:mod:`utvm.object_file`): it is the same, to the byte, as that of the whole text.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler.literals import rows

_LEAST_BYTES = 4096
"""Of a large array. No compiler copies one of that size by what is in it."""

_STAND_IN = re.compile(r"^ *\d+, \d+ /\* instead of (\w+) \*/$", re.MULTILINE)


def is_large(array: npt.NDArray[Any]) -> bool:
    """Whether an array is left out of brief files."""
    return array.nbytes >= _LEAST_BYTES


def stand_in(name: str, number: int) -> str:
    """Return what brief files have in a large array: no two are alike, for compilers join those."""
    return f"    {number % 100 + 1}, {number // 100 % 100} /* instead of {name} */"


class CFiles(Mapping[str, str]):
    """File name to text.

    Attributes:
        brief: file name to a text that has other numbers in large arrays.
        arrays: the C name of each of these to what is in it.
    """

    def __init__(self, brief: Mapping[str, str], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.brief = dict(brief)
        self.arrays = dict(arrays)

    def __getitem__(self, file: str) -> str:
        return _STAND_IN.sub(lambda found: rows(self.arrays[found[1]]), self.brief[file])

    def __iter__(self) -> Iterator[str]:
        return iter(self.brief)

    def __len__(self) -> int:
        return len(self.brief)

    def large_in(self, file: str) -> dict[str, bytes]:
        """The bytes of the large arrays of a file, by their C names."""
        return {name: self.arrays[name].tobytes() for name in _STAND_IN.findall(self.brief[file])}

    def joined(self, others: "Iterable[CFiles]") -> "CFiles":
        """These files and others', of other names."""
        files = [self, *others]
        return CFiles(
            {name: text for file in files for name, text in file.brief.items()},
            {name: array for file in files for name, array in file.arrays.items()},
        )

    def packed(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        arrays = {
            name: [str(array.dtype), base64.b64encode(array.tobytes()).decode()]
            for name, array in self.arrays.items()
        }
        return {"brief": self.brief, "arrays": arrays}


def sources_of(packed: Mapping[str, Any]) -> CFiles:
    """Return what :meth:`CFiles.packed` gave."""
    arrays = {
        name: np.frombuffer(base64.b64decode(data), dtype) for name, (dtype, data) in packed["arrays"].items()
    }
    return CFiles(packed["brief"], arrays)
