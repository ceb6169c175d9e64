# SPDX-License-Identifier: Apache-2.0
"""USB devices in Linux's sysfs. No device is opened."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from utvm.probe import HINTS
from utvm.virtual.usb import MAKER

NODES = Path("/dev/bus/usb")
"""Device nodes: a folder for each bus."""
DEVICES = Path("/sys/bus/usb/devices")
"""The device list."""
OLD_SERIAL_LENGTH = 12
"""Characters in the serial number of an old ST-Link/V2."""
# Offsets of string indices in a device descriptor; index 0 is no string (USB 2.0, table 9-8)
_STRINGS = {"manufacturer": 14, "serial": 16}

ProbeT = TypeVar("ProbeT")


def unavailable_reason() -> str:
    return next((f"{folder} is missing" for folder in (DEVICES, NODES) if not folder.is_dir()), "")


def devices(kinds: Mapping[tuple[int, int], str], create: Callable[..., ProbeT]) -> list[ProbeT]:
    # Interfaces of devices are listed too, without these numbers.
    candidates = (
        (folder, (_number(folder, "idVendor", 16), _number(folder, "idProduct", 16)))
        for folder in sorted(DEVICES.iterdir())
    )
    return [_probe(create, folder, kinds[ids], *ids) for folder, ids in candidates if ids in kinds]


def address(usb_path: str) -> int:
    return _number(DEVICES / usb_path, "devnum")


def _probe(create: Callable[..., ProbeT], folder: Path, kind: str, vendor: int, product: int) -> ProbeT:
    bus, number = _number(folder, "busnum"), address(folder.name)
    return create(
        kind,
        vendor,
        product,
        _text(folder, "serial"),
        folder.name,
        bus,
        number,
        _text(folder, "product") or f"{vendor:04x}:{product:04x}",
        _text(folder, "manufacturer") == MAKER,
        _problem_of(folder, NODES / f"{bus:03}" / f"{number:03}"),
    )


def _problem_of(folder: Path, node: Path) -> str:
    try:
        descriptor = (folder / "descriptors").read_bytes()
    except OSError as error:
        return f"its descriptor cannot be read: {error.strerror}"
    for name, offset in _STRINGS.items():
        if descriptor[offset : offset + 1] != b"\0" and not _text(folder, name):
            return f"Linux could not read its {name} when it was plugged in: unplug and replug it"
    return "" if os.access(node, os.R_OK | os.W_OK) else str(HINTS["access"])


def _text(folder: Path, name: str) -> str:
    try:
        # The kernel adds one newline; the old ST-Link's serial number may begin or end with any character.
        text = (folder / name).read_bytes().decode("utf-8", "replace").removesuffix("\n")
        return text if name == "serial" and len(text) == OLD_SERIAL_LENGTH else text.strip("\0 \n")
    except OSError:
        return ""


def _number(folder: Path, name: str, base: int = 10) -> int:
    try:
        return int(_text(folder, name), base)
    except ValueError:
        return 0
