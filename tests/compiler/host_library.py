"""A library, compiled by this computer's gcc and called through ctypes."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler import Library
from utvm.process import run

Array = npt.NDArray[Any]

# What the firmware uses, plus every warning as an error.
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
_ALIGNMENT = 16
_GUARD = 64  # bytes on both sides of the arena and of every output that must stay as they are


def write_sources(library: Library, directory: Path) -> list[Path]:
    """Write a library's files; return the C ones."""
    for name, text in library.sources.items():
        (directory / name).write_text(text, encoding="utf-8")
    return sorted(directory / name for name in library.sources if name.endswith(".c"))


class HostLibrary:
    """A library that can be run here.

    Args:
        extra: further compiler flags.
    """

    def __init__(self, library: Library, directory: Path, extra: Sequence[str] = ("-O1",)) -> None:
        self.library = library
        shared = directory / f"{library.name}.so"
        files = write_sources(library, directory)
        run(["gcc", *FLAGS, *extra, "-shared", "-fPIC", "-o", shared, *files, "-lm"])
        self._run = getattr(ctypes.CDLL(str(shared)), f"{library.name}_run")

    def __call__(self, *inputs: Array) -> list[Array]:
        """Run the model, and check that it writes its outputs and its arena and nothing around them."""
        arrays = [np.array(array, order="C") for array in inputs]
        for array, tensor in zip(arrays, self.library.inputs, strict=True):
            assert (array.shape, str(array.dtype)) == (tensor.shape, tensor.dtype)
        before = [array.copy() for array in arrays]
        outputs = [_Guarded(tensor.size_bytes) for tensor in self.library.outputs]
        arena = _Guarded(self.library.arena_bytes)
        status = self._run(
            (ctypes.c_void_p * max(len(arrays), 1))(*(array.ctypes.data for array in arrays)),
            (ctypes.c_void_p * len(outputs))(*(output.address for output in outputs)),
            ctypes.c_void_p(arena.address),
        )
        assert status == 0
        for place in (arena, *outputs):
            place.check()
        for array, original in zip(arrays, before, strict=True):
            assert array.tobytes() == original.tobytes(), "the model wrote to its input"
        return [
            output.content().view(tensor.dtype).reshape(tensor.shape).copy()
            for output, tensor in zip(outputs, self.library.outputs, strict=True)
        ]


class _Guarded:
    """Aligned memory with a known pattern before and behind it, and rubbish in it."""

    def __init__(self, size: int) -> None:
        self._raw = np.full(size + 2 * _GUARD + _ALIGNMENT, 0xA5, np.uint8)
        start = self._raw.ctypes.data + _GUARD
        self._first = _GUARD + -start % _ALIGNMENT
        self._size = size
        self.address = self._raw.ctypes.data + self._first

    def content(self) -> npt.NDArray[np.uint8]:
        return self._raw[self._first : self._first + self._size]

    def check(self) -> None:
        around = np.concatenate([self._raw[: self._first], self._raw[self._first + self._size :]])
        assert (around == 0xA5).all(), "the model wrote outside its memory"
