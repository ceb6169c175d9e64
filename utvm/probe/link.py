# SPDX-License-Identifier: Apache-2.0
"""Connection to a GDB server; every wait has a timeout."""

import logging
import socket
import time

from utvm.base.log import Excerpt
from utvm.errors import ProbeError
from utvm.probe.packets import PacketError, PacketReader, encode

_BREAK = b"\x03"
_LOG = logging.getLogger("utvm.probe.gdb")


class GdbLink:
    """The packet layer of :class:`utvm.probe.gdb.GdbClient`.

    Args:
        channel: connection to the server; its owner closes it, which ends a server of ours.
        advice: hint of the error when the server fails.
    """

    def __init__(self, channel: socket.socket, advice: str) -> None:
        self._advice = advice
        self._reader = PacketReader()
        self._acknowledging = True
        self._socket = channel.dup()

    def fileno(self) -> int:
        """File descriptor for select."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, payload: bytes, timeout: float) -> None:
        """Send a packet; its binary data is already escaped."""
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("-> %s", Excerpt(payload))
        self._transmit(encode(payload), timeout)

    def send_break(self) -> None:
        """Send the interrupt byte, which halts a running target."""
        _LOG.debug("-> (interrupt)")
        self._transmit(_BREAK, 1.0)

    def receive(self, timeout: float) -> bytes | None:
        """Payload of the next packet, or None after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                payload = self._reader.next_packet()
            except PacketError as error:
                raise ProbeError(f"the GDB server sent garbage: {error}", self._advice) from error
            if payload is not None:
                if _LOG.isEnabledFor(logging.DEBUG):
                    _LOG.debug("<- %s", Excerpt(payload))
                if self._acknowledging:
                    self._transmit(b"+", 1.0)
                return payload
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._receive_some(remaining)

    def enable_notifications(self) -> None:
        """Have :meth:`receive` return notifications too; they begin with ``%``."""
        self._reader.notifying = True

    def stop_acknowledging(self) -> None:
        """Stop sending ``+``, after both ends have agreed."""
        self._acknowledging = False

    def _transmit(self, data: bytes, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(data)
        except BrokenPipeError as error:
            raise ProbeError("the GDB server closed the connection", self._advice) from error
        except OSError as error:
            raise ProbeError(f"the GDB server takes no more: {error}", self._advice) from error

    def _receive_some(self, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError as error:
            raise ProbeError(f"the connection to the GDB server broke: {error}", self._advice) from error
        if not data:
            raise ProbeError("the GDB server closed the connection", self._advice)
        self._reader.feed(data)
