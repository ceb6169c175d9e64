# SPDX-License-Identifier: Apache-2.0
"""Detects probes in the guest, by the kernel and by libusb.

An input line is a command with arguments; an output line is its result as JSON. One process runs all commands: the
guest takes ten seconds to start Python.
"""

import json
import os
import sys
from dataclasses import asdict
from typing import Any

import usb.backend.libusb1

from utvm.errors import UtvmError
from utvm.probe import vitals
from utvm.probe.usb import Probe, ProbeId, libusb, sysfs
from utvm.probe.usb import detect as detect_probes

KNOWN = [
    *(ProbeId("st-link", 0x0483, product) for product in (0x3748, 0x374B, 0x374E)),
    ProbeId("cmsis-dap", 0x0D28, 0x0204),
]
NUMBERS = {(probe.vendor, probe.product): probe.kind for probe in KNOWN}
NOBODY = 65534


def detect() -> Any:
    return asdict(detect_probes(KNOWN))


def detect_by_both() -> Any:
    """Devices from both sources, and their addresses by USB path."""
    results = []
    for source in (sysfs, libusb):
        probes = source.devices(NUMBERS, Probe)
        results.append([list(map(asdict, probes)), [source.address(probe.usb_path) for probe in probes]])
    return results


def reload_libusb() -> None:
    """Make libusb enumerate again; it does so once per process."""
    usb.backend.libusb1._lib_object = None


def detect_as_nobody() -> Any:
    """Devices from libusb for a user without access."""
    os.seteuid(NOBODY)
    try:
        return list(map(asdict, libusb.devices(NUMBERS, Probe)))
    finally:
        os.seteuid(0)


def examine(serial: str) -> Any:
    return asdict(vitals.examine(_probe(serial)))


def make_ready(serial: str) -> Any:
    try:
        return asdict(vitals.make_ready(_probe(serial)))
    except UtvmError as error:
        return [type(error).__name__, str(error), error.exit_code]


def _probe(serial: str) -> Probe:
    return next(probe for probe in detect_probes(KNOWN).probes if probe.serial_number == serial)


COMMANDS = {
    command.__name__: command
    for command in (detect, detect_by_both, reload_libusb, detect_as_nobody, examine, make_ready)
}

if __name__ == "__main__":
    for line in sys.stdin:
        command, *arguments = line.split()
        print(json.dumps(COMMANDS[command](*arguments)), flush=True)
