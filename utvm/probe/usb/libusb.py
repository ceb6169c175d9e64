# SPDX-License-Identifier: Apache-2.0
"""USB devices through libusb and pyusb, on any system that libusb supports.

libusb comes with the package libusb-package: it needs no installation, and on Linux it reads /dev/bus/usb.
Debian's libusb queries udev and finds no devices without udev and /sys. A device is opened to read its strings.
"""

import errno
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import usb.backend.libusb1
import usb.control
import usb.core
import usb.util

from utvm.probe import HINTS
from utvm.probe.usb import sysfs
from utvm.virtual.usb import MAKER

_ENGLISH = 0x0409
_STRINGS = ("iManufacturer", "iProduct", "iSerialNumber")  # USB 2.0, table 9-8

ProbeT = TypeVar("ProbeT")


def unavailable_reason() -> str:
    if sys.platform == "linux" and not sysfs.NODES.is_dir():
        return f"{sysfs.NODES} is missing"
    return "" if _backend() is not None else "libusb cannot start"


def devices(kinds: Mapping[tuple[int, int], str], create: Callable[..., ProbeT]) -> list[ProbeT]:
    matches = sorted((dev for dev in _devices() if (dev.idVendor, dev.idProduct) in kinds), key=_path_of)
    return [_probe(create, device, kinds[device.idVendor, device.idProduct]) for device in matches]


def address(usb_path: str) -> int:
    return next((int(device.address) for device in _devices() if _path_of(device) == usb_path), 0)


def find(bus: int, number: int, vendor: int, product: int) -> Any | None:
    """The pyusb device at an address, or None."""
    key = (bus, number, vendor, product)
    return next(
        (device for device in _devices() if (device.bus, device.address, device.idVendor, device.idProduct) == key),
        None,
    )


def problem_of(error: OSError | NotImplementedError) -> str:
    """Explain an error of libusb, with a remedy."""
    if isinstance(error, NotImplementedError):
        return "libusb cannot open it: on Windows it needs the driver WinUSB (Zadig installs it)"
    if error.errno == errno.EACCES:
        return str(HINTS["access"])
    return f"it cannot be read ({error.strerror}): unplug and replug it"


def _backend() -> Any | None:
    # Rarely needed and slow to import.
    import libusb_package

    return usb.backend.libusb1.get_backend(find_library=libusb_package.find_library)


def _devices() -> Iterator[Any]:
    backend = _backend()
    return iter(usb.core.find(find_all=True, backend=backend)) if backend else iter(())


def _path_of(device: Any) -> str:
    ports = device.port_numbers
    return f"{device.bus}-{'.'.join(map(str, ports))}" if ports else f"{device.bus}:{device.address}"


def _probe(create: Callable[..., ProbeT], device: Any, kind: str) -> ProbeT:
    maker, name, serial, problem = "", "", "", ""
    try:
        maker, name, serial = (_read_string(device, getattr(device, field)) for field in _STRINGS)
    except (usb.core.USBError, NotImplementedError) as error:
        problem = problem_of(error)
    finally:
        usb.util.dispose_resources(device)
    vendor, product = int(device.idVendor), int(device.idProduct)
    location = _path_of(device), int(device.bus), int(device.address)
    description = name or f"{vendor:04x}:{product:04x}"
    return create(kind, vendor, product, serial, *location, description, maker == MAKER, problem)


def _read_string(device: Any, index: int) -> str:
    if not index:
        return ""
    # pyusb's own function hides why the languages could not be read.
    languages = usb.util.get_langids(device)
    language = languages[0] if languages else _ENGLISH
    data: bytes = usb.control.get_descriptor(device, 254, usb.util.DESC_TYPE_STRING, index, language).tobytes()
    # pyusb's decoder raises on half a surrogate pair. Linux and OpenOCD end a string at a NUL.
    text = data[2 : data[0] & 0xFE].decode("utf-16-le", "replace").partition("\0")[0]
    return text if len(text) == sysfs.OLD_SERIAL_LENGTH else text.strip()
