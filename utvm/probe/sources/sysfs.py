# SPDX-License-Identifier: Apache-2.0
"""What is plugged in, as Linux lists it: nothing is opened for it."""

import os
from collections.abc import Collection
from pathlib import Path

from utvm.probe.sources import PluggedIn
from utvm.probe.udev import ACCESS_HINT

NODES = Path("/dev/bus/usb")
"""Where the nodes are through which a device is opened: a folder for each bus."""
DEVICES = Path("/sys/bus/usb/devices")
"""Where the devices are listed."""
# Where a device's descriptor has the numbers of these strings, zero for none (USB 2.0, table 9-8)
_STRINGS = {"manufacturer": 14, "serial": 16}


def missing() -> str:
    """Return why nothing can be asked here."""
    return next((f"{folder} is missing" for folder in (DEVICES, NODES) if not folder.is_dir()), "")


def devices(wanted: Collection[tuple[int, int]]) -> list[PluggedIn]:
    """Return the devices with one of these vendors and products."""
    found = []
    for folder in sorted(DEVICES.iterdir()):
        # Interfaces of devices are listed too, and have no numbers.
        numbers = _number(folder, "idVendor", 16), _number(folder, "idProduct", 16)
        if numbers in wanted:
            found.append(_describe(folder, *numbers))
    return found


def address(usb_path: str) -> int:
    """Return the number of what is plugged in there now; 0 where nothing is."""
    return _number(DEVICES / usb_path, "devnum")


def _describe(folder: Path, vendor: int, product: int) -> PluggedIn:
    bus, place = _number(folder, "busnum"), _number(folder, "devnum")
    return PluggedIn(
        vendor,
        product,
        _text(folder, "manufacturer"),
        _text(folder, "product"),
        _text(folder, "serial"),
        folder.name,
        bus,
        place,
        _problem_of(folder, NODES / f"{bus:03}" / f"{place:03}"),
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
