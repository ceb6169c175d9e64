"""Finding debug probes on USB, and telling two of one kind apart: as Linux lists them, which opens none.

libusb is not asked: where no udev tells it, as in a container, it never hears of what was plugged in later.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from serial.tools import list_ports

from utvm.errors import ProbeError
from utvm.probe.udev import ACCESS_HINT
from utvm.virtual.usb import MAKER

NODES = Path("/dev/bus/usb")
"""Where the nodes are through which a device is opened: a folder for each bus."""
_DEVICES = Path("/sys/bus/usb/devices")
# Where a device's descriptor has the numbers of these strings, zero for none (USB 2.0, table 9-8)
_STRINGS = {"manufacturer": 14, "serial": 16}


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
        usb_path: where it is plugged in, as Linux names it: ``1-2.4`` is bus 1, port 2, port 4 of the hub there.
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
        number = _number(_DEVICES / self.usb_path, "devnum")
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
    for folder in (_DEVICES, NODES):
        if not folder.is_dir():
            return Detection((), f"this machine has no USB ({folder} is missing)")
    kinds = {(identity.vendor, identity.product): identity.kind for identity in known}
    probes = []
    for folder in sorted(_DEVICES.iterdir()):
        # Interfaces of devices are listed too, and have no numbers.
        vendor, product = (_number(folder, name, 16) for name in ("idVendor", "idProduct"))
        if kind := kinds.get((vendor, product)):
            probes.append(_describe(folder, kind, vendor, product))
    return Detection(tuple(probes), "")


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


def _describe(folder: Path, kind: str, vendor: int, product: int) -> Probe:
    bus, address = _number(folder, "busnum"), _number(folder, "devnum")
    return Probe(
        kind,
        vendor,
        product,
        _text(folder, "serial"),
        folder.name,
        bus,
        address,
        _text(folder, "product") or f"{vendor:04x}:{product:04x}",
        _text(folder, "manufacturer") == MAKER,
        _problem_of(folder, NODES / f"{bus:03}" / f"{address:03}"),
    )


def _problem_of(folder: Path, node: Path) -> str:
    try:
        descriptor = (folder / "descriptors").read_bytes()
    except OSError as error:
        return f"it does not say what it is: {error.strerror}"
    for name, place in _STRINGS.items():
        if descriptor[place : place + 1] != b"\0" and not _text(folder, name):
            return f"Linux could not read its {name} when it was plugged in: unplug and replug it"
    return "" if os.access(node, os.R_OK | os.W_OK) else ACCESS_HINT


def _text(folder: Path, name: str) -> str:
    """Return what Linux knows of a device; nothing where it does not."""
    try:
        return (folder / name).read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    except OSError:
        return ""


def _number(folder: Path, name: str, base: int = 10) -> int:
    try:
        return int(_text(folder, name), base)
    except ValueError:
        return 0
