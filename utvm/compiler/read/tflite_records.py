# SPDX-License-Identifier: Apache-2.0
"""Records of a TFLite file, and a bounds-checked FlatBuffers reader (https://flatbuffers.dev/internals/)."""

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from flatbuffers import flexbuffers

from utvm.errors import CompileError, ConfigError

_READS_PER_BYTE = 4
_READS_OF_ANY_FILE = 1 << 16


class Buffer:
    """The bytes of a file."""

    def __init__(self, content: bytes, origin: str) -> None:
        self.content = content
        self.origin = origin
        # Tables may overlap, so a small file can be large to read. Files written by tools overlap little.
        self._budget = _READS_OF_ANY_FILE + _READS_PER_BYTE * len(content)

    def root(self) -> "Table":
        return Table(self, self.integer("<I", 0))

    def integer(self, kind: str, place: int) -> int:
        """Read an integer of a :mod:`struct` format, inside the file."""
        self.claim(place, struct.calcsize(kind))
        return int(struct.unpack_from(kind, self.content, place)[0])

    def claim(self, place: int, size: int) -> None:
        """Check that a range is inside the file, and count it as read."""
        if place < 0 or place + size > len(self.content):
            raise ConfigError(
                f"{self.origin}: is damaged or only a part of a file: "
                f"it points to byte {place + size} of {len(self.content)}",
                "export the model again",
            )
        self._budget -= size
        if self._budget < 0:
            raise ConfigError(f"{self.origin}: is damaged: its parts point to each other too often")


class Table:
    """A table of a file."""

    def __init__(self, buffer: Buffer, place: int) -> None:
        self._buffer = buffer
        self.place = place
        self._fields = place - buffer.integer("<i", place)
        self._fields_bytes = buffer.integer("<H", self._fields)
        table_bytes = buffer.integer("<H", self._fields + 2)
        buffer.claim(self._fields, self._fields_bytes)
        buffer.claim(place, table_bytes)

    def has(self, number: int) -> bool:
        return self._field(number) is not None

    def integer(self, number: int, kind: str, default: int = 0) -> int:
        """Return a number field of a :mod:`struct` format."""
        place = self._field(number)
        return default if place is None else self._buffer.integer(kind, place)

    def table(self, number: int) -> "Table | None":
        place = self._target(number)
        return None if place is None else Table(self._buffer, place)

    def tables(self, number: int) -> "list[Table]":
        start, count = self.vector(number, 4)
        places = range(start, start + 4 * count, 4)
        return [Table(self._buffer, place + self._buffer.integer("<I", place)) for place in places]

    def array(self, number: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        """Return a vector of numbers, a view of the file; empty if the field is absent."""
        kind = np.dtype(dtype).newbyteorder("<")
        start, count = self.vector(number, kind.itemsize)
        return np.frombuffer(self._buffer.content, kind, count, start)

    def text(self, number: int) -> str:
        """Return a string; invalid UTF-8 is replaced."""
        return bytes(self.array(number, np.uint8)).decode("utf-8", "replace")

    def _field(self, number: int) -> int | None:
        slot = 4 + 2 * number
        if slot + 2 > self._fields_bytes:
            return None
        offset = self._buffer.integer("<H", self._fields + slot)
        return self.place + offset if offset else None

    def _target(self, number: int) -> int | None:
        place = self._field(number)
        return None if place is None else place + self._buffer.integer("<I", place)

    def vector(self, number: int, item_bytes: int) -> tuple[int, int]:
        """Return the place and the number of items of a vector; zeros if the field is absent."""
        place = self._target(number)
        if place is None:
            return 0, 0
        count = self._buffer.integer("<I", place)
        self._buffer.claim(place + 4, count * item_bytes)
        return place + 4, count


@dataclass(frozen=True)
class Quantisation:
    """Quantisation of a tensor: real = scale * (value - zero point); ``axis`` is 0 with a single scale."""

    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int64]
    axis: int


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor of a file; ``signature`` is the declared shape, -1 for a variable dimension."""

    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    dtype: str
    data: npt.NDArray[np.uint8] | None
    quantisation: Quantisation | None
    variable: bool
    sparse: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class TfliteOperator:
    """An operator of a file; inputs and outputs are tensor numbers, -1 for an omitted optional input."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_type: int
    options: Table | None
    custom: bytes = b""

    def setting(self, name: str, default: int | None = None, kind: str = "AsInt") -> Any:
        """Return a number of a custom operator's options, a FlexBuffers map."""
        try:
            return getattr(flexbuffers.GetRoot(self.custom).AsMap[name], kind)
        except Exception as error:  # flatbuffers raises nearly any built-in error for damaged bytes.
            if default is not None:
                return default
            raise CompileError(f"{self.name}: the option {name} is missing") from error


@dataclass(frozen=True)
class StateTensor:
    """A tensor that a model keeps from one run to the next."""

    name: str
    read: int
    written: int
    initial: bytes


@dataclass(frozen=True)
class TfliteGraph:
    """Operators of a graph in execution order; only the file's first graph lists all ``graphs``."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[StateTensor, ...] = ()
    number: int = 0
    graphs: "tuple[TfliteGraph, ...]" = ()
