# SPDX-License-Identifier: Apache-2.0
"""A quantised model as nodes: records of integer computations, or calls of Relax's operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from tvm import relax

from utvm.compiler.kernels.records import Computation


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor, or a tuple of tensors, told apart by identity.

    Attributes:
        name: in the module.
        type: Relax's.
        constant: its elements, where they are known.
    """

    name: str
    type: Any
    constant: npt.NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a tensor."""
        return tuple(int(extent) for extent in self.type.shape)


@dataclass(frozen=True, eq=False)
class Native:
    """A computation by Relax's own operators.

    Attributes:
        build: makes the expression of the inputs' expressions.
        operator: Relax's name of it.
        call: the module's call, where there is one; its arguments are not those of the node.
    """

    build: Callable[[Sequence[Any]], Any]
    operator: str
    call: Any = None


@dataclass(frozen=True, eq=False)
class Node:
    """One computation."""

    work: Computation | Native
    inputs: tuple[Value, ...]
    output: Value


def tensor_type(shape: Sequence[int], dtype: str) -> Any:
    """Relax's type of a tensor."""
    return relax.TensorType(tuple(shape), dtype)


def needed(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    """The nodes that results depend on, in their order."""
    wanted = {id(value) for value in results}
    chosen: list[Node] = []
    for node in reversed(nodes):
        if id(node.output) in wanted:
            chosen.append(node)
            wanted.update(id(value) for value in node.inputs)
    return chosen[::-1]
