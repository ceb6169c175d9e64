# SPDX-License-Identifier: Apache-2.0
"""A USB device: its descriptors (USB 2.0, section 9.6), control requests (chapter 9) and endpoints."""

import struct
import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

DEVICE, CONFIGURATION, STRING, INTERFACE, ENDPOINT, DEVICE_QUALIFIER = 1, 2, 3, 4, 5, 6
INTERFACE_ASSOCIATION = 11

CONFIGURATION_VALUE = 1
IN = 0x80

_USB_2_0, _CONTROL_PACKET_BYTES, _BUS_POWERED, _MILLIAMPERES = 0x0200, 64, 0x80, 100
_ENGLISH = 0x0409
_MAX_STRING = 126  # characters: its length is a byte


class Speed(IntEnum):
    """Device speed, in usbredir's numbers."""

    FULL = 1
    HIGH = 2


class Transfer(IntEnum):
    """Transfer type of an endpoint (table 9-13)."""

    BULK = 2
    INTERRUPT = 3


@dataclass(frozen=True)
class Endpoint:
    """An endpoint other than the control endpoint.

    Attributes:
        address: its number; bit 7 is set if it sends to the host.
        packet: maximum packet size in bytes.
        interval: polling interval of an interrupt endpoint, in the unit of the device's speed.
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
        extra: class-specific descriptors.
        function_size: number of consecutive interfaces, starting here, that form one function.
    """

    codes: tuple[int, int, int]
    name: str
    endpoints: tuple[Endpoint, ...]
    extra: bytes = b""
    function_size: int = 1


@dataclass(frozen=True)
class DeviceDescriptors:
    """A device with one configuration; ``version`` is in binary-coded decimal.

    ``codes`` are class, subclass and protocol, or zeros if the interfaces have them.
    """

    speed: Speed
    vendor: int
    product: int
    version: int
    codes: tuple[int, int, int]
    manufacturer: str
    name: str
    serial_number: str
    interfaces: tuple[Interface, ...]

    @property
    def strings(self) -> tuple[str, ...]:
        """The strings, numbered from 1."""
        return (self.manufacturer, self.name, self.serial_number, *(interface.name for interface in self.interfaces))

    @property
    def endpoints(self) -> dict[int, tuple[int, Endpoint]]:
        """Interface number and endpoint, by address."""
        return {
            endpoint.address: (number, endpoint)
            for number, interface in enumerate(self.interfaces)
            for endpoint in interface.endpoints
        }

    def descriptor(self, kind: int, index: int) -> bytes | None:
        """Return a descriptor that a host may request, or None."""
        if kind == DEVICE and index == 0:
            tail = struct.pack("<HHHBBBB", self.vendor, self.product, self.version, 1, 2, 3, 1)
            return struct.pack("<BBH4B", 18, DEVICE, _USB_2_0, *self.codes, _CONTROL_PACKET_BYTES) + tail
        if kind == DEVICE_QUALIFIER and index == 0 and self.speed == Speed.HIGH:
            # At the other speed the device differs only in its packet size.
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
        string = 4 + number
        association = bytes([8, INTERFACE_ASSOCIATION, number, interface.function_size, *interface.codes, string])
        head = bytes([9, INTERFACE, number, 0, len(interface.endpoints), *interface.codes, string])
        endpoints = [
            struct.pack("<4BHB", 7, ENDPOINT, end.address, end.transfer, end.packet, end.interval)
            for end in interface.endpoints
        ]
        return (association if interface.function_size > 1 else b"") + head + interface.extra + b"".join(endpoints)

    def _string(self, index: int) -> bytes | None:
        if index == 0:
            return struct.pack("<BBH", 4, STRING, _ENGLISH)
        if index > len(self.strings):
            return None
        text = self.strings[index - 1][:_MAX_STRING].encode("utf-16-le")
        return bytes([2 + len(text), STRING]) + text


# Request types (table 9-2)
_KIND, _STANDARD, _RECIPIENT = 0x60, 0x00, 0x1F
_TO_DEVICE, _TO_INTERFACE, _TO_ENDPOINT = range(3)

# Standard requests (table 9-4)
_GET_STATUS, _CLEAR_FEATURE, _SET_FEATURE, _GET_DESCRIPTOR, _GET_CONFIGURATION = 0, 1, 3, 6, 8
_SET_CONFIGURATION, _GET_INTERFACE, _SET_INTERFACE = 9, 10, 11

_ENDPOINT_HALT = 0


@dataclass(frozen=True)
class SetupPacket:
    """The first eight bytes of a control transfer (table 9-2)."""

    request_type: int
    request: int
    value: int
    index: int
    length: int


class Cable(Protocol):
    """The connection from a device to its host."""

    def send(self, endpoint: int, data: bytes) -> None:
        """Provide data for the host to fetch, in one or several transfers."""

    def wait_for_request(self, endpoint: int) -> bool:
        """Wait until the host requests more than was sent. False if the cable is unplugged."""


class UsbDevice:
    """A device. Subclasses implement their endpoints and class requests. All methods are called by one thread.

    Attributes:
        configuration: selected by the host; 0 for none.
        halted: addresses of halted endpoints.
        wires: lock of the connection between probe and board.
    """

    def __init__(self, descriptors: DeviceDescriptors) -> None:
        self.descriptors = descriptors
        self.wires = threading.Lock()
        self.reset()

    def plug_in(self, cable: Cable) -> None:
        """Connect to a new cable."""
        self.reset()

    def reset(self) -> None:
        """Reset all state set by the host, as a bus reset does."""
        # A usbredir host has configured the device.
        self.configuration = CONFIGURATION_VALUE
        self.halted: set[int] = set()

    def configure(self, value: int) -> bool:
        """Select a configuration. False if it does not exist."""
        if value not in (0, CONFIGURATION_VALUE):
            return False
        self.reset()
        self.configuration = value
        return True

    def control(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Reply to a control transfer, truncated to the requested length; None is a stall."""
        if setup.request_type & _KIND == _STANDARD:
            reply = self._standard_request(setup)
        else:
            reply = self.class_request(setup, data)
        return reply[: setup.length] if reply is not None and setup.request_type & IN else reply

    def class_request(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Reply to a class or vendor request; None is a stall."""
        return None

    def take(self, cable: Cable, endpoint: int, data: bytes) -> None:
        """Receive data for an endpoint."""

    def lose_target(self) -> None:
        """Handle a power cycle of the board."""

    def _standard_request(self, setup: SetupPacket) -> bytes | None:
        recipient = setup.request_type & _RECIPIENT
        if recipient == _TO_DEVICE:
            return self._device_request(setup)
        if recipient == _TO_INTERFACE and setup.index < len(self.descriptors.interfaces):
            replies = {_GET_STATUS: b"\0\0", _GET_INTERFACE: b"\0"}
            return b"" if (setup.request, setup.value) == (_SET_INTERFACE, 0) else replies.get(setup.request)
        if recipient == _TO_ENDPOINT and setup.index & ~IN & 0xFFFF == 0 and setup.request == _GET_STATUS:
            return b"\0\0"
        if recipient == _TO_ENDPOINT and setup.index in self.descriptors.endpoints:
            return self._endpoint_request(setup)
        return None

    def _device_request(self, setup: SetupPacket) -> bytes | None:
        if setup.request == _GET_DESCRIPTOR:
            return self.descriptors.descriptor(setup.value >> 8, setup.value & 0xFF)
        if setup.request == _SET_CONFIGURATION:
            return b"" if self.configure(setup.value) else None
        replies = {_GET_STATUS: b"\0\0", _GET_CONFIGURATION: bytes([self.configuration])}
        return replies.get(setup.request)

    def _endpoint_request(self, setup: SetupPacket) -> bytes | None:
        if setup.request == _GET_STATUS:
            return bytes([setup.index in self.halted, 0])
        if setup.value != _ENDPOINT_HALT or setup.request not in (_CLEAR_FEATURE, _SET_FEATURE):
            return None
        if setup.request == _SET_FEATURE:
            self.halted.add(setup.index)
        else:
            self.halted.discard(setup.index)
        return b""
