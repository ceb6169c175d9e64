# SPDX-License-Identifier: Apache-2.0
"""A library, compiled by this computer's gcc and called through ctypes."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.base.process import run_tool
from utvm.compiler import Library

Array = npt.NDArray[Any]

# The firmware's flags, and every warning as an error.
FLAGS = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffp-contract=off"]
_ALIGNMENT = 16
_GUARD = 64  # bytes before and after the arena and every output, which must not change


def write_sources(library: Library, directory: Path) -> list[Path]:
    """Write a library's files; return the C files."""
    for name, text in library.sources.items():
        (directory / name).write_text(text, encoding="utf-8")
    return sorted(directory / name for name in library.sources if name.endswith(".c"))


class HostLibrary:
    """A library that runs on this computer.

    A call runs it twice, from its initial state: with inputs and outputs outside of the working memory, and with all of
    them in it.

    Args:
        extra: further compiler flags.
    """

    def __init__(self, library: Library, directory: Path, extra: Sequence[str] = ("-O1",)) -> None:
        self.library = library
        shared = directory / f"{library.name}.so"
        files = write_sources(library, directory)
        run_tool(["gcc", *FLAGS, *extra, "-shared", "-fPIC", "-o", shared, *files, "-lm"])
        loaded = ctypes.CDLL(str(shared))
        self._run = getattr(loaded, f"{library.name}_run")
        # Libraries with a state have it.
        self._reset = getattr(loaded, f"{library.name}_reset", lambda: None)

    def __call__(self, *inputs: Array) -> list[Array]:
        """Run the model, and check that it writes to its outputs and arenas only."""
        arrays = [np.array(array, order="C") for array in inputs]
        for array, tensor in zip(arrays, self.library.inputs, strict=True):
            assert (array.shape, str(array.dtype)) == (tensor.shape, tensor.dtype)
        self._reset()
        outside = self._outside(arrays)
        self._reset()
        inside = self._inside(arrays)
        for outside_output, inside_output in zip(outside, inside, strict=True):
            assert outside_output.tobytes() == inside_output.tobytes(), (
                "a tensor in the arena gives another result than one elsewhere"
            )
        return outside

    def _outside(self, arrays: list[Array]) -> list[Array]:
        before = [array.copy() for array in arrays]
        outputs = [_Guarded(tensor.size_bytes) for tensor in self.library.outputs]
        arenas = self._arenas()
        self._start([array.ctypes.data for array in arrays], [output.address for output in outputs], arenas)
        for output in outputs:
            output.check()
        for array, original in zip(arrays, before, strict=True):
            assert array.tobytes() == original.tobytes(), "the model wrote to its input"
        return self._shaped([output.content() for output in outputs])

    def _inside(self, arrays: list[Array]) -> list[Array]:
        if self.library.takes_rows:
            return self._outside(arrays)
        arenas = self._arenas()
        library = self.library
        sources = []
        for array, place, tensor in zip(arrays, library.input_places, library.inputs, strict=True):
            arena = arenas[place.region]
            arena.content()[place.offset : place.offset + tensor.size_bytes] = array.view().reshape(-1).view(np.uint8)
            sources.append(arena.address + place.offset)
        targets = [arenas[place.region].address + place.offset for place in library.output_places]
        self._start(sources, targets, arenas)
        return self._shaped(
            [
                arenas[place.region].content()[place.offset : place.offset + tensor.size_bytes]
                for place, tensor in zip(library.output_places, library.outputs, strict=True)
            ]
        )

    def _arenas(self) -> "dict[str, _Guarded]":
        return {arena.region: _Guarded(arena.size_bytes) for arena in self.library.arenas}

    def _start(self, inputs: list[int], outputs: list[int], arenas: "dict[str, _Guarded]") -> None:
        camera = Camera(self.library, inputs[0]) if self.library.takes_rows else None
        status = self._run(
            (ctypes.c_void_p * max(len(inputs), 1))(*([camera.address] if camera else inputs)),
            (ctypes.c_void_p * len(outputs))(*outputs),
            *(ctypes.c_void_p(arena.address) for arena in arenas.values()),
        )
        assert status == (camera.code if camera else 0)
        assert camera is None or camera.code or camera.next == camera.height, "not every row was read"
        for arena in arenas.values():
            arena.check()

    def _shaped(self, contents: list[npt.NDArray[np.uint8]]) -> list[Array]:
        return [
            content.copy().view(tensor.dtype).reshape(tensor.shape)
            for content, tensor in zip(contents, self.library.outputs, strict=True)
        ]


_READ = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)


class _Rows(ctypes.Structure):
    """``NAME_rows_t``."""

    _fields_ = (("read", _READ), ("context", ctypes.c_void_p))


class Camera:
    """Hands over the rows of an image at an address; ``fails_at`` is a row that cannot be read."""

    fails_at: int | None = None

    def __init__(self, library: Library, image: int) -> None:
        (tensor,) = library.inputs
        self.height, self.next, self.code = tensor.size_bytes // tensor.row_bytes, 0, 0
        self._image, self._row_bytes = image, tensor.row_bytes
        self._rows = _Rows(_READ(self._read), 1234)
        self.address = ctypes.addressof(self._rows)

    def _read(self, context: int, rows: int, count: int) -> int:
        assert context == 1234
        if self.fails_at is not None and self.next + count > self.fails_at:
            self.code = 77
            return self.code
        ctypes.memmove(rows, self._image + self.next * self._row_bytes, count * self._row_bytes)
        self.next += count
        return 0


class _Guarded:
    """Aligned, uninitialised memory with a known pattern around it."""

    def __init__(self, size: int) -> None:
        self._raw = np.full(size + 2 * _GUARD + _ALIGNMENT, 0xA5, np.uint8)
        start = self._raw.ctypes.data + _GUARD
        self._first = _GUARD + -start % _ALIGNMENT
        self._size = size
        self.address = self._raw.ctypes.data + self._first

    def content(self) -> npt.NDArray[np.uint8]:
        return self._raw[self._first : self._first + self._size]

    def check(self) -> None:
        guard = np.concatenate([self._raw[: self._first], self._raw[self._first + self._size :]])
        assert (guard == 0xA5).all(), "the model wrote outside its memory"
