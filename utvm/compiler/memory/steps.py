# SPDX-License-Identifier: Apache-2.0
"""The records of a model's graph: steps and the places that they read and write. No TVM here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from utvm.compiler.library import Tensor


@dataclass(frozen=True)
class Location:
    """Where a tensor's elements are.

    Attributes:
        kind: the caller's input, a constant, a buffer that operators write, the caller's output, or the library's
            own memory.
        number: which one of its kind.
        offset: bytes from its beginning.
    """

    kind: Literal["input", "constant", "buffer", "output", "state"]
    number: int
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """One call of an operator, or a copy.

    Attributes:
        function: name of the TIRx function; empty for a copy.
        copied_bytes: how many bytes a copy moves from its only read to its only write.
    """

    function: str
    reads: tuple[Location, ...]
    writes: tuple[Location, ...]
    copied_bytes: int = 0


@dataclass(frozen=True)
class Graph:
    """A model, ready for planning.

    Attributes:
        inputs: what the caller provides.
        buffers: what operators write and no caller sees, in the order of writing.
        constants: the weights, C-contiguous; equal ones are one.
        steps: operator calls and copies, in order.
        outputs: what the caller receives; all are written when all steps are done.
        functions: TIRx function of each operator, not lowered yet.
        states: what the library keeps between runs; the last steps copy it there.
        initial: the bytes of each in the first run.
    """

    inputs: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    constants: tuple[npt.NDArray[Any], ...]
    steps: tuple[Step, ...]
    outputs: tuple[Tensor, ...]
    functions: Mapping[str, Any]
    states: tuple[Tensor, ...] = ()
    initial: tuple[bytes, ...] = ()
