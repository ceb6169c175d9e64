# SPDX-License-Identifier: Apache-2.0
"""What a probe says of itself and of its board's power, before an OpenOCD is started on it.

ST's commands have no public manual. They are as OpenOCD's driver sends them (src/jtag/drivers/stlink_usb.c), to
firmware that knows them. CMSIS-DAP's are Arm's: see DAP_Info in its documentation.
"""

import logging
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utvm.errors import BoardError, ProbeError
from utvm.probe.conversation import Conversation, SilentProbe, Unreachable, converse, reset
from utvm.probe.usb import Probe, ProbeId, detect

_log = logging.getLogger(__name__)

LOWEST_VOLTS = 1.5
"""Below this a board has no power that a debug port works with: OpenOCD's limit too."""
_POWER_ADVICE = "look after its supply, its power switch and jumpers, and the wire from its supply to the probe"

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


@dataclass(frozen=True)
class Vitals:
    """What a probe says.

    Attributes:
        firmware: its version, as its maker writes it; empty where it was not told.
        volts: the board's supply as the probe measures it; None where it was not told.
        left_out: why what is missing is missing; empty where this kind of probe has nothing to tell.
    """

    firmware: str = ""
    volts: float | None = None
    left_out: str = ""

    @property
    def powered(self) -> bool:
        """Whether nothing speaks against the board having power."""
        return self.volts is None or self.volts >= LOWEST_VOLTS

    @property
    def spoken(self) -> str:
        """What is known, in words; empty if nothing is."""
        power = "" if self.volts is None else f"target {self.volts:.2f} V"
        return ", ".join(filter(None, (self.firmware, power)))

    @property
    def remark(self) -> str:
        """What its user has to know besides: a board without power, or why something is not known."""
        return self.left_out if self.powered else f"the board has no power ({self.volts:.2f} V): {_POWER_ADVICE}"


@dataclass(frozen=True)
class Readiness:
    """A probe that OpenOCD can be started on.

    Attributes:
        probe: as it is plugged in now: after a reset it may have another number.
        vitals: what it says.
        was_reset: whether it had to be reset on USB, because it did not answer.
    """

    probe: Probe
    vitals: Vitals
    was_reset: bool = False


def examine(probe: Probe) -> Vitals:
    """Ask a probe, and leave it as it is. What cannot be known is left out, and why."""
    try:
        return _ask(probe)
    except (SilentProbe, Unreachable) as error:
        return Vitals(left_out=error.message)


def make_ready(probe: Probe, *, may_reset: bool = True) -> Readiness:
    """Ask a probe before OpenOCD does; one that does not answer is reset on USB, once."""
    was_reset = False
    try:
        vitals = _ask_if_reachable(probe)
    except SilentProbe as silence:
        if not may_reset:
            raise
        _log.warning("%s; it is reset on USB", silence.message)
        probe, vitals, was_reset = *_ask_after_reset(probe), True
    if not vitals.powered:
        raise BoardError(
            f"the board has no power: the {probe.spoken} measures {vitals.volts:.2f} V at it",
            _POWER_ADVICE,
        )
    return Readiness(probe, vitals, was_reset)


def _ask_after_reset(probe: Probe) -> tuple[Probe, Vitals]:
    advice = "unplug and replug it"
    try:
        reset(probe)
        probe = _back(probe)
        return probe, _ask_if_reachable(probe)
    except Unreachable as error:
        raise ProbeError(f"the {probe.spoken} does not answer; {error.message}", advice) from error
    except SilentProbe as error:
        raise ProbeError(f"{error.message}, after a reset on USB either", advice) from error


def _back(probe: Probe) -> Probe:
    """Wait for a probe that was reset."""
    deadline = time.monotonic() + _BACK_AFTER_RESET
    while time.monotonic() < deadline:
        found = detect([ProbeId(probe.kind, probe.vendor, probe.product)]).probes
        same = (probe.serial, probe.usb_path, "")
        if back := [each for each in found if (each.serial, each.usb_path, each.problem) == same]:
            return back[0]
        time.sleep(0.05)
    raise Unreachable(
        "after a reset on USB it did not come back", "unplug the probe, plug it in again and start again"
    )


def _ask_if_reachable(probe: Probe) -> Vitals:
    try:
        return _ask(probe)
    except Unreachable as error:
        return Vitals(left_out=error.message)


def _ask(probe: Probe) -> Vitals:
    if probe.kind not in _KINDS or probe.problem:
        return Vitals()
    choose, read = _KINDS[probe.kind]
    with converse(probe, choose) as conversation:
        return read(conversation)


def _of_st_link(conversation: Conversation) -> Vitals:
    (version,) = struct.unpack_from(">H", _st_ask(conversation, _ST_GET_VERSION, 6))
    generation, high, low = version >> 12, version >> 6 & 0x3F, version & 0x3F
    debug = high
    if generation >= 3:
        generation, swim, debug, storage, bridge = _st_ask(conversation, _ST_GET_VERSION_EX, 12)[:5]
        parts = {"J": debug, "M": storage, "B": bridge, "S": swim}
    elif conversation.probe.product in _ST_V2_1_PRODUCTS:
        parts = {"J": high, "M": low}
    else:
        parts = {"J": high, "S": low}
    firmware = f"V{generation}" + "".join(f"{letter}{number}" for letter, number in parts.items() if number)
    if generation < 2 or (generation == 2 and debug < _ST_V2_VOLTAGE_FROM):
        return Vitals(firmware, left_out="its firmware is too old to measure the board's voltage")
    if _st_ask(conversation, _ST_GET_MODE, 2)[0] == _ST_UPDATE_MODE:
        return Vitals(firmware, left_out="it waits for new firmware, and does not measure the board's voltage")
    # The reference is what the probe's converter makes of 1.2 V; of the board's supply it sees one half.
    reference, half = struct.unpack_from("<II", _st_ask(conversation, _ST_GET_VOLTAGE, 8))
    return Vitals(firmware, 2 * half * _ST_REFERENCE_VOLTS / reference if reference else 0.0)


def _st_ask(conversation: Conversation, command: int, size: int) -> bytes:
    return conversation.ask(bytes([command]).ljust(_ST_COMMAND_BYTES, b"\0"), size)


def _of_cmsis_dap(conversation: Conversation) -> Vitals:
    command = bytes([_DAP_INFO, _DAP_INFO_PROTOCOL])
    reply = conversation.ask(command, 2)
    if reply[0] != _DAP_INFO:
        raise SilentProbe(
            f"the {conversation.probe.spoken} does not answer what it was asked ({reply.hex()})",
            "unplug the probe, plug it in again and start again",
        )
    version = reply[2 : 2 + reply[1]].partition(b"\0")[0].decode("utf-8", "replace")
    return Vitals(f"CMSIS-DAP {version}" if version else "")


def _is_st_debug(interface: Any) -> bool:
    return bool(interface.bInterfaceNumber == 0)


def _is_cmsis_dap(interface: Any) -> bool:
    return bool(interface.bInterfaceClass == _VENDOR_CLASS and interface.bNumEndpoints >= 2)


_KINDS: dict[str, tuple[Callable[[Any], bool], Callable[[Conversation], Vitals]]] = {
    "st-link": (_is_st_debug, _of_st_link),
    "cmsis-dap": (_is_cmsis_dap, _of_cmsis_dap),
}
"""The probes that can be asked, by the name that board files have for them: by which interface, and how."""
