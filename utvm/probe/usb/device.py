# SPDX-License-Identifier: Apache-2.0
"""A probe as the sources list it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ListedProbe:
    """A connected device of a known kind.

    Attributes:
        kind: its kind in board files: ``st-link``.
        serial: serial number, empty if it cannot be read.
        usb_path: ``1-2.4`` is bus 1, port 2, port 4 of the hub there.
        address: device number on the bus; a new one after every replug.
        description: its product string.
        virtual: True if its manufacturer string is that of our virtual boards.
        problem: why it cannot be used, with a remedy; empty if it can.
    """

    kind: str
    vendor: int
    product: int
    serial: str
    usb_path: str
    bus: int
    address: int
    description: str
    virtual: bool
    problem: str

    @property
    def spoken(self) -> str:
        """Name in messages."""
        serial = self.serial or "without a readable serial number"
        return f"{'virtual ' if self.virtual else ''}{self.kind} {serial} at USB {self.usb_path}"
