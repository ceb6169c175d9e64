"""Puts a fake USB bus at pyusb's edge, in each Python that has this folder on its path.

The environment variable ``FAKE_USB`` lists the serial numbers of the ST-Links that are plugged in, with commas.
"""

import os
from pathlib import Path

import usb.core
import usb.util

from tests.probe.fake_usb import FakeUsbDevice
from utvm.probe import usb as usb_module

_devices = [
    FakeUsbDevice(port_numbers=(number,), strings={2: "STM32 STLink", 3: serial})
    for number, serial in enumerate(os.environ.get("FAKE_USB", "").split(","), 1)
    if serial
]
usb_module._USB_DEVICES = Path("/")
usb.core.find = lambda find_all: iter(_devices)
usb.util.get_string = lambda device, index: device.strings[index]
