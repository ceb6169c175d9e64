# SPDX-License-Identifier: Apache-2.0
"""Queries a probe for its firmware version and its board's supply voltage, before OpenOCD uses it.

The probe's USB interface is claimed meanwhile. If another program uses it, nothing is sent: that program would get
the reply, or lose its own. ST's commands have no public manual; they are as in OpenOCD's driver
(src/jtag/drivers/stlink_usb.c). CMSIS-DAP's are Arm's: see DAP_Info in its documentation.
"""

import contextlib
import errno
import logging
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import usb.core
import usb.util

from utvm.errors import BoardError, ProbeError
from utvm.probe.usb import Probe, ProbeId, detect, libusb

_log = logging.getLogger(__name__)

LOWEST_VOLTS = 1.5
"""Minimum supply for a debug port, as in OpenOCD."""
_POWER_ADVICE = "check its supply, its power switch and jumpers, and the wire from its supply to the probe"
_REPLUG = "unplug the probe, plug it in again and start again"

_TIMEOUT_MS = 2000
_MAX_REPLY_BYTES = 512  # a high-speed bulk packet; a smaller buffer would overflow
_BACK_AFTER_RESET = 5.0  # seconds

_ST_COMMAND_BYTES = 16
_ST_GET_VERSION = 0xF1
_ST_GET_MODE = 0xF5
_ST_GET_VOLTAGE = 0xF7
_ST_GET_VERSION_EX = 0xFB
_ST_UPDATE_MODE = 0
_ST_V2_1_PRODUCTS = (0x374B, 0x3752)
_ST_V2_VOLTAGE_FROM = 13  # J13
_ST_REFERENCE_VOLTS = 1.2

_DAP_INFO = 0x00
_DAP_INFO_PROTOCOL = 0x04
_VENDOR_CLASS = 0xFF


class SilentProbe(ProbeError):
    """A probe on USB that does not reply, or replies with something else."""


class UnreachableProbe(ProbeError):
    """A probe that cannot be queried now; it may work otherwise."""


@dataclass(frozen=True)
class Vitals:
    """State of a probe.

    Attributes:
        firmware: version in its maker's format, or empty.
        volts: measured supply of the board, or None.
        left_out: reason for a missing value; empty if this kind of probe does not report it.
    """

    firmware: str = ""
    volts: float | None = None
    left_out: str = ""

    @property
    def is_powered(self) -> bool:
        """False if the measured supply is too low."""
        return self.volts is None or self.volts >= LOWEST_VOLTS

    @property
    def full_name(self) -> str:
        """The known values as text."""
        power = "" if self.volts is None else f"target {self.volts:.2f} V"
        return ", ".join(filter(None, (self.firmware, power)))

    @property
    def remark(self) -> str:
        """A warning for the user: no power, or the reason for a missing value."""
        return self.left_out if self.is_powered else f"the board has no power ({self.volts:.2f} V): {_POWER_ADVICE}"


@dataclass(frozen=True)
class Readiness:
    """A probe that OpenOCD can use; ``was_reset`` is True if it did not reply and was reset on USB.

    A reset may change its address."""

    probe: Probe
    vitals: Vitals
    was_reset: bool = False


def examine(probe: Probe) -> Vitals:
    """Query a probe. The message of an error is in ``left_out``."""
    try:
        return _query(probe)
    except (SilentProbe, UnreachableProbe) as error:
        return Vitals(left_out=error.message)


def make_ready(probe: Probe, *, may_reset: bool = True) -> Readiness:
    """Query a probe before OpenOCD uses it; reset one that does not reply on USB, once."""
    was_reset = False
    try:
        vitals = _query_if_reachable(probe)
    except SilentProbe as silence:
        if not may_reset:
            raise
        _log.warning("%s; it is reset on USB", silence.message)
        probe, vitals, was_reset = *_query_after_reset(probe), True
    if not vitals.is_powered:
        raise BoardError(
            f"the board has no power: the {probe.full_name} measures {vitals.volts:.2f} V at it", _POWER_ADVICE
        )
    return Readiness(probe, vitals, was_reset)


def _query_after_reset(probe: Probe) -> tuple[Probe, Vitals]:
    advice = "unplug and replug it"
    try:
        _reset(probe)
        probe = _wait_for_probe(probe)
        return probe, _query_if_reachable(probe)
    except UnreachableProbe as error:
        raise ProbeError(f"the {probe.full_name} does not answer; {error.message}", advice) from error
    except SilentProbe as error:
        raise ProbeError(f"{error.message}, not even after a reset on USB", advice) from error


def _wait_for_probe(probe: Probe) -> Probe:
    deadline = time.monotonic() + _BACK_AFTER_RESET
    while time.monotonic() < deadline:
        for candidate in detect([ProbeId(probe.kind, probe.vendor, probe.product)]).probes:
            if (candidate.serial_number, candidate.usb_path, candidate.problem) == (
                probe.serial_number,
                probe.usb_path,
                "",
            ):
                return candidate
        time.sleep(0.05)
    raise UnreachableProbe("after a reset on USB it did not come back", _REPLUG)


def _query_if_reachable(probe: Probe) -> Vitals:
    try:
        return _query(probe)
    except UnreachableProbe as error:
        return Vitals(left_out=error.message)


def _query(probe: Probe) -> Vitals:
    if probe.kind not in _KINDS or probe.problem:
        return Vitals()
    is_interface, read = _KINDS[probe.kind]
    with claim_probe(probe, is_interface) as channel:
        return read(channel)


class ProbeChannel:
    """The bulk endpoints of a claimed probe: a command out, its reply in."""

    def __init__(self, probe: Probe, interface: Any) -> None:
        self.probe = probe
        bulk = [item for item in interface if usb.util.endpoint_type(item.bmAttributes) == usb.util.ENDPOINT_TYPE_BULK]
        self._out, self._in = (
            next(endpoint for endpoint in bulk if usb.util.endpoint_direction(endpoint.bEndpointAddress) == direction)
            for direction in (usb.util.ENDPOINT_OUT, usb.util.ENDPOINT_IN)
        )

    def request(self, command: bytes, min_bytes: int, start: bytes = b"") -> bytes:
        """Send a command and return its reply, which has a minimum length and begins with ``start``."""
        try:
            self._out.write(command, _TIMEOUT_MS)
            reply = bytes(self._in.read(_MAX_REPLY_BYTES, _TIMEOUT_MS))
        except usb.core.USBError as error:
            raise _translate(self.probe, error) from error
        if len(reply) < min_bytes or not reply.startswith(start):
            raise SilentProbe(f"the {self.probe.full_name} gives an unexpected reply ({reply.hex()})", _REPLUG)
        return reply


@contextlib.contextmanager
def claim_probe(probe: Probe, is_interface: Callable[[Any], bool]) -> Iterator[ProbeChannel]:
    """Claim the first matching USB interface of a probe for the length of a ``with`` block."""
    with _open(probe) as device:
        try:
            interface = next(filter(is_interface, device.get_active_configuration()), None)
            if interface is None:
                raise UnreachableProbe(f"the {probe.full_name} has no interface for queries")
            usb.util.claim_interface(device, interface)
        except NotImplementedError as error:
            raise UnreachableProbe(f"the {probe.full_name}: {libusb.problem_of(error)}") from error
        except usb.core.USBError as error:
            raise _translate(probe, error) from error
        yield ProbeChannel(probe, interface)


def _reset(probe: Probe) -> None:
    with _open(probe) as device:
        try:
            device.reset()
        except (usb.core.USBError, NotImplementedError) as error:
            # Not found: it re-enumerated as a new device, as after a replug.
            if not isinstance(error, usb.core.USBError) or error.errno != errno.ENOENT:
                problem = libusb.problem_of(error)
                raise UnreachableProbe(f"the {probe.full_name} cannot be reset: {problem}") from error


@contextlib.contextmanager
def _open(probe: Probe) -> Iterator[Any]:
    device = libusb.find(probe.bus, probe.address, probe.vendor, probe.product)
    if device is None:
        raise UnreachableProbe(f"libusb does not see the {probe.full_name}")
    try:
        yield device
    finally:
        # This releases its interface.
        usb.util.dispose_resources(device)


def _translate(probe: Probe, error: usb.core.USBError) -> ProbeError:
    if error.errno == errno.EBUSY:
        return UnreachableProbe(f"another program uses the {probe.full_name}")
    if error.errno == errno.EACCES:
        return UnreachableProbe(f"the {probe.full_name}: {libusb.problem_of(error)}")
    if error.errno == errno.ENODEV:
        return UnreachableProbe(f"the {probe.full_name} is gone from USB")
    return SilentProbe(f"the {probe.full_name} does not answer ({error.strerror})")


def _read_st_link(channel: ProbeChannel) -> Vitals:
    (version,) = struct.unpack_from(">H", _request_st(channel, _ST_GET_VERSION, 6))
    generation, high, low = version >> 12, version >> 6 & 0x3F, version & 0x3F
    debug = high
    if generation >= 3:
        generation, swim, debug, storage, bridge = _request_st(channel, _ST_GET_VERSION_EX, 12)[:5]
        parts = {"J": debug, "M": storage, "B": bridge, "S": swim}
    elif channel.probe.product in _ST_V2_1_PRODUCTS:
        parts = {"J": high, "M": low}
    else:
        parts = {"J": high, "S": low}
    firmware = f"V{generation}" + "".join(f"{letter}{number}" for letter, number in parts.items() if number)
    if generation < 2 or (generation == 2 and debug < _ST_V2_VOLTAGE_FROM):
        return Vitals(firmware, left_out="its firmware is too old to measure the board's voltage")
    if _request_st(channel, _ST_GET_MODE, 2)[0] == _ST_UPDATE_MODE:
        return Vitals(firmware, left_out="it waits for new firmware, and does not measure the board's voltage")
    # The probe's converter measures a reference of 1.2 V, and half of the board's supply.
    reference, half = struct.unpack_from("<II", _request_st(channel, _ST_GET_VOLTAGE, 8))
    return Vitals(firmware, 2 * half * _ST_REFERENCE_VOLTS / reference if reference else 0.0)


def _request_st(channel: ProbeChannel, command: int, size: int) -> bytes:
    return channel.request(bytes([command]).ljust(_ST_COMMAND_BYTES, b"\0"), size)


def _read_cmsis_dap(channel: ProbeChannel) -> Vitals:
    reply = channel.request(bytes([_DAP_INFO, _DAP_INFO_PROTOCOL]), 2, bytes([_DAP_INFO]))
    version = reply[2 : 2 + reply[1]].partition(b"\0")[0].decode("utf-8", "replace")
    return Vitals(f"CMSIS-DAP {version}" if version else "")


def _is_st_debug(interface: Any) -> bool:
    return bool(interface.bInterfaceNumber == 0)


def _is_cmsis_dap(interface: Any) -> bool:
    return bool(interface.bInterfaceClass == _VENDOR_CLASS and interface.bNumEndpoints >= 2)


_KINDS: dict[str, tuple[Callable[[Any], bool], Callable[[ProbeChannel], Vitals]]] = {
    "st-link": (_is_st_debug, _read_st_link),
    "cmsis-dap": (_is_cmsis_dap, _read_cmsis_dap),
}
"""Interface and query function by the kind in board files."""
