# SPDX-License-Identifier: Apache-2.0
"""A device tree for udev only: the result of its real rules for a device that no test machine has."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.processes import may_make_mounts

# Fake devices must not affect this machine: /run and /dev belong to the test.
_TEST = """
set -e
mount -t tmpfs none /run
mount -t tmpfs none /dev
mkdir -p /run/udev/rules.d
cp "$2"/* /run/udev/rules.d
mount --bind "$1" /sys
exec udevadm test --action=add "$3"
"""


def missing() -> str:
    """Return the reason why udev's rules cannot be tried here; an empty string if there is none."""
    if not may_make_mounts():
        return "the right to mount, to show udev a device tree"
    return "" if shutil.which("udevadm") else "udevadm: apt-get install udev"


def plug_in(tree: Path, vendor: int, product: int) -> tuple[str, str]:
    """Add a USB device with a serial line to a device tree; return the paths of both below ``/sys``."""
    device = tree / "devices" / "pci0" / "usb1" / "1-1"
    interface = device / "1-1:1.2"
    line = interface / "tty" / "ttyACM0"
    line.mkdir(parents=True)
    for folder in ("bus/usb/devices", "class/tty"):
        (tree / folder).mkdir(parents=True)
    for folder, subsystem, events in (
        (device, "bus/usb", "MAJOR=189\nMINOR=1\nDEVNAME=bus/usb/001/002\nDEVTYPE=usb_device\n"),
        (interface, "bus/usb", "DEVTYPE=usb_interface\n"),
        (line, "class/tty", "MAJOR=166\nMINOR=0\nDEVNAME=ttyACM0\n"),
    ):
        (folder / "uevent").write_text(events)
        (folder / "subsystem").symlink_to(os.path.relpath(tree / subsystem, folder))
    (device / "idVendor").write_text(f"{vendor:04x}\n")
    (device / "idProduct").write_text(f"{product:04x}\n")
    return tuple(f"/sys/{path.relative_to(tree)}" for path in (device, line))  # type: ignore[return-value]


def udev_output(tree: Path, rules: Path, device: str) -> str:
    """Return udev's output for a device, with the rules of a folder beside those of this machine."""
    completed = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _TEST, "sh", tree, rules, device],
        env={**os.environ, "SYSTEMD_DEVICE_VERIFY_SYSFS": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    output = completed.stdout + completed.stderr
    assert completed.returncode == 0, output
    return output
