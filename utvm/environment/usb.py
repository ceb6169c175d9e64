"""Handing a debug probe on this computer's USB to an environment: what a virtual machine or a container needs."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm import boards
from utvm.boards import Board
from utvm.environment.container import Extra
from utvm.errors import ConfigError, ProbeError
from utvm.lock import shared_directory
from utvm.probe.choice import ids_of, match_of
from utvm.probe.usb import NODES, Probe, detect, serial_ports

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


def filters_for(board: Board | None, serial: str) -> tuple[UsbFilter, ...]:
    """Return what tells a board's probes from all else, one filter for each that is plugged in.

    Where none is, there is one for each kind that the board is used with, for when it will be.

    Args:
        board: whose probes; None for those of all boards.
        serial: the one probe of that serial number, or an empty string for all.

    Raises:
        ConfigError: no probe belongs to that board.
    """
    known = _known(board)
    if found := _plugged_in(known, serial)[0]:
        return tuple(
            UsbFilter(_hex(each.vendor), _hex(each.product), each.serial, each.bus, each.address) for each in found
        )
    numbers = dict.fromkeys((match.vendor, match.product) for each in known for match in each.probes)
    return tuple(UsbFilter(_hex(vendor), _hex(product), serial) for vendor, product in numbers)


def extra_for(board: Board | None, serial: str) -> Extra:
    """Return what a container gets to drive a probe of this computer's. Arguments as :func:`filters_for`.

    The whole bus is in it, as a folder, so that a probe that is unplugged and plugged in again is there again; who
    may open which device on it is decided as outside, by the node's user, group and mode. A serial port is in it
    under the name that it has now.

    Raises:
        ConfigError: no probe belongs to that board.
        ProbeError: this computer has no USB, or no such probe, or none that the user may open.
    """
    known = _known(board)
    if not NODES.is_dir():
        raise ProbeError(
            f"this computer has no USB that a container could be given ({NODES} is missing)",
            "plug the probe in here, or leave out --board and --probe: a virtual board needs no USB",
        )
    found, problem = _plugged_in(known, serial)
    if not found:
        which = f"probe {serial}" if serial else f"probe for {board.name}" if board else "probe"
        raise ProbeError(f"there is no {which}: {problem or 'none is plugged in'}", "see ./inv board.detect")
    if all(each.problem for each in found):
        # What the user may not do here, he may not do in a container.
        raise ProbeError(f"the {found[0].spoken} cannot be used", found[0].problem)
    ports = tuple(port for each in found for port in serial_ports(each.serial))
    nodes = [*ports, *(str(NODES / f"{each.bus:03}" / f"{each.address:03}") for each in found)]
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


def _hex(number: int) -> str:
    return f"{number:#06x}"


def _known(board: Board | None) -> tuple[Board, ...]:
    if board is not None and not board.physical:
        raise ConfigError(f"{board.name} is emulated: it has no probe", "leave out --board")
    return (board,) if board else boards.probed()


def _plugged_in(known: Sequence[Board], serial: str) -> tuple[tuple[Probe, ...], str]:
    """Return the probes that fit, and why there may be none."""
    detection = detect([each for board in known for each in ids_of(board)])
    fitting = [probe for probe in detection.probes if any(match_of(board, probe) for board in known)]
    unreadable = next((probe.problem for probe in fitting if not probe.serial), "")
    found = tuple(probe for probe in fitting if not serial or probe.serial == serial)
    return found, detection.problem or unreadable


def _own_groups(nodes: Sequence[str]) -> tuple[int, ...]:
    """Return the groups of nodes that the calling user is in: a container gives nobody more than he has."""
    owners = set()
    for node in nodes:
        # Unless it was unplugged just now.
        with contextlib.suppress(OSError):
            owners.add(Path(node).stat().st_gid)
    return tuple(sorted(owners & set(os.getgroups())))
