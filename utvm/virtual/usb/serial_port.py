# SPDX-License-Identifier: Apache-2.0
"""The virtual COM port of a probe: the board's console as a serial line on USB.

A communications device of the abstract control model (USB CDC 1.2 and its PSTN subclass 1.2): one interface for
control, which a host needs to recognise it, and one for the data. The line's speed is taken and given back; it has
no effect, as the model's serial line is as fast as its board.
"""

import struct
import threading
from collections.abc import Callable

from utvm.virtual.console import Backlog
from utvm.virtual.usb.descriptors import Endpoint, Interface, Transfer
from utvm.virtual.usb.device import Cable, SetupPacket

_COMMUNICATIONS = (0x02, 0x02, 0x01)  # abstract control model, AT commands
_DATA = (0x0A, 0x00, 0x00)

# Requests (PSTN, table 13), with their request types
_SET_LINE_CODING = (0x21, 0x20)
_GET_LINE_CODING = (0xA1, 0x21)
_SET_CONTROL_LINE_STATE = (0x21, 0x22)
_SEND_BREAK = (0x21, 0x23)

_LINE_CODING_BYTES = 7
_115200_8N1 = struct.pack("<IBBB", 115200, 0, 0, 8)
_MOST_AT_ONCE = 4096
_LOOK_UP = 0.2  # seconds between two looks at whether the cable is still there


class SerialPort:
    """The function that carries a console.

    What the board printed since it was switched on comes through once, as far as the backlog reaches. A host that
    was plugged in later goes on where the one before it stopped to read.

    Args:
        first_interface: the number of its control interface.
        notify, send, receive: addresses of its endpoints, as the host calls their directions.
        type_in: receives what the host sends.
    """

    def __init__(
        self,
        backlog: Backlog,
        type_in: Callable[[bytes], None],
        *,
        first_interface: int,
        notify: int,
        send: int,
        receive: int,
    ) -> None:
        self.endpoint = send
        self._receive = receive
        self._backlog = backlog
        self._type_in = type_in
        self._position = 0
        self._printing = threading.Lock()  # a cable that was pulled just now has its thread still
        self._coding = _115200_8N1
        control, data = first_interface, first_interface + 1
        functional = (
            bytes([5, 0x24, 0x00, 0x10, 0x01])  # header: CDC 1.10
            + bytes([5, 0x24, 0x01, 0x00, data])  # call management: none
            + bytes([4, 0x24, 0x02, 0x02])  # line coding and control line state
            + bytes([5, 0x24, 0x06, control, data])  # union of the two interfaces
        )
        # Nothing is ever reported on the first endpoint: the line has no carrier that could be lost.
        self.interfaces = (
            Interface(
                _COMMUNICATIONS,
                "ST-Link VCP Ctrl",
                (Endpoint(notify, Transfer.INTERRUPT, 10, 255),),
                functional,
                heads=2,
            ),
            Interface(
                _DATA,
                "ST-Link VCP Data",
                (Endpoint(receive, Transfer.BULK, 64), Endpoint(send, Transfer.BULK, 64)),
            ),
        )

    def plug_in(self, cable: Cable) -> None:
        """Print to a host until its cable is pulled."""
        threading.Thread(target=self._print_to, args=(cable,), daemon=True, name="virtual COM port").start()

    def request(self, setup: SetupPacket, data: bytes) -> bytes | None:
        """Answer a request to the control interface."""
        asked = (setup.request_type, setup.request)
        if asked == _GET_LINE_CODING:
            return self._coding
        if asked == _SET_LINE_CODING and len(data) == _LINE_CODING_BYTES:
            self._coding = data
            return b""
        return b"" if asked in (_SET_CONTROL_LINE_STATE, _SEND_BREAK) else None

    def take(self, data: bytes) -> None:
        """Type to the board."""
        self._type_in(data)

    def takes(self, endpoint: int) -> bool:
        """Whether what the host sends to an endpoint is for this function."""
        return endpoint == self._receive

    def _print_to(self, cable: Cable) -> None:
        # Fetched when the host asks: what it never asks for is there for the next one.
        while cable.wait_for_request(self.endpoint):
            with self._printing:
                data, after = self._backlog.read(self._position, _LOOK_UP)
                part = data[:_MOST_AT_ONCE]
                if not part:
                    continue
                self._position = after - len(data) + len(part)
                try:
                    cable.send(self.endpoint, part)
                except OSError:
                    return
