# SPDX-License-Identifier: Apache-2.0
"""A USB bus in the form of Linux's file system, in a folder: test machines have no probe."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from utvm.probe.usb import sysfs

REAL_MAKER = "STMicroelectronics"


def use(bus: Path, set_attribute: Callable[[Any, str, Any], None] = setattr) -> None:
    """Search for probes on this bus."""
    for name, folder in {"DEVICES": bus / "devices", "NODES": bus / "nodes"}.items():
        folder.mkdir(parents=True, exist_ok=True)
        set_attribute(sysfs, name, folder)


def plug_in(
    bus: Path,
    port: str,
    serial: str,
    *,
    maker: str = REAL_MAKER,
    product: str = "STM32 STLink",
    numbers: tuple[int, int] = (0x0483, 0x374B),
    address: int = 5,
    unread: str = "",
) -> None:
    """Plug a device in, or again with another address.

    Args:
        unread: a string that Linux could not read.
    """
    folder = bus / "devices" / f"1-{port}"
    unplug(bus, port)
    folder.mkdir(parents=True)
    strings = {"manufacturer": maker, "product": product, "serial": serial}
    offsets = {"manufacturer": 14, "product": 15, "serial": 16}  # in the device descriptor: USB 2.0, table 9-8
    descriptor = bytearray(18)
    for name, text in strings.items():
        descriptor[offsets[name]] = offsets[name] if text else 0
        if text and name != unread:
            (folder / name).write_text(f"{text}\n")
    (folder / "descriptors").write_bytes(descriptor)
    (folder / "idVendor").write_text(f"{numbers[0]:04x}\n")
    (folder / "idProduct").write_text(f"{numbers[1]:04x}\n")
    (folder / "busnum").write_text("1\n")
    (folder / "devnum").write_text(f"{address}\n")
    (bus / "devices" / f"1-{port}:1.0").mkdir(exist_ok=True)  # its interface
    node = bus / "nodes" / "001" / f"{address:03}"
    node.parent.mkdir(parents=True, exist_ok=True)
    node.touch()


def unplug(bus: Path, port: str) -> None:
    """Unplug the device at this port, if there is one."""
    folder = bus / "devices" / f"1-{port}"
    if folder.exists():
        (bus / "nodes" / "001" / f"{int((folder / 'devnum').read_text()):03}").unlink(missing_ok=True)
        shutil.rmtree(folder)
