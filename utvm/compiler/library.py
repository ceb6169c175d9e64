# SPDX-License-Identifier: Apache-2.0
"""Records of a model, before and after compilation."""

import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from utvm.base.storage.cache import content_key
from utvm.base.text import quoting
from utvm.compiler.c_files import C_TYPES, CFiles, sources_of
from utvm.compiler.target import ANY, Target
from utvm.errors import CompileError


@dataclass(frozen=True)
class Model:
    """A model to compile; ``origin`` is its path in messages.

    ``content`` is an ONNX ``ModelProto`` with all data, a TensorFlow Lite file, or a Relax module as TVM's JSON.
    """

    name: str
    origin: str
    format: Literal["onnx", "relax", "tflite"]
    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return content_key(self.format, self.content)


Sample = list[npt.NDArray[Any]]  # Inputs of one run, an array for each, in the model's order.


ELEMENT_TYPES = tuple(C_TYPES)  # Element types a library can hold, as numpy names.
INDEX_OUT_OF_RANGE = -16  # Status of a run with an input index out of range.
MAX_TENSOR_BYTES = 1 << 26
"""Size limit of a tensor: several times the memory of a large microcontroller, and safe on any host."""


def item_bytes(dtype: str) -> int:
    return np.dtype(dtype).itemsize


def image_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return height, width and channels of one image, NHWC or of one channel; any other tensor is one pixel."""
    extents = [extent for extent in shape if extent > 1]
    height, width, channels = [*extents, 1][:3] if len(extents) in (2, 3) else (1, 1, math.prod(shape))
    return height, width, channels


def check_tensor(place: str, shape: Sequence[int], dtype: str, *, may_be_empty: bool = False) -> int:
    """Refuse a tensor that a library cannot hold; return its size in bytes."""
    if dtype not in ELEMENT_TYPES:
        raise CompileError(
            f"{place}: has elements of type {dtype}, which is not supported",
            f"supported are {', '.join(ELEMENT_TYPES)}",
        )
    size = math.prod(shape) * item_bytes(dtype)
    if size == 0 and not may_be_empty:
        raise CompileError(f"{place}: has no elements: shape {tuple(shape)}", "remove empty tensors from the model")
    if size > MAX_TENSOR_BYTES:
        raise CompileError(
            f"{place}: is too large: shape {tuple(shape)}, {size} bytes",
            f"no tensor may have more than {MAX_TENSOR_BYTES} bytes",
        )
    return size


def dlpack_code(dtype: str) -> int:
    """Return DLPack's code of an element type (``DLDataTypeCode`` of ``dlpack.h``)."""
    return {"int": 0, "uint": 1, "float": 2, "bool": 6}[dtype.rstrip("0123456789")]


HERE = 2**30
"""Overlap value for an output that may share an input's memory only at the same start address."""


@dataclass(frozen=True)
class Scaling:
    """Scaling of a quantised tensor: real = scale * (integer - zero_point)."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Tensor:
    """A row-major input or output of a library, scalars with the shape (); ``scaling`` if the file has one."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    scaling: Scaling | None = None

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * item_bytes(self.dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of an image; see :func:`image_shape`."""
        return self.size_bytes // image_shape(self.shape)[0]

    @property
    def c_type(self) -> str:
        return C_TYPES[self.dtype]

    @property
    def description(self) -> str:
        """Name, type and shape, for a comment in C."""
        return f"{quoting.comment(self.name)}, {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Arena:
    """Working memory in one region, provided by the caller of a library."""

    region: str
    size_bytes: int


ROWS = ""  # Region of an input that the application hands over by rows: none.


@dataclass(frozen=True)
class Placement:
    """Position in the arenas of an input that the caller may place there, or of an output; by default :data:`ROWS`."""

    region: str = ROWS
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """A step of a run; ``kernel`` is the one chosen among equivalent kernels, empty if there is no choice."""

    function: str
    kind: str
    macs: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    kernel: str = ""

    @property
    def key(self) -> str:
        """Name of the step on pages, the same in other libraries of the model."""
        return ", ".join(self.writes) or self.function


@dataclass(frozen=True)
class EntryPoint:
    """An operator that can be called on its own; C types of ``parameters``: inputs, outputs, workspace."""

    function: str
    parameters: tuple[str, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """A block of the memory plan, live from step ``first`` (-1: inputs) to ``last`` (number of steps: outputs)."""

    tensor: str
    kind: str
    region: str
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class Leftover:
    """An operator of a quantised model that stays in float."""

    operator: str
    tensor: str
    reason: str


@dataclass(frozen=True)
class Removal:
    """Channels of a tensor that are not computed: no input changes them, or nothing reads them."""

    tensor: str
    removed: int
    channels: int

    def __str__(self) -> str:
        return f"{self.removed} of {self.channels} channels of {self.tensor} never change, or are not read"


@dataclass(frozen=True)
class Decision:
    """Placement of a layer on a board with an accelerator, with estimated CPU cycles; 0 if unsupported there."""

    tensor: str
    where: str
    reason: str
    cpu_cycles: int
    accelerator_cycles: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True)
class Library:
    """C sources of a model. ``NAME.h`` declares the interface::

            int32_t NAME_run(const void *const *inputs, void *const *outputs, uint8_t *arena);
            void NAME_reset(void);

    ``NAME_run`` returns 0. The caller's arena, aligned to 16 bytes, holds nothing between calls. Inputs and
    outputs are in the order of :attr:`inputs` and :attr:`outputs`, each aligned to its element. Input i may be in
    the arena at ``NAME_INPUT_i_OFFSET``, and is overwritten there; output j at its offset, or anywhere else. A
    model with states has ``NAME_reset``: the next run is a first one. Several memory regions are parameters, named
    after them. An input that is handed over by rows is in the region :data:`ROWS`; see ``NAME.h``.

    Attributes:
        name: prefix of all global symbols, a C identifier.
        sources: file name to text, in a fixed order; from the compiler, :class:`utvm.compiler.c_files.CFiles`.
        arenas: working memory of a run, including inputs and outputs.
        lower_bound_bytes: the largest sum of bytes that one step needs.
        accelerator: identity of the required accelerator; empty if none.
    """

    name: str
    sources: Mapping[str, str]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    arenas: tuple[Arena, ...]
    input_places: tuple[Placement, ...]
    output_places: tuple[Placement, ...]
    calls: tuple[Call, ...]
    weights_bytes: int
    blocks: tuple[Block, ...] = ()
    lower_bound_bytes: int = 0
    leftovers: tuple[Leftover, ...] = ()
    removals: tuple[Removal, ...] = ()
    target: Target = ANY
    executor: str = "aot"
    entry_points: tuple[EntryPoint, ...] = ()
    model: str = ""
    accelerator: str = ""
    decisions: tuple[Decision, ...] = ()
    states: tuple[Tensor, ...] = ()

    @property
    def state_bytes(self) -> int:
        return sum(state.size_bytes for state in self.states)

    @property
    def arena_bytes(self) -> int:
        """Bytes of working memory in all regions, including inputs and outputs."""
        return sum(arena.size_bytes for arena in self.arenas)

    @property
    def takes_rows(self) -> bool:
        """Whether the application hands over the input by rows."""
        return any(place.region == ROWS for place in self.input_places)

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(call.function for call in self.calls)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole library, in hexadecimal; different model files may give the same library."""
        content = {key: value for key, value in json.loads(to_json(self)).items() if key != "model"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def to_json(library: Library) -> str:
    """Return a library as one line of JSON; equal libraries give equal bytes."""
    sources = library.sources
    values = sources.to_values() if isinstance(sources, CFiles) else {"brief": dict(sources), "arrays": {}}
    content = asdict(replace(library, sources={})) | {"sources": values}
    return json.dumps(content, sort_keys=True)


@functools.cache
def _validator() -> TypeAdapter[Library]:
    # Building it takes longer than most libraries take to validate.
    return TypeAdapter(Library)


def from_json(text: str) -> Library:
    """Read the output of :func:`to_json`; raises ValueError or KeyError for anything else."""
    content = json.loads(text)
    library = _validator().validate_python(content | {"sources": {}})
    return replace(library, sources=sources_of(content["sources"]))
