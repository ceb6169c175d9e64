# SPDX-License-Identifier: Apache-2.0
"""Where this computer says what is plugged into its USB: a module for each way to ask.

    sysfs.py     Linux's own list, which opens nothing and hears of a replug at once
    libusb.py    libusb, where there is no such list: macOS, Windows, BSD, a container without /sys

:mod:`utvm.probe.usb` chooses between them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class PluggedIn:
    """What is plugged in, as its source tells it.

    Attributes:
        vendor: USB vendor id.
        product: USB product id.
        manufacturer: who it says made it; this string and the next two are empty where it has none.
        name: what it says it is.
        serial: its serial number.
        usb_path: bus and ports: ``1-2.4`` is bus 1, port 2, port 4 of the hub there.
        bus: the number of that bus.
        address: its number on the bus.
        problem: why it cannot be used, with what to do about it; empty when it can.
    """

    vendor: int
    product: int
    manufacturer: str
    name: str
    serial: str
    usb_path: str
    bus: int
    address: int
    problem: str


class Source(Protocol):
    """A way to ask. Each is a module."""

    def missing(self) -> str:
        """Return why nothing can be asked here; an empty string where it can."""

    def devices(self, wanted: Collection[tuple[int, int]]) -> list[PluggedIn]:
        """Return the devices with one of these vendors and products."""

    def address(self, usb_path: str) -> int:
        """Return the number of what is plugged in there now; 0 where nothing is."""
