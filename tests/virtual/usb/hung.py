# SPDX-License-Identifier: Apache-2.0
"""An ST-Link whose firmware can hang: it receives data but does not reply."""

from tests.virtual.fake_board import FakeBoard
from utvm.virtual.console import Backlog
from utvm.virtual.usb.device import Cable
from utvm.virtual.usb.probes import StLinkProbe


class HangingStLink(StLinkProbe):
    """A virtual ST-Link that hangs until a bus reset, or for good.

    Attributes:
        hung: True while it does not reply.
        for_good: a reset does not help.
        packets_left: packets until it hangs by itself; None for no limit.
    """

    def __init__(self, serial: str) -> None:
        self.hung = self.for_good = False
        self.packets_left: int | None = None
        super().__init__(FakeBoard(), serial=serial, backlog=Backlog(), type_in=lambda data: None)

    def reset(self) -> None:
        super().reset()
        self.hung = self.for_good
        self.packets_left = None

    def take(self, cable: Cable, endpoint: int, data: bytes) -> None:
        if self.packets_left is not None:
            self.packets_left -= 1
            self.hung = self.hung or self.packets_left < 0
        if not self.hung:
            super().take(cable, endpoint, data)
