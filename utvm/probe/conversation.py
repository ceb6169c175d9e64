# SPDX-License-Identifier: Apache-2.0
"""A few words with a probe over its own USB interface, while nobody else has it: a command out, its reply in.

The interface is claimed for that long, and let go of before OpenOCD is started. If another program has it, nothing
is sent: that program would get the answer, or lose its own.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any

import usb.core
import usb.util

from utvm.errors import ProbeError
from utvm.probe.sources import libusb
from utvm.probe.usb import Probe

_PATIENCE_MS = 2000
_MOST_BYTES = 512  # a packet of the fastest bus here; less would be an overflow where more comes


class SilentProbe(ProbeError):
    """A probe that can be reached on USB and does not answer, or answers what it was not asked."""


class Unreachable(ProbeError):
    """A probe that cannot be asked from here and now; nothing is known to be wrong with it."""


class Conversation:
    """A probe whose interface is ours."""

    def __init__(self, probe: Probe, interface: Any) -> None:
        self.probe = probe
        bulk = [
            each for each in interface if usb.util.endpoint_type(each.bmAttributes) == usb.util.ENDPOINT_TYPE_BULK
        ]
        self._into = _first(bulk, usb.util.ENDPOINT_OUT)
        self._from = _first(bulk, usb.util.ENDPOINT_IN)

    def ask(self, command: bytes, at_least: int) -> bytes:
        """Send a command and return its reply."""
        try:
            self._into.write(command, _PATIENCE_MS)
            reply = bytes(self._from.read(_MOST_BYTES, _PATIENCE_MS))
        except usb.core.USBError as error:
            raise _trouble(self.probe, error) from error
        if len(reply) < at_least:
            raise SilentProbe(
                f"the {self.probe.spoken} does not answer what it was asked ({reply.hex()})",
                "unplug the probe, plug it in again and start again",
            )
        return reply


@contextlib.contextmanager
def converse(probe: Probe, choose: Callable[[Any], bool]) -> Iterator[Conversation]:
    """Claim a probe's interface for the length of a ``with`` block.

    Args:
        choose: which of its interfaces, as pyusb describes them.
    """
    with _opened(probe) as device:
        try:
            interface = next((each for each in device.get_active_configuration() if choose(each)), None)
            if interface is None:
                raise Unreachable(f"the {probe.spoken} has no interface to ask it by")
            usb.util.claim_interface(device, interface)
        except NotImplementedError as error:
            raise Unreachable(f"the {probe.spoken}: {libusb.problem_of(error)}") from error
        except usb.core.USBError as error:
            raise _trouble(probe, error) from error
        yield Conversation(probe, interface)


def reset(probe: Probe) -> None:
    """Reset a probe on USB, as unplugging and replugging it would; it keeps its place."""
    with _opened(probe) as device:
        try:
            device.reset()
        except (usb.core.USBError, NotImplementedError) as error:
            # Not found: it came back as a device that is new to the system, as it does after a replug.
            if not isinstance(error, usb.core.USBError) or error.errno != errno.ENOENT:
                raise Unreachable(f"the {probe.spoken} cannot be reset: {libusb.problem_of(error)}") from error


@contextlib.contextmanager
def _opened(probe: Probe) -> Iterator[Any]:
    device = libusb.find(probe.bus, probe.address, (probe.vendor, probe.product))
    if device is None:
        raise Unreachable(f"libusb does not see the {probe.spoken}")
    try:
        yield device
    finally:
        # Whatever was claimed is let go of.
        usb.util.dispose_resources(device)


def _trouble(probe: Probe, error: usb.core.USBError) -> ProbeError:
    if error.errno == errno.EBUSY:
        return Unreachable(f"another program uses the {probe.spoken}")
    if error.errno == errno.EACCES:
        return Unreachable(f"the {probe.spoken}: {libusb.problem_of(error)}")
    if error.errno == errno.ENODEV:
        return Unreachable(f"the {probe.spoken} is gone from USB")
    return SilentProbe(f"the {probe.spoken} does not answer ({error.strerror})")


def _first(endpoints: list[Any], direction: int) -> Any:
    return next(each for each in endpoints if usb.util.endpoint_direction(each.bEndpointAddress) == direction)
