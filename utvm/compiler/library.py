"""What the compiler hands on: the records that describe a compiled model."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

_ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "float64": 8,
}

ELEMENT_TYPES = tuple(_ITEM_BYTES)
"""The element types a library can hold, as numpy names."""


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element."""
    return _ITEM_BYTES[dtype]


@dataclass(frozen=True)
class Tensor:
    """One input or output of a library.

    Attributes:
        name: as the model calls it.
        shape: elements in each dimension; empty for a scalar. The layout is row-major.
        dtype: numpy's name of the element type, one of :data:`ELEMENT_TYPES`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return math.prod(self.shape) * item_bytes(self.dtype)


@dataclass(frozen=True)
class Library:
    """C sources made from a model.

    ``NAME.h`` declares the whole interface::

        #define NAME_ARENA_BYTES n
        int32_t NAME_run(const void *const *inputs, void *const *outputs, uint8_t *arena);

    ``NAME_run`` returns 0. The arena is the caller's, aligned to 16 bytes, and holds nothing between calls.
    Inputs and outputs are in the order of :attr:`inputs` and :attr:`outputs`, each aligned to its element.

    Attributes:
        name: a C identifier that all global symbols of the library start with.
        sources: file name to text, in a fixed order.
        inputs: what the model takes.
        outputs: what it gives.
        arena_bytes: bytes of working memory that one run needs, a multiple of 16, possibly 0.
        operators: the C functions that ``NAME_run`` calls, in that order.
        weights_bytes: bytes of constants.
    """

    name: str
    sources: Mapping[str, str]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    arena_bytes: int
    operators: tuple[str, ...]
    weights_bytes: int

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the library, in hexadecimal."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()


def to_json(library: Library) -> str:
    """Write a library as one line of JSON, the same bytes for the same library."""
    content = asdict(library) | {"sources": dict(library.sources)}
    return json.dumps(content, sort_keys=True)


def from_json(text: str) -> Library:
    """Read what :func:`to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: the text is something else.
    """
    content = json.loads(text)
    return Library(
        name=content["name"],
        sources=content["sources"],
        inputs=tuple(_tensor(item) for item in content["inputs"]),
        outputs=tuple(_tensor(item) for item in content["outputs"]),
        arena_bytes=content["arena_bytes"],
        operators=tuple(content["operators"]),
        weights_bytes=content["weights_bytes"],
    )


def _tensor(content: dict[str, object]) -> Tensor:
    shape = content["shape"]
    if not isinstance(shape, list):
        raise TypeError("a tensor's shape is a list")
    return Tensor(str(content["name"]), tuple(int(extent) for extent in shape), str(content["dtype"]))
