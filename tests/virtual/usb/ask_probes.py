# SPDX-License-Identifier: Apache-2.0
"""Runs in the guest: what the project says of the probes there, by the kernel and the libusb that a user has.

Each line of its input is an order with its arguments; the answer is a line of JSON. One process answers all: to
start a Python takes the guest ten seconds.
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


def both() -> Any:
    """Ask both sources for the devices, and for the numbers of what is plugged in where they are."""
    answers = []
    for source in (sysfs, libusb):
        found = source.devices(NUMBERS, Probe)
        answers.append([list(map(asdict, found)), [source.address(probe.usb_path) for probe in found]])
    return answers


def afresh() -> None:
    """Let libusb look around anew, as it does once in a process."""
    usb.backend.libusb1._lib_object = None


def as_nobody() -> Any:
    """Ask libusb, as somebody who may open nothing."""
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


ORDERS = {order.__name__: order for order in (detect, both, afresh, as_nobody, examine, make_ready)}

if __name__ == "__main__":
    for line in sys.stdin:
        order, *arguments = line.split()
        print(json.dumps(ORDERS[order](*arguments)), flush=True)
