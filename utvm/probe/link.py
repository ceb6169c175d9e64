# SPDX-License-Identifier: Apache-2.0
"""A connection to a GDB server: requests out, replies in, every wait with a timeout."""

import logging
import socket
import time

from utvm.base.log.setup import Shown
from utvm.errors import ProbeError
from utvm.probe.packets import PacketError, PacketReader, encode

_BREAK = b"\x03"
_LOG = logging.getLogger("utvm.probe.gdb")


class GdbLink:
    """The wire under :class:`utvm.probe.gdb.GdbClient`.

    Args:
        host: where the server is.
        port: its TCP port.
        timeout: seconds until the connection must stand.
        advice: what the user can do when the server does not do its part.
    """

    def __init__(self, host: str, port: int, timeout: float, advice: str) -> None:
        self._advice = advice
        self._peer = f"{host}:{port}"
        self._reader = PacketReader()
        self._acknowledging = True
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise ProbeError(f"no GDB server at {self._peer}: {error}", self._advice) from error
        _LOG.info("connected to %s", self._peer)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        """Return the socket's number, to wait for it beside others."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, payload: bytes, timeout: float) -> None:
        """Send a packet; binary data in it is escaped already."""
        if _LOG.isEnabledFor(logging.DEBUG):
            _LOG.debug("-> %s", Shown(payload))
        self._transmit(encode(payload), timeout)

    def send_break(self) -> None:
        """Send the interrupt byte, which halts a running target."""
        _LOG.debug("-> (interrupt)")
        self._transmit(_BREAK, 1.0)

    def receive(self, timeout: float) -> bytes | None:
        """Return the next packet's payload, or None when none comes within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                payload = self._reader.next_packet()
            except PacketError as error:
                raise ProbeError(f"the GDB server at {self._peer} sent garbage: {error}", self._advice) from error
            if payload is not None:
                if _LOG.isEnabledFor(logging.DEBUG):
                    _LOG.debug("<- %s", Shown(payload))
                if self._acknowledging:
                    self._transmit(b"+", 1.0)
                return payload
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            self._receive_some(remaining)

    def hear_notifications(self) -> None:
        """Have :meth:`receive` return notifications too: ``%`` and what they say."""
        self._reader.notifying = True

    def stop_acknowledging(self) -> None:
        """Send no more ``+``: both ends agreed on it."""
        self._acknowledging = False

    def _transmit(self, data: bytes, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(data)
        except OSError as error:
            raise ProbeError(f"the GDB server at {self._peer} takes no more: {error}", self._advice) from error

    def _receive_some(self, timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError as error:
            raise ProbeError(
                f"the connection to the GDB server at {self._peer} broke: {error}", self._advice
            ) from error
        if not data:
            raise ProbeError(f"the GDB server at {self._peer} closed the connection", self._advice)
        self._reader.feed(data)
