# SPDX-License-Identifier: Apache-2.0
"""The result of every frontend."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from utvm.compiler.kernels.use import IntegerLayer
from utvm.compiler.library import Scaling
from utvm.compiler.read.tflite_records import StateTensor


@dataclass(frozen=True)
class Imported:
    """A Relax module; ``main`` takes the ``states`` as last parameters and returns them as last results."""

    module: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_scalings: tuple[Scaling | None, ...] = ()
    output_scalings: tuple[Scaling | None, ...] = ()
    states: tuple[StateTensor, ...] = ()
    control: "Mapping[str, Control]" = field(default_factory=dict)
    layers: Mapping[str, IntegerLayer] = field(default_factory=dict)

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.states)


@dataclass(frozen=True)
class Control:
    """Two graphs run by an operator, a packed function in ``main``: branches of ``if``, or condition and body."""

    kind: Literal["if", "while"]
    graphs: tuple[Imported, Imported]
