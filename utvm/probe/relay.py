# SPDX-License-Identifier: Apache-2.0
"""Relays between a GDB server and its client, for a user's debugger or for a device model.

A GDB server has one connection, held by this process. :class:`DoorRelay` passes it to other clients;
:class:`NeighbourRelay` runs a device model when the board's driver starts the device.
"""

import contextlib
import logging
import os
import select
import socket
import threading

from utvm.errors import UtvmError
from utvm.probe import gdb, packets
from utvm.virtual.wiring import ExternalModel

_LOG = logging.getLogger("utvm.probe.relay")
_BREAK = 0x03
_PACKET_TIMEOUT = 0.01  # Seconds to wait for the rest of a packet before polling the other connections.
_PATIENCE = 10.0  # Most seconds for the server to accept a packet.
_HALT_TIMEOUT = 2.0  # Seconds.
_STOPS = (b"T", b"S", b"W", b"X")
_GO = (b"c", b"s", b"C", b"S", b"D", b"vCont;")  # Packets that resume the core.
_STOPPED = b"T05thread:01;"
_PLACE = b"neighbour "  # Monitor command, followed by the function's address.
_LOGIC = b"logic "  # Monitor command, followed by a bitstream's name.


def place_command(address: int | None) -> str:
    """Return the monitor command that sets the address of the driver's function; None if there is none."""
    return f"{_PLACE.decode()}{-1 if address is None else address:x}"


def logic_command(bitstream: str) -> str:
    """Return the monitor command that programs the logic of the device model."""
    return f"{_LOGIC.decode()}{bitstream}"


class _Relay:
    """Forwards packets in a thread, for the length of a ``with`` block.

    The link to the server is in no-acknowledgment mode. The client's packets are always acknowledged: a client in
    that mode ignores it.
    """

    def __init__(self, link: packets.GdbLink) -> None:
        self._link = link
        self._client: socket.socket
        self._from_client = bytearray()
        self._running = False  # State of the core, inferred from the packets.
        self._ours, self._theirs = socket.socketpair()
        self._own = contextlib.ExitStack()

    def __enter__(self) -> "_Relay":
        thread = threading.Thread(target=self._work, name="relay", daemon=True)
        self._own.enter_context(self._theirs)
        thread.start()
        self._own.callback(thread.join)
        self._own.callback(self._ours.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._own.close()

    def _work(self) -> None:
        try:
            self._serve()
        except (UtvmError, OSError) as error:
            # The client detects the closed connection and gives a hint.
            _LOG.warning("%s", error)

    def _serve(self) -> None:
        raise NotImplementedError

    def _pass_on(self, client: socket.socket) -> None:
        self._client = client
        self._from_client.clear()
        with client:
            while True:
                sources = (client.fileno(), self._link.fileno(), self._theirs.fileno())
                ready, _, _ = select.select(sources, (), ())
                if self._theirs.fileno() in ready:
                    return
                if client.fileno() in ready:
                    data = client.recv(1 << 16)
                    if not data:
                        return
                    self._from_client += data
                    while (packet := self._next_packet()) is not None:
                        self._ask(packet)
                if self._link.fileno() in ready:
                    answer = self._link.receive(_PACKET_TIMEOUT)
                    while answer is not None:
                        self._answer(answer)
                        answer = self._link.receive(0.0)

    def _next_packet(self) -> bytes | None:
        """Return the next packet's payload, still escaped; handle a break at once."""
        pending = self._from_client
        while pending and pending[:1] != b"$":
            if pending.pop(0) == _BREAK and self._running:
                self._interrupt()
        end = pending.find(b"#")
        if end < 0 or len(pending) < end + 3:
            return None
        payload = bytes(pending[1:end])
        del pending[: end + 3]
        self._client.sendall(b"+")
        return payload

    def _interrupt(self) -> None:
        self._link.send_break()

    def _reply(self, payload: bytes) -> None:
        self._client.sendall(packets.encode(packets.escape(payload)))

    def _ask(self, packet: bytes) -> None:
        self._running = self._running or packet.startswith(_GO)
        self._link.send(packet, _PATIENCE)

    def _answer(self, packet: bytes) -> None:
        if self._running and packet.startswith(_STOPS):
            self._running = False
        self._reply(packet)


class DoorRelay(_Relay):
    """Serves one client of a listener after another on a server's only connection; its core is halted."""

    def __init__(self, link: packets.GdbLink, listener: socket.socket) -> None:
        super().__init__(link)
        self._listener = listener

    def _serve(self) -> None:
        self._listener.setblocking(False)
        while self._theirs not in select.select((self._listener, self._theirs), (), ())[0]:
            with contextlib.suppress(BlockingIOError):  # The listener rejected the client.
                client, _ = self._listener.accept()
                self._halt()
                self._pass_on(client)

    def _halt(self) -> None:
        if self._running:
            self._link.send_break()
            while (packet := self._link.receive(_HALT_TIMEOUT)) is not None and not packet.startswith(_STOPS):
                pass
            self._running = False


class NeighbourRelay(_Relay):
    """Forwards all packets between ``server``, which must be connected, and the client, but handles stops in the
    function of the device's driver.

    There, the device model reads and writes memory, and the core resumes. The client sees a board with the device.
    """

    def __init__(self, server: gdb.GdbClient, client: socket.socket, neighbour: ExternalModel) -> None:
        super().__init__(server.hand_over())
        self._server = server
        self._connection = client
        self._neighbour = neighbour
        self._place: int | None = None
        self._requested = False  # True after the client has requested a stop.

    def _serve(self) -> None:
        self._pass_on(self._connection)

    def _interrupt(self) -> None:
        self._requested = True
        super()._interrupt()

    def _ask(self, packet: bytes) -> None:
        """Forward a client's packet; before resuming at the function, run the model and skip the breakpoint."""
        request = bytes.fromhex(packet[6:].decode()) if packet.startswith(b"qRcmd,") else b""
        if request.startswith(_PLACE):
            self._watch(int(request[len(_PLACE) :], 16))
            self._reply(b"OK")
            return
        if packet == b"vCont?":
            self._reply(b"")  # GDB then uses c and s.
            return
        if request.startswith(_LOGIC):
            self._neighbour.program(os.fsdecode(request[len(_LOGIC) :]))
            self._reply(b"OK")
            return
        if packet[:1] in (b"c", b"s"):
            due = self._is_due()
            if due:
                self._attend()
            if due and packet[:1] == b"s":
                self._reply(_STOPPED)
                return
        super()._ask(packet)

    def _answer(self, packet: bytes) -> None:
        """Forward a reply, except for stops at the model's function."""
        if self._running and packet.startswith(_STOPS):
            if packet[:1] in (b"T", b"S") and not self._requested and self._is_due():
                self._attend()
                self._link.send(b"c", _PATIENCE)
                return
            self._requested = False
        super()._answer(packet)

    def _watch(self, place: int) -> None:
        self._server.clear_breakpoints()
        self._place = place if place >= 0 else None
        if self._place is not None:
            self._server.insert_breakpoint(self._place)

    def _is_due(self) -> bool:
        return self._place is not None and self._server.read_register("pc") == self._place

    def _attend(self) -> None:
        assert self._place is not None
        self._neighbour.serve(self._server)
        self._server.remove_breakpoint(self._place)
        self._server.step()
        self._server.insert_breakpoint(self._place)
