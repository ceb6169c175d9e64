"""Finding debug probes on USB, and telling two of one kind apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import usb.core
import usb.util
from serial.tools import list_ports

from utvm.errors import ProbeError
from utvm.virtual.usb import MAKER

_USB_DEVICES = Path("/sys/bus/usb/devices")
_PERMISSION_DENIED = 13
_UDEV_HINT = (
    "you may not open it: install OpenOCD's udev rules (60-openocd.rules in /lib/udev/rules.d), "
    "join the group plugdev, and replug it"
)


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
        try:
            number = int((_USB_DEVICES / self.usb_path / "devnum").read_text(encoding="ascii"))
        except (OSError, ValueError):
            number = 0
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


def _describe(device: Any, kind: str) -> Probe:
    path = f"{device.bus}-{'.'.join(str(port) for port in device.port_numbers or (0,))}"
    serial, problem = _string(device, device.iSerialNumber)
    product, _ = _string(device, device.iProduct)
    maker, unknown = _string(device, device.iManufacturer)
    return Probe(
        kind,
        device.idVendor,
        device.idProduct,
        serial,
        path,
        device.bus,
        device.address,
        product or f"{device.idVendor:04x}:{device.idProduct:04x}",
        maker == MAKER,
        problem or unknown,
    )


def _string(device: Any, index: int) -> tuple[str, str]:
    """Return a string descriptor, and why it cannot be read."""
    if index == 0:
        return "", ""
    try:
        return (usb.util.get_string(device, index) or "").strip("\0 "), ""
    except usb.core.USBError as error:
        return "", _UDEV_HINT if error.errno == _PERMISSION_DENIED else f"it does not answer: {error}"
    except ValueError:
        # pyusb reads the list of languages first and hides that it was not allowed to: "no langid".
        return "", _UDEV_HINT
