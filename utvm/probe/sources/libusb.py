# SPDX-License-Identifier: Apache-2.0
"""What is plugged in, as libusb tells it: through pyusb, on any system that libusb is for.

The libusb is that of the package libusb-package: nothing else needs to be installed, and on Linux it looks into
/dev/bus/usb itself. Debian's own asks udev, and finds nothing where there is neither udev nor /sys.

What a device says of itself in words is read from the device, which is opened for it. Also the way to talk to a
device, wherever it was found: :func:`find`.
"""

import errno
import sys
from collections.abc import Collection, Iterator
from typing import Any

import usb.backend.libusb1
import usb.core
import usb.util

from utvm.probe.sources import PluggedIn, sysfs
from utvm.probe.udev import ACCESS_HINT

_ENGLISH = 0x0409
_STRINGS = ("iManufacturer", "iProduct", "iSerialNumber")  # USB 2.0, table 9-8


def missing() -> str:
    """Return why nothing can be asked here."""
    if sys.platform == "linux" and not sysfs.NODES.is_dir():
        return f"{sysfs.NODES} is missing"
    if _backend() is None:
        return "libusb cannot start"
    return ""


def devices(wanted: Collection[tuple[int, int]]) -> list[PluggedIn]:
    """Return the devices with one of these vendors and products."""
    found = [each for each in _all() if (each.idVendor, each.idProduct) in wanted]
    return sorted(map(_describe, found), key=lambda device: device.usb_path)


def address(usb_path: str) -> int:
    """Return the number of what is plugged in there now; 0 where nothing is."""
    return next((int(each.address) for each in _all() if _path_of(each) == usb_path), 0)


def find(bus: int, number: int, kind: tuple[int, int]) -> Any | None:
    """Return pyusb's device of a number on a bus, where it is of that vendor and product."""
    wanted = (bus, number, *kind)
    return next(
        (each for each in _all() if (each.bus, each.address, each.idVendor, each.idProduct) == wanted), None
    )


def problem_of(error: OSError | NotImplementedError) -> str:
    """Return what is wrong with a device, and what to do about it, after libusb's error."""
    if isinstance(error, NotImplementedError):
        return "libusb cannot open it: on Windows it needs the driver WinUSB (Zadig installs it)"
    if error.errno == errno.EACCES:
        return ACCESS_HINT
    return f"it cannot be read ({error.strerror}): unplug and replug it"


def _backend() -> Any | None:
    # Here, since few need it and it is slow to import.
    import libusb_package

    return usb.backend.libusb1.get_backend(find_library=libusb_package.find_library)


def _all() -> Iterator[Any]:
    backend = _backend()
    return iter(usb.core.find(find_all=True, backend=backend)) if backend else iter(())


def _path_of(device: Any) -> str:
    ports = device.port_numbers
    return f"{device.bus}-{'.'.join(map(str, ports))}" if ports else f"{device.bus}:{device.address}"


def _describe(device: Any) -> PluggedIn:
    maker, name, serial, problem = "", "", "", ""
    try:
        maker, name, serial = (_read(device, getattr(device, number)) for number in _STRINGS)
    except (usb.core.USBError, NotImplementedError) as error:
        problem = problem_of(error)
    finally:
        usb.util.dispose_resources(device)
    place = _path_of(device), int(device.bus), int(device.address)
    return PluggedIn(int(device.idVendor), int(device.idProduct), maker, name, serial, *place, problem)


def _read(device: Any, number: int) -> str:
    """Return one of a device's strings; raises USBError where it has that one and it cannot be read."""
    if not number:
        return ""
    # pyusb's own way hides why the languages could not be read.
    languages = usb.util.get_langids(device)
    return str(usb.util.get_string(device, number, languages[0] if languages else _ENGLISH)).strip("\0 \n")
