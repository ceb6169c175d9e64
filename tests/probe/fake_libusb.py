# SPDX-License-Identifier: Apache-2.0
"""A USB bus in place of libusb, for pyusb, with devices of :mod:`utvm.virtual.usb`."""

import array
import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import usb.backend
import usb.core

from utvm.virtual.usb.device import DEVICE, IN, SetupPacket, UsbDevice

_TIMEOUT, _BUSY, _ACCESS = -7, -6, -3  # libusb's own numbers


@dataclass
class Port:
    """A device on the bus, and its cable.

    Attributes:
        ports: its path of ports, None if the system does not report it.
        forbidden: whether opening it fails.
        taken: whether another program has claimed its interfaces.
        resets: the number of resets so far.
        after_reset: its address after the next reset, if it changes.
    """

    device: UsbDevice
    address: int = 5
    ports: tuple[int, ...] | None = (2, 4)
    forbidden: bool = False
    taken: bool = False
    resets: int = 0
    after_reset: int = 0
    claimed: set[int] = field(default_factory=set)
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    def send(self, endpoint: int, data: bytes) -> None:
        self.sent.append((endpoint, data))

    def wait_for_request(self, _endpoint: int) -> bool:
        return False


class Bus(usb.backend.IBackend):  # type: ignore[misc]
    """A backend of pyusb in place of libusb. Methods and arguments are pyusb's."""

    def __init__(self, *ports: Port) -> None:
        super().__init__()
        self.ports = list(ports)

    def enumerate_devices(self) -> Iterable[Port]:
        return iter(self.ports)

    def get_parent(self, _port: Port) -> None:
        return None

    def get_device_descriptor(self, port: Port) -> Any:
        raw = port.device.descriptors.descriptor(DEVICE, 0)
        assert raw
        names = "bLength bDescriptorType bcdUSB bDeviceClass bDeviceSubClass bDeviceProtocol bMaxPacketSize0 idVendor "
        names += "idProduct bcdDevice iManufacturer iProduct iSerialNumber bNumConfigurations"
        fields = dict(zip(names.split(), struct.unpack("<BBHBBBBHHHBBBB", raw), strict=True))
        place = {"bus": 1, "address": port.address, "port_number": None, "port_numbers": port.ports, "speed": 3}
        return SimpleNamespace(**fields, **place)

    def get_configuration_descriptor(self, port: Port, _config: int) -> Any:
        names = ("bLength", "bDescriptorType", "wTotalLength", "iConfiguration", "bmAttributes", "bMaxPower")
        return SimpleNamespace(
            **dict.fromkeys(names, 0),
            bNumInterfaces=len(port.device.descriptors.interfaces),
            bConfigurationValue=1,
            extra_descriptors=[],
        )

    def get_interface_descriptor(self, port: Port, number: int, alternate: int, _config: int) -> Any:
        interfaces = port.device.descriptors.interfaces
        if alternate or number >= len(interfaces):
            raise IndexError
        names = ("bLength", "bDescriptorType", "bAlternateSetting", "iInterface")
        classes = ("bInterfaceClass", "bInterfaceSubClass", "bInterfaceProtocol")
        return SimpleNamespace(
            **dict.fromkeys(names, 0),
            **dict(zip(classes, interfaces[number].codes, strict=True)),
            bInterfaceNumber=number,
            bNumEndpoints=len(interfaces[number].endpoints),
            extra_descriptors=[],
        )

    def get_endpoint_descriptor(self, port: Port, number: int, interface: int, _alternate: int, _config: int) -> Any:
        end = port.device.descriptors.interfaces[interface].endpoints[number]
        names = ("bLength", "bDescriptorType", "bInterval", "bRefresh", "bSynchAddress")
        return SimpleNamespace(
            **dict.fromkeys(names, 0),
            bEndpointAddress=end.address,
            bmAttributes=end.transfer,
            wMaxPacketSize=end.packet,
            extra_descriptors=[],
        )

    def open_device(self, port: Port) -> Port:
        if port.forbidden:
            raise usb.core.USBError("Access denied", _ACCESS, errno.EACCES)
        return port

    def close_device(self, port: Port) -> None:
        assert not port.claimed

    def get_configuration(self, _port: Port) -> int:
        return 1

    def claim_interface(self, port: Port, interface: int) -> None:
        if port.taken:
            raise usb.core.USBError("Resource busy", _BUSY, errno.EBUSY)
        port.claimed.add(interface)

    def release_interface(self, port: Port, interface: int) -> None:
        port.claimed.remove(interface)

    def bulk_write(self, port: Port, endpoint: int, interface: int, data: Any, _timeout: int) -> int:
        assert interface in port.claimed
        port.device.take(port, endpoint, bytes(data))
        return len(data)

    def bulk_read(self, port: Port, endpoint: int, interface: int, into: Any, _timeout: int) -> int:
        assert interface in port.claimed
        if not port.sent:
            raise usb.core.USBTimeoutError("Operation timed out", _TIMEOUT, errno.ETIMEDOUT)
        sender, data = port.sent.pop(0)
        assert sender == endpoint
        into[: len(data)] = array.array("B", data)
        return len(data)

    def ctrl_transfer(
        self, port: Port, kind: int, request: int, value: int, index: int, data: Any, _timeout: int
    ) -> int:
        assert kind & IN
        reply = port.device.control(SetupPacket(kind, request, value, index, len(data)), b"")
        assert reply is not None
        data[: len(reply)] = array.array("B", reply)
        return len(reply)

    def reset_device(self, port: Port) -> None:
        port.resets += 1
        port.device.reset()
        port.sent.clear()
        if port.after_reset:
            port.address = port.after_reset
            # The old address is gone, which libusb reports.
            raise usb.core.USBError("Entity not found", -5, errno.ENOENT)
