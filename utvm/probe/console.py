# SPDX-License-Identifier: Apache-2.0
"""A board's console: the bytes it prints on its serial line.

A physical board's line is a serial device; a virtual board's is a TCP port. pyserial opens both by URL.
"""

import select
import time

import serial

from utvm.base.process.closing import Closing
from utvm.boards.parts import FlowControl
from utvm.errors import BoardError, TransportError

_WRITE_TIMEOUT = 10.0  # Seconds. A line without flow control takes everything at once; a TCP peer may not read.
_QUIET = 0.05  # Seconds without a byte after which a line counts as quiet.


class Console(Closing):
    """Our end of a board's serial line; a :class:`utvm.session.transport.Transport` too.

    Args:
        url: a serial device or ``socket://host:port``.
        baud: bits per second; without meaning for a socket, as is the flow control.
        flow_control: ``rts-cts`` where both ends stop each other through these two wires.
    """

    def __init__(self, url: str, baud: int, flow_control: FlowControl = "none") -> None:
        self.url = url
        self.received = b""
        try:
            self._line = serial.serial_for_url(
                url, baudrate=baud, rtscts=flow_control == "rts-cts", timeout=0, write_timeout=_WRITE_TIMEOUT
            )
        except (serial.SerialException, ValueError, OSError) as error:
            raise TransportError(
                f"the console {url} cannot be opened: {error}",
                "is another program using it, and may you read it (group dialout)?",
            ) from error

    def close(self) -> None:
        """Close the line. Safe to call again."""
        self._line.close()

    def read(self, timeout: float) -> bytes:
        """Return what has arrived, as soon as anything has; nothing when nothing came in time.

        Args:
            timeout: seconds, at most.
        """
        if self.received:
            data, self.received = self.received, b""
            return data
        return self._receive(timeout)

    def write(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self._line.write(data)
        except (serial.SerialException, OSError) as error:
            raise TransportError(f"the console {self.url} broke: {error}") from error

    def _receive(self, timeout: float) -> bytes:
        if not self._line.is_open:
            raise TransportError(f"the console {self.url} is closed")
        try:
            # pyserial's own timeout waits for as many bytes as were asked for; we want the first ones at once.
            ready = select.poll()
            ready.register(self._line.fileno(), select.POLLIN)
            if not ready.poll(max(0.0, timeout) * 1000):
                return b""
            return bytes(self._line.read(4096))
        except (serial.SerialException, OSError) as error:
            raise TransportError(f"the console {self.url} broke: {error}") from error

    def read_until(self, text: bytes, timeout: float) -> bytes:
        """Read until some text has arrived, and return everything up to its end.

        Args:
            timeout: seconds.
        """
        deadline = time.monotonic() + timeout
        while text not in self.received:
            if time.monotonic() > deadline:
                raise BoardError(
                    f"the console did not say {text!r} within {timeout:g} s; it said {self.received[-200:]!r}"
                )
            self.received += self._receive(_QUIET)
        end = self.received.index(text) + len(text)
        seen, self.received = self.received[:end], self.received[end:]
        return seen

    def clear(self) -> None:
        """Forget what has been received and not read, for at most a second."""
        deadline = time.monotonic() + 1.0
        while self._receive(_QUIET) and time.monotonic() < deadline:
            pass
        self.received = b""
