# SPDX-License-Identifier: Apache-2.0
"""What a USB device says of itself: descriptors (USB 2.0, section 9.6), made from plain records."""

import struct
import threading
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

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


# Request types (table 9-2)
_KIND = 0x60
_STANDARD = 0x00
_RECIPIENT = 0x1F
_TO_DEVICE, _TO_INTERFACE, _TO_ENDPOINT = range(3)

# Standard requests (table 9-4)
_GET_STATUS = 0
_CLEAR_FEATURE = 1
_SET_FEATURE = 3
_GET_DESCRIPTOR = 6
_GET_CONFIGURATION = 8
_SET_CONFIGURATION = 9
_GET_INTERFACE = 10
_SET_INTERFACE = 11

_ENDPOINT_HALT = 0


@dataclass(frozen=True)
class SetupPacket:
    """The eight bytes that begin a control transfer (table 9-2)."""

    request_type: int
    request: int
    value: int
    index: int
    length: int


class Cable(Protocol):
    """The way from a device to the host that it is plugged into."""

    def send(self, endpoint: int, data: bytes) -> None:
        """Have data ready for the host to fetch: in one transfer, or in several if it asks for less at a time."""

    def wait_for_request(self, endpoint: int) -> bool:
        """Wait until the host asks for more than was sent. False: the cable has been pulled."""


class UsbDevice:
    """A device. A probe says what it is, and overrides what its own endpoints and requests do.

    The methods are called by one thread, that of the connection.

    Attributes:
        descriptors: what it says of itself.
        configuration: the one that the host has chosen, 0 for none.
        wires: held while something goes on between probe and board.
    """

    def __init__(self, descriptors: DeviceDescriptors) -> None:
        self.descriptors = descriptors
        self.wires = threading.Lock()
        self.reset()

    def plug_in(self, cable: Cable) -> None:
        """Come to life on a cable: begin as :meth:`reset` does."""
        self.reset()

    def reset(self) -> None:
        """Forget what the host has set, as after a reset of the bus."""
        # Who serves a device over usbredir has configured it.
        self.configuration = CONFIGURATION_VALUE
        self.halted: set[int] = set()

    def configure(self, value: int) -> bool:
        """Choose a configuration; False where there is no such."""
        if value not in (0, CONFIGURATION_VALUE):
            return False
        self.reset()
        self.configuration = value
        return True

    def control(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Answer a control transfer; None refuses it (a stall). What is longer than asked for is cut."""
        if setup.request_type & _KIND == _STANDARD:
            answer = self._standard(setup)
        else:
            answer = self.own_request(setup, data)
        return answer[: setup.length] if answer is not None and setup.request_type & IN else answer

    def own_request(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Answer a request of a class or of the vendor."""
        return None

    def take(self, cable: Cable, endpoint: int, data: bytes) -> None:
        """Take what the host sent to an endpoint."""

    def lose_target(self) -> None:
        """Follow a power cycle of the board behind the probe."""

    def _standard(self, setup: SetupPacket) -> bytes | None:
        recipient = setup.request_type & _RECIPIENT
        if recipient == _TO_DEVICE:
            return self._of_device(setup)
        if recipient == _TO_INTERFACE and setup.index < len(self.descriptors.interfaces):
            # None has an alternate setting.
            answers = {_GET_STATUS: b"\0\0", _GET_INTERFACE: b"\0"}
            return b"" if (setup.request, setup.value) == (_SET_INTERFACE, 0) else answers.get(setup.request)
        if recipient == _TO_ENDPOINT and setup.index & ~IN & 0xFFFF == 0 and setup.request == _GET_STATUS:
            return b"\0\0"
        if recipient == _TO_ENDPOINT and setup.index in self.descriptors.endpoints:
            return self._of_endpoint(setup)
        return None

    def _of_device(self, setup: SetupPacket) -> bytes | None:
        if setup.request == _GET_DESCRIPTOR:
            return self.descriptors.descriptor(setup.value >> 8, setup.value & 0xFF)
        if setup.request == _SET_CONFIGURATION:
            return b"" if self.configure(setup.value) else None
        answers = {_GET_STATUS: b"\0\0", _GET_CONFIGURATION: bytes([self.configuration])}
        return answers.get(setup.request)

    def _of_endpoint(self, setup: SetupPacket) -> bytes | None:
        if setup.request == _GET_STATUS:
            return bytes([setup.index in self.halted, 0])
        if setup.value != _ENDPOINT_HALT or setup.request not in (_CLEAR_FEATURE, _SET_FEATURE):
            return None
        if setup.request == _SET_FEATURE:
            self.halted.add(setup.index)
        else:
            self.halted.discard(setup.index)
        return b""
