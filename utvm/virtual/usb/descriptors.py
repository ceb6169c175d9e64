# SPDX-License-Identifier: Apache-2.0
"""What a USB device says of itself: descriptors (USB 2.0, section 9.6), made from plain records."""

import struct
from dataclasses import dataclass
from enum import IntEnum

DEVICE = 1
CONFIGURATION = 2
STRING = 3
INTERFACE = 4
ENDPOINT = 5
DEVICE_QUALIFIER = 6
INTERFACE_ASSOCIATION = 11

CONFIGURATION_VALUE = 1
IN = 0x80

_USB_2_0 = 0x0200
_CONTROL_PACKET_BYTES = 64
_BUS_POWERED = 0x80
_MILLIAMPERES = 100
_ENGLISH = 0x0409
_MAX_STRING = 126  # characters: its length is a byte


class Speed(IntEnum):
    """How fast a device is, in usbredir's numbers."""

    FULL = 1
    HIGH = 2


class Transfer(IntEnum):
    """What an endpoint carries (table 9-13)."""

    BULK = 2
    INTERRUPT = 3


@dataclass(frozen=True)
class Endpoint:
    """An endpoint other than the control endpoint.

    Attributes:
        address: its number; bit 7 says that it sends to the host.
        packet: most bytes in one packet.
        interval: between two polls of an interrupt endpoint, in the unit of the device's speed.
    """

    address: int
    transfer: Transfer
    packet: int
    interval: int = 0


@dataclass(frozen=True)
class Interface:
    """An interface without alternate settings.

    Attributes:
        codes: class, subclass and protocol.
        name: what it is called.
        endpoints: in the order in which they are listed.
        extra: descriptors of its class.
        heads: how many interfaces, from this one on, are one function; 1 where none are tied together.
    """

    codes: tuple[int, int, int]
    name: str
    endpoints: tuple[Endpoint, ...]
    extra: bytes = b""
    heads: int = 1


@dataclass(frozen=True)
class DeviceDescriptors:
    """A device, with one configuration.

    Attributes:
        codes: class, subclass and protocol; zeros where the interfaces say.
        version: of the device, as binary coded decimal.
        serial: tells it from others of its kind.
        interfaces: numbered from 0 on.
    """

    speed: Speed
    vendor: int
    product: int
    version: int
    codes: tuple[int, int, int]
    manufacturer: str
    name: str
    serial: str
    interfaces: tuple[Interface, ...]

    @property
    def strings(self) -> tuple[str, ...]:
        """The strings that descriptors refer to, by number less one."""
        return (self.manufacturer, self.name, self.serial, *(interface.name for interface in self.interfaces))

    @property
    def endpoints(self) -> dict[int, tuple[int, Endpoint]]:
        """The endpoints by address, each with the number of its interface."""
        return {
            endpoint.address: (number, endpoint)
            for number, interface in enumerate(self.interfaces)
            for endpoint in interface.endpoints
        }

    def descriptor(self, kind: int, index: int) -> bytes | None:
        """Return a descriptor that a host may ask the device for, or None."""
        if kind == DEVICE and index == 0:
            tail = struct.pack("<HHHBBBB", self.vendor, self.product, self.version, 1, 2, 3, 1)
            return struct.pack("<BBH4B", 18, DEVICE, _USB_2_0, *self.codes, _CONTROL_PACKET_BYTES) + tail
        if kind == DEVICE_QUALIFIER and index == 0 and self.speed == Speed.HIGH:
            # The same device on a slower bus: it would be the same, in smaller packets.
            return struct.pack("<BBH6B", 10, DEVICE_QUALIFIER, _USB_2_0, *self.codes, _CONTROL_PACKET_BYTES, 1, 0)
        if kind == CONFIGURATION and index == 0:
            return self._configuration()
        if kind == STRING:
            return self._string(index)
        return None

    def _configuration(self) -> bytes:
        body = b"".join(self._interface(number) for number in range(len(self.interfaces)))
        head = struct.pack("<BBH", 9, CONFIGURATION, 9 + len(body))
        tail = bytes([len(self.interfaces), CONFIGURATION_VALUE, 0, _BUS_POWERED, _MILLIAMPERES // 2])
        return head + tail + body

    def _interface(self, number: int) -> bytes:
        interface = self.interfaces[number]
        named = 4 + number
        association = bytes([8, INTERFACE_ASSOCIATION, number, interface.heads, *interface.codes, named])
        head = bytes([9, INTERFACE, number, 0, len(interface.endpoints), *interface.codes, named])
        ends = [
            struct.pack("<4BHB", 7, ENDPOINT, end.address, end.transfer, end.packet, end.interval)
            for end in interface.endpoints
        ]
        return (association if interface.heads > 1 else b"") + head + interface.extra + b"".join(ends)

    def _string(self, index: int) -> bytes | None:
        if index == 0:
            return struct.pack("<BBH", 4, STRING, _ENGLISH)
        if index > len(self.strings):
            return None
        text = self.strings[index - 1][:_MAX_STRING].encode("utf-16-le")
        return bytes([2 + len(text), STRING]) + text
