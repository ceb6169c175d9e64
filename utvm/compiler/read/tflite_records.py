# SPDX-License-Identifier: Apache-2.0
"""The records that a TensorFlow Lite file is read into."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from utvm.compiler.read.flatbuffer import Table


@dataclass(frozen=True)
class Quantisation:
    """How integers stand for real numbers: real = scale * (value - zero point).

    Attributes:
        scales: one, or one for each index along :attr:`axis`.
        zero_points: as many.
        axis: a dimension of the tensor; 0 where there is one scale.
    """

    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int64]
    axis: int


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor of a file.

    Attributes:
        name: as the file calls it; not unique, and may be empty.
        signature: the shape as its author declared it, -1 for a dimension that varies.
        dtype: numpy's name of the element type, or the schema's where numpy has none.
        data: the bytes of a constant, or None.
        variable: it keeps its value from one run to the next.
        sparse: only some of its elements are stored.
    """

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
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class TfliteOperator:
    """An operator of a file.

    Attributes:
        name: as ``BuiltinOperator`` calls it, or a custom operator's own name.
        inputs, outputs: numbers of tensors; -1 for an optional input that is left out.
        options_type: which table of the schema :attr:`options` is: a number of ``BuiltinOptions``.
        options: None if there are none.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options_type: int
    options: Table | None


@dataclass(frozen=True)
class KeptTensor:
    """A tensor that a model keeps from one run to the next.

    Attributes:
        read: number of the tensor in which a run finds it.
        written: number of the tensor whose value is kept.
        initial: the bytes that the first run finds.
    """

    name: str
    read: int
    written: int
    initial: bytes


@dataclass(frozen=True)
class TfliteGraph:
    """The computation of a file: operators in the order in which they run.

    Attributes:
        number: of the graph in its file.
        graphs: all of the file, those that ``IF`` and ``WHILE`` call among them; of the first graph only.
    """

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[KeptTensor, ...] = ()
    number: int = 0
    graphs: "tuple[TfliteGraph, ...]" = ()
