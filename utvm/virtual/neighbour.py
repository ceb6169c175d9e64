# SPDX-License-Identifier: Apache-2.0
"""What stands beside an emulator for a device that the emulator has not: it works while the core stands still."""

from typing import Protocol


class Reach(Protocol):
    """A way to a board's memory, as its core sees it."""

    def read_memory(self, address: int, size: int) -> bytes:
        """Return bytes from an address on."""

    def write_memory(self, address: int, data: bytes) -> None:
        """Write bytes from an address on."""


class Neighbour(Protocol):
    """A model of such a device.

    Attributes:
        symbol: the function that the device's driver calls when there is something to do.
    """

    symbol: str

    def program(self, bitstream: str) -> None:
        """Have the logic hold a bitstream, by its name; nothing where that is empty."""

    def attend(self, board: Reach) -> None:
        """Do what the driver has asked for; the core stands at the beginning of that function."""
