# SPDX-License-Identifier: Apache-2.0
"""Records of debug probes on USB."""

from collections.abc import Callable
from dataclasses import dataclass, field

from utvm.errors import ProbeError


@dataclass(frozen=True)
class ProbeId:
    """USB vendor and product of a kind of probe."""

    kind: str
    vendor: int
    product: int


@dataclass(frozen=True)
class Probe:
    """A connected probe.

    Attributes:
        kind: its kind in board files: ``st-link``.
        serial: serial number, empty if it cannot be read.
        usb_path: ``1-2.4`` is bus 1, port 2, port 4 of the hub there.
        address: device number on the bus; a new one after every replug.
        description: its product string.
        virtual: True if its manufacturer string is that of our virtual boards.
        problem: why it cannot be used, with a remedy; empty if it can.
        current_address: returns the device number at a USB path now, 0 if nothing is connected there.
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
    current_address: Callable[[str], int] = field(default=lambda _: 0, compare=False, repr=False)

    @property
    def spoken(self) -> str:
        """Name in messages."""
        serial = self.serial or "without a readable serial number"
        return f"{'virtual ' if self.virtual else ''}{self.kind} {serial} at USB {self.usb_path}"

    def check(self) -> None:
        """Raise ProbeError if it has been unplugged, even if it is back."""
        number = self.current_address(self.usb_path)
        if number != self.address:
            event = "was unplugged and plugged in again" if number else "is gone from USB"
            raise ProbeError(
                f"the probe {self.serial} at USB {self.usb_path} {event}",
                "check its cable and the hub, then run this again",
            )
