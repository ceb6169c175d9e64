# SPDX-License-Identifier: Apache-2.0
"""A board's serial console.

A physical board has a serial device; a software model has a TCP port, which pyserial also opens by URL; an
emulator has a connected socket.
"""

import select
import socket
import time

import serial
from serial.urlhandler import protocol_socket

from utvm.base.process import Closing
from utvm.boards.parts import FlowControl
from utvm.errors import BoardError, TransportError

_WRITE_TIMEOUT = 10.0  # Seconds. A line without flow control accepts everything at once; a TCP peer may not read.
_TAIL = 200  # Bytes of the last output to keep, for messages of failed tests.
_QUIET = 0.05  # Seconds without a byte until a line counts as quiet.


class _SocketLine(protocol_socket.Serial):
    def __init__(self, connection: socket.socket) -> None:
        super().__init__(timeout=0, write_timeout=_WRITE_TIMEOUT)
        connection.setblocking(False)
        self._socket = connection
        self.is_open = True


class Console(Closing):
    """The host's end of a board's serial line; a :class:`utvm.session.transport.Transport` too.

    ``line`` is a serial device, ``socket://host:port``, or a connected socket, which :meth:`close` closes. For
    sockets, bits per second and flow control are ignored.
    """

    def __init__(self, line: str | socket.socket, baud: int, flow_control: FlowControl = "none") -> None:
        self.received = self.tail = b""
        self._line: serial.SerialBase
        if isinstance(line, socket.socket):
            self.url, self._line = "socket:", _SocketLine(line)
            return
        self.url = line
        with TransportError.on(
            (serial.SerialException, ValueError, OSError),
            f"the console {line} cannot be opened:",
            "is another program using it, and may you read it (group dialout)?",
        ):
            self._line = serial.serial_for_url(
                line, baudrate=baud, rtscts=flow_control == "rts-cts", timeout=0, write_timeout=_WRITE_TIMEOUT
            )

    def close(self) -> None:
        self._line.close()

    def read(self, timeout: float) -> bytes:
        """Return received bytes as soon as there are any; empty after ``timeout`` seconds."""
        if self.received:
            data, self.received = self.received, b""
            return data
        return self._receive(timeout)

    def write(self, data: bytes) -> None:
        with TransportError.on((serial.SerialException, OSError), f"the console {self.url} broke:"):
            self._line.write(data)

    def _receive(self, timeout: float) -> bytes:
        if not self._line.is_open:
            raise TransportError(f"the console {self.url} is closed")
        with TransportError.on((serial.SerialException, OSError), f"the console {self.url} broke:"):
            # pyserial's own timeout waits for the full count; return the first bytes at once.
            poller = select.poll()
            poller.register(self._line.fileno(), select.POLLIN)
            if not poller.poll(max(0.0, timeout) * 1000):
                return b""
            data = bytes(self._line.read(4096))
            self.tail = (self.tail + data)[-_TAIL:]
            return data

    def read_until(self, text: bytes, timeout: float) -> bytes:
        """Read up to and including a text."""
        deadline = time.monotonic() + timeout
        while text not in self.received:
            if time.monotonic() > deadline:
                raise BoardError(
                    f"the console did not print {text!r} within {timeout:g} s; it printed {self.received[-200:]!r}"
                )
            self.received += self._receive(_QUIET)
        end = self.received.index(text) + len(text)
        content, self.received = self.received[:end], self.received[end:]
        return content

    def clear(self) -> None:
        """Discard received bytes until the line is quiet, for at most a second."""
        deadline = time.monotonic() + 1.0
        while self._receive(_QUIET) and time.monotonic() < deadline:
            pass
        self.received = self.tail = b""
