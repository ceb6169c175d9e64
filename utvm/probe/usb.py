# SPDX-License-Identifier: Apache-2.0
"""Finding debug probes on USB, and telling two of one kind apart.

Linux's own list is asked where there is one, and libusb elsewhere. Linux need not open a probe to know its serial
number: it tells those too that the user may not open.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serial.tools import list_ports

from utvm.errors import ProbeError
from utvm.probe.sources import PluggedIn, Source, libusb, sysfs
from utvm.virtual.usb import MAKER


@dataclass(frozen=True)
class ProbeId:
    """How USB knows a kind of probe."""

    kind: str
    vendor: int
    product: int


@dataclass(frozen=True)
class Probe:
    """A probe that is plugged in.

    Attributes:
        kind: what a board file calls it: ``st-link``.
        vendor: USB vendor id.
        product: USB product id.
        serial: serial number, empty where it cannot be read.
        usb_path: where it is plugged in: ``1-2.4`` is bus 1, port 2, port 4 of the hub there.
        bus: the number of that bus.
        address: its number on the bus; each time that it is plugged in, it gets another one.
        description: what it says of itself.
        virtual: whether it says that it is a virtual board's.
        problem: why it cannot be used, with what to do about it; empty when it can.
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
        """What it is called in messages."""
        serial = self.serial or "without a serial number that can be read"
        return f"{'virtual ' if self.virtual else ''}{self.kind} {serial} at USB {self.usb_path}"

    def check(self) -> None:
        """Raise ProbeError if it has been unplugged since it was found, also where it is back."""
        number = _source().address(self.usb_path)
        if number != self.address:
            how = "was unplugged and plugged in again" if number else "is gone from USB"
            raise ProbeError(
                f"the probe {self.serial} at USB {self.usb_path} {how}",
                "look after its cable and what it is plugged into, then run this again",
            )


@dataclass(frozen=True)
class Detection:
    """What was found, and why nothing could be found where USB itself is missing (empty otherwise)."""

    probes: tuple[Probe, ...]
    problem: str


def detect(known: Sequence[ProbeId]) -> Detection:
    """Look for probes of known kinds.

    A machine without USB is no error: the result says so.
    """
    source = _source()
    if missing := source.missing():
        return Detection((), f"this machine has no USB ({missing})")
    kinds = {(identity.vendor, identity.product): identity.kind for identity in known}
    found = source.devices(kinds.keys())
    return Detection(tuple(_probe(each, kinds[each.vendor, each.product]) for each in found), "")


def _source() -> Source:
    return sysfs if sysfs.DEVICES.is_dir() else libusb


def _probe(device: PluggedIn, kind: str) -> Probe:
    return Probe(
        kind,
        device.vendor,
        device.product,
        device.serial,
        device.usb_path,
        device.bus,
        device.address,
        device.name or f"{device.vendor:04x}:{device.product:04x}",
        device.manufacturer == MAKER,
        device.problem,
    )


def serial_ports(serial: str, interface: int | None = None) -> tuple[str, ...]:
    """Return the serial devices that belong to a probe.

    Args:
        interface: the one on that USB interface alone.
    """
    # A location ends with configuration and interface: 1-2.1:1.0
    ending = "" if interface is None else f".{interface}"
    return tuple(
        port.device
        for port in list_ports.comports()
        if serial and port.serial_number == serial and (port.location or "").endswith(ending)
    )
