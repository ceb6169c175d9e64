# SPDX-License-Identifier: Apache-2.0
"""Handing a debug probe on this computer's USB to an environment: what each of them needs for it.

Which probe that is, :mod:`utvm.probe.choice` decides.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.base.storage.lock import shared_directory
from utvm.environment.container import Extra
from utvm.probe.sources.sysfs import NODES
from utvm.probe.usb import Probe, serial_ports

_USB_MAJOR = 189  # Linux, Documentation/admin-guide/devices.txt


@dataclass(frozen=True)
class UsbFilter:
    """What tells a probe from all else on USB.

    Attributes:
        vendor: as Vagrant's providers write numbers: ``0x0483``.
        product: the same.
        serial: its serial number; empty where any will do.
        bus: the number of the bus that it is on now; None where it is not plugged in.
        device: its number on that bus: another one each time that it is plugged in.
    """

    vendor: str
    product: str
    serial: str = ""
    bus: int | None = None
    device: int | None = None


def filter_of(probe: Probe) -> UsbFilter:
    """Return what tells a probe from all else."""
    return UsbFilter(f"{probe.vendor:#06x}", f"{probe.product:#06x}", probe.serial, probe.bus, probe.address)


def extra_of(probes: Sequence[Probe]) -> Extra:
    """Return what a container gets to drive probes of this computer's.

    The whole bus is in it, as a folder, so that a probe that is unplugged and plugged in again is there again; who
    may open which device on it is decided as outside, by the node's user, group and mode. A serial port is in it
    under the name that it has now.
    """
    ports = tuple(port for each in probes for port in serial_ports(each.serial))
    nodes = [*ports, *(str(NODES / f"{each.bus:03}" / f"{each.address:03}") for each in probes)]
    folders = {str(NODES): "/dev/bus/usb"}
    if locks := shared_directory():
        # Whoever drives a probe, in a container or not, keeps the others away.
        folders[str(locks)] = str(locks)
    return Extra(
        folders=folders,
        device_rules=(f"c {_USB_MAJOR}:* rw",),
        devices=ports,
        groups=_own_groups(nodes),
    )


def _own_groups(nodes: Sequence[str]) -> tuple[int, ...]:
    """Return the groups of nodes that the calling user is in: a container gives nobody more than he has."""
    owners = set()
    for node in nodes:
        # Unless it was unplugged just now.
        with contextlib.suppress(OSError):
            owners.add(Path(node).stat().st_gid)
    return tuple(sorted(owners & set(os.getgroups())))
