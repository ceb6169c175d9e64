# SPDX-License-Identifier: Apache-2.0
"""What every frontend gives."""

from dataclasses import dataclass
from typing import Any

from utvm.compiler.library import Scaling


@dataclass(frozen=True)
class Kept:
    """What a model keeps from one run to the next.

    Attributes:
        initial: the bytes that the first run finds.
    """

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

    @property
    def kept_names(self) -> tuple[str, ...]:
        """How each thing that it keeps is called."""
        return tuple(each.name for each in self.kept)
