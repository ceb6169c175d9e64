"""Puts a fake USB bus at pyusb's edge, in each Python that has this folder on its path.

The environment variable ``FAKE_USB`` names a folder that stands in for /sys/bus/usb/devices: see
``tests/probe/fake_usb.py``.
"""

import os
from pathlib import Path

import usb.core
import usb.util

from tests.probe.fake_usb import plugged_in
from utvm.probe import usb as usb_module

_bus = Path(os.environ["FAKE_USB"])
usb_module._USB_DEVICES = _bus
usb.core.find = lambda find_all: iter(plugged_in(_bus))
usb.util.get_string = lambda device, index: device.strings[index]
