# SPDX-License-Identifier: Apache-2.0
"""The result of every frontend."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from utvm.compiler.kernels.use import IntegerLayer
from utvm.compiler.library import Scaling


@dataclass(frozen=True)
class Kept:
    """A tensor that a model keeps from one run to the next."""

    name: str
    initial: bytes


@dataclass(frozen=True)
class Imported:
    """A Relax module and what its user calls the parameters and results of its ``main``.

    Attributes:
        kept: what it keeps between runs: the last parameters find it, the last results are kept.
        input_scalings, output_scalings: what the integers of each stand for; empty where the model's format does
            not say so.
    """

    module: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_scalings: tuple[Scaling | None, ...] = ()
    output_scalings: tuple[Scaling | None, ...] = ()
    kept: tuple[Kept, ...] = ()
    control: "Mapping[str, Control]" = field(default_factory=dict)
    layers: Mapping[str, IntegerLayer] = field(default_factory=dict)

    @property
    def kept_names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.kept)


@dataclass(frozen=True)
class Control:
    """An operator that runs two graphs; ``main`` calls it as a packed function of the name that it has here.

    Attributes:
        kind: ``if``: the first operand chooses the graph. ``while``: the first graph is the condition, the second
        the body, which makes the next operands.
    """

    kind: Literal["if", "while"]
    graphs: tuple[Imported, Imported]
