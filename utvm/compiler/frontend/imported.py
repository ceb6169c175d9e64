# SPDX-License-Identifier: Apache-2.0
"""What every frontend gives."""

from dataclasses import dataclass
from typing import Any

from utvm.compiler.library import Scaling


@dataclass(frozen=True)
class Imported:
    """A Relax module and what its user calls the parameters and results of its ``main``.

    Attributes:
        input_scalings, output_scalings: what the integers of each stand for; empty where the model's format does
            not say so.
    """

    module: Any
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    input_scalings: tuple[Scaling | None, ...] = ()
    output_scalings: tuple[Scaling | None, ...] = ()
