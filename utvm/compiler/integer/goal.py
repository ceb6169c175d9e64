# SPDX-License-Identifier: Apache-2.0
"""What a float result becomes: the quantisation behind it and the activations in between."""

from dataclasses import dataclass

from utvm.compiler.integer.quantities import Quantity


@dataclass(frozen=True)
class Goal:
    """Into what a float result is quantised.

    Attributes:
        quantity: of the int8 numbers.
        low, high: clamp that activations in between make.
    """

    quantity: Quantity
    low: int
    high: int

    @property
    def is_limited(self) -> bool:
        """Whether an activation limits the numbers further than their type does."""
        return (self.low, self.high) != (-128, 127)
