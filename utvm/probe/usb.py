"""Finding debug probes on USB, and telling two of one kind apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import usb.core
import usb.util

from utvm.probe.udev import ACCESS_HINT

_USB_DEVICES = Path("/sys/bus/usb/devices")
_PERMISSION_DENIED = 13


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
        description: what it says of itself.
        problem: why it cannot be used, with what to do about it; empty when it can.
    """

    kind: str
    vendor: int
    product: int
    serial: str
    usb_path: str
    description: str
    problem: str


@dataclass(frozen=True)
class Detection:
    """What was found, and why nothing could be found where USB itself is missing (empty otherwise)."""

    probes: tuple[Probe, ...]
    problem: str


def detect(known: Sequence[ProbeId]) -> Detection:
    """Look for probes of known kinds.

    A machine without USB is no error: the result says so.
    """
    if not _USB_DEVICES.is_dir():
        return Detection((), f"this machine has no USB ({_USB_DEVICES} is missing)")
    try:
        devices = list(usb.core.find(find_all=True) or ())
    except usb.core.NoBackendError:
        return Detection((), "libusb cannot be used: it is not installed, or /dev/bus/usb is missing")
    except usb.core.USBError as error:
        return Detection((), f"USB cannot be searched: {error}")
    kinds = {(identity.vendor, identity.product): identity.kind for identity in known}
    probes = [
        _describe(device, kinds[device.idVendor, device.idProduct])
        for device in devices
        if (device.idVendor, device.idProduct) in kinds
    ]
    return Detection(tuple(sorted(probes, key=lambda probe: probe.usb_path)), "")


def _describe(device: Any, kind: str) -> Probe:
    path = f"{device.bus}-{'.'.join(str(port) for port in device.port_numbers or (0,))}"
    serial, problem = _string(device, device.iSerialNumber)
    product, _ = _string(device, device.iProduct)
    description = product or f"{device.idVendor:04x}:{device.idProduct:04x}"
    return Probe(kind, device.idVendor, device.idProduct, serial, path, description, problem)


def _string(device: Any, index: int) -> tuple[str, str]:
    """Return a string descriptor, and why it cannot be read."""
    if index == 0:
        return "", ""
    try:
        return (usb.util.get_string(device, index) or "").strip("\0 "), ""
    except usb.core.USBError as error:
        return "", ACCESS_HINT if error.errno == _PERMISSION_DENIED else f"it does not answer: {error}"
    except ValueError:
        # pyusb reads the list of languages first and hides that it was not allowed to: "no langid".
        return "", ACCESS_HINT
