# SPDX-License-Identifier: Apache-2.0
"""A CMSIS-DAP probe of version 2 as a USB device: one vendor interface with two bulk endpoints.

A host knows it by "CMSIS-DAP" in the name of its interface. Numbers: those of Arm's DAPLink.
"""

import time

from utvm.virtual.cmsis_dap import PACKET_BYTES, CmsisDap
from utvm.virtual.pacing import wait_until
from utvm.virtual.stlink import TargetBoard
from utvm.virtual.usb import MAKER
from utvm.virtual.usb.descriptors import DeviceDescriptors, Endpoint, Interface, Speed, Transfer
from utvm.virtual.usb.device import Cable, UsbDevice

_IN = 0x81
_OUT = 0x01


class CmsisDapProbe(UsbDevice):
    """A CMSIS-DAP probe on a USB cable.

    Args:
        board: what the probe is wired to.
        serial: its serial number.
        latency: seconds each command takes.
    """

    def __init__(self, board: TargetBoard, *, serial: str, latency: float = 0.0) -> None:
        self._probe = CmsisDap(board, serial=serial)
        self._latency = latency
        # The order matters: commands go to the first endpoint, responses come from the second.
        ends = tuple(Endpoint(address, Transfer.BULK, PACKET_BYTES) for address in (_OUT, _IN))
        super().__init__(
            DeviceDescriptors(
                speed=Speed.HIGH,
                vendor=0x0D28,
                product=0x0204,
                version=0x0100,
                codes=(0, 0, 0),
                manufacturer=MAKER,
                name="Virtual CMSIS-DAP",
                serial=serial,
                interfaces=(Interface((0xFF, 0x00, 0x00), "CMSIS-DAP v2", ends),),
            )
        )

    def reset(self) -> None:
        """Begin as after power-on."""
        super().reset()
        self._probe.power_on()

    def take(self, cable: Cable, endpoint: int, data: bytes) -> None:
        """Take a command: one packet, or the packets of one transfer."""
        started = time.monotonic()
        with self.wires:
            response = self._probe.execute(data)
        wait_until(started + self._latency)
        if response:
            cable.send(_IN, response)

    def lose_target(self) -> None:
        """Follow a power cycle of the board."""
        self._probe.lose_target()
