# SPDX-License-Identifier: Apache-2.0
"""A USB device: its control requests (USB 2.0, chapter 9) and what comes through its other endpoints."""

import threading
from dataclasses import dataclass
from typing import Protocol

from utvm.virtual.usb.descriptors import CONFIGURATION_VALUE, IN, DeviceDescriptors

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
