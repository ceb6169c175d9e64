# SPDX-License-Identifier: Apache-2.0
"""Debug probes on USB.

``sysfs`` reads Linux's device list; it lists probes that the user may not open, with their serial numbers.
``libusb`` is for systems without that list: macOS, Windows, BSD, a container without /sys.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from serial.tools import list_ports

from utvm.errors import ProbeError
from utvm.probe.usb import sysfs

_ProbeT = TypeVar("_ProbeT")


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
        serial_number: empty if it cannot be read.
        usb_path: ``1-2.4`` is bus 1, port 2, port 4 of the hub there.
        address: device number on the bus; a new one after every replug.
        virtual: True if its manufacturer string is that of the virtual boards.
        problem: why it cannot be used, with a remedy; empty if it can.
        by_path: True if it is selected by its USB path, since another probe has the same serial number.
    """

    kind: str
    vendor: int
    product: int
    serial_number: str
    usb_path: str
    bus: int
    address: int
    description: str
    virtual: bool
    problem: str
    by_path: bool = False

    @property
    def selector(self) -> str:
        """Serial number, or USB path, that selects it."""
        return self.usb_path if self.by_path else self.serial_number

    @property
    def full_name(self) -> str:
        """Name in messages."""
        serial = self.serial_number or "without a readable serial number"
        return f"{'virtual ' if self.virtual else ''}{self.kind} {serial} at USB {self.usb_path}"

    def check(self) -> None:
        """Raise ProbeError if it has been unplugged, even if it is back."""
        number = _source().address(self.usb_path)
        if number != self.address:
            event = "was unplugged and plugged in again" if number else "is gone from USB"
            raise ProbeError(
                f"the probe {self.serial_number} at USB {self.usb_path} {event}",
                "check its cable and the hub, then run this again",
            )


@dataclass(frozen=True)
class Detection:
    """The connected probes; ``problem`` is why USB cannot be searched, or empty."""

    probes: tuple[Probe, ...]
    problem: str


class Source(Protocol):
    """A list of USB devices; each is a module."""

    def unavailable_reason(self) -> str:
        """Reason if this source cannot be used here, or an empty string."""

    def devices(self, kinds: Mapping[tuple[int, int], str], create: Callable[..., _ProbeT]) -> list[_ProbeT]:
        """Devices with one of these vendors and products, as records made by ``create``."""

    def address(self, usb_path: str) -> int:
        """Device number at a path; 0 if nothing is connected there."""


def detect(known: Sequence[ProbeId]) -> Detection:
    """Find connected probes of known kinds. A machine without USB is not an error."""
    source = _source()
    if reason := source.unavailable_reason():
        return Detection((), f"this machine has no USB ({reason})")
    kinds = {(identity.vendor, identity.product): identity.kind for identity in known}
    return Detection(tuple(map(_with_readable_serial, source.devices(kinds, Probe))), "")


def _with_readable_serial(probe: Probe) -> Probe:
    """Return a probe with its serial number as OpenOCD 0.12 spells it.

    Firmware of an ST-Link/V2 before V2J21S4 has the twelve bytes of the number as characters, in place of their
    hexadecimal digits (``stlink_usb_get_alternate_serial``).
    """
    may_be_binary = (
        probe.kind == "st-link"
        and len(probe.serial_number) == sysfs.OLD_SERIAL_LENGTH
        and max(probe.serial_number) <= "\xff"
    )
    if not may_be_binary or (probe.serial_number.isascii() and probe.serial_number.isprintable()):
        return probe
    return replace(probe, serial_number=probe.serial_number.encode("latin-1").hex().upper())


def _source() -> Source:
    if sysfs.DEVICES.is_dir():
        return sysfs
    from utvm.probe.usb import libusb  # needs pyusb

    return libusb


def serial_ports(serial: str, interface: int | None = None, usb_path: str = "") -> tuple[str, ...]:
    """Serial devices of a probe; with ``interface``, the one on that USB interface.

    Args:
        usb_path: USB path of the probe, if another probe has the same serial number.
    """
    # A location ends with configuration and interface: 1-2.1:1.0
    ending = "" if interface is None else f".{interface}"
    return tuple(
        port.device
        for port in list_ports.comports()
        if serial and port.serial_number == serial and (port.location or "").endswith(ending)
        if not usb_path or (port.location or "").partition(":")[0] == usb_path
    )
