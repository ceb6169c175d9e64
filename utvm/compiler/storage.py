# SPDX-License-Identifier: Apache-2.0
"""Where a board stores a model's weights, and whether there is room."""

from dataclasses import dataclass

from utvm.errors import DoesNotFitError


@dataclass(frozen=True)
class Storage:
    """Where weights are stored.

    Attributes:
        name: what messages call it.
        size_bytes: all of it, code counted.
        hint: what to do where it is too small.
    """

    name: str
    size_bytes: int
    hint: str

    def check(self, need: int) -> None:
        """Check bytes that must be stored there."""
        if need > self.size_bytes:
            raise DoesNotFitError(
                f"the weights do not fit: {self.name} has {self.size_bytes} bytes, the weights alone need {need} "
                f"({need - self.size_bytes} too many)",
                self.hint,
            )
