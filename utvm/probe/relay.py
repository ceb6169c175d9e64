# SPDX-License-Identifier: Apache-2.0
"""Relays between a GDB server and its client: for a debugger of the user's, or for a model of a device.

A server of ours has one connection, which we hold. :class:`DoorRelay` lets others have the session after us;
:class:`NeighbourRelay` has a model work where the board's driver starts its device.
"""

import contextlib
import logging
import os
import select
import socket
import threading

from utvm.errors import UtvmError
from utvm.probe.gdb import GdbClient
from utvm.probe.packets import GdbLink, encode, escape
from utvm.virtual.wiring import ExternalModel

_LOG = logging.getLogger("utvm.probe.relay")
_BREAK = 0x03
_PART = 0.01  # Seconds that the rest of a packet is waited for, before others are looked at.
_PATIENCE = 10.0  # Seconds that the server takes for a packet at most.
_HALT_TIMEOUT = 2.0  # Seconds.
_STOPS = (b"T", b"S", b"W", b"X")
_GO = (b"c", b"s", b"C", b"S", b"D", b"vCont;")  # What lets the core run.
_STOPPED = b"T05thread:01;"
_PLACE = b"neighbour "  # A monitor command: what follows is the function's address.
_LOGIC = b"logic "  # Another one: a bitstream's name follows.


def place_command(address: int | None) -> str:
    """Return the monitor command that says where the driver's function is; None if there is none."""
    return f"{_PLACE.decode()}{-1 if address is None else address:x}"


def logic_command(bitstream: str) -> str:
    """Return the monitor command that programs the logic in which the neighbour is."""
    return f"{_LOGIC.decode()}{bitstream}"


class _Relay:
    """Passes packets on in a thread, for the length of a ``with`` block.

    The server is spoken to without acknowledgements, as we have agreed with it. The client's packets are
    acknowledged here, whether it has agreed or not: one that has passes over that.

    Args:
        link: connection to the server.
    """

    def __init__(self, link: GdbLink) -> None:
        self._link = link
        self._client: socket.socket
        self._from_client = bytearray()
        self._running = False  # The core, as far as the packets tell.
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
            # The client sees a connection that breaks, and says what to do.
            _LOG.warning("%s", error)

    def _serve(self) -> None:
        raise NotImplementedError

    def _pass_on(self, client: socket.socket) -> None:
        self._client = client
        self._from_client.clear()
        with client:
            while True:
                ends = (client.fileno(), self._link.fileno(), self._theirs.fileno())
                ready, _, _ = select.select(ends, (), ())
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
                    answer = self._link.receive(_PART)
                    while answer is not None:
                        self._answer(answer)
                        answer = self._link.receive(0.0)

    def _next_packet(self) -> bytes | None:
        """Return the next packet's payload, escaped as it came; a break is done at once."""
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
        self._client.sendall(encode(escape(payload)))

    def _ask(self, packet: bytes) -> None:
        self._running = self._running or packet.startswith(_GO)
        self._link.send(packet, _PATIENCE)

    def _answer(self, packet: bytes) -> None:
        if self._running and packet.startswith(_STOPS):
            self._running = False
        self._reply(packet)


class DoorRelay(_Relay):
    """Lets clients have a server whose one connection is ours, one after the other.

    Args:
        link: connection to the server, whose core stands still.
        listener: where clients connect.
    """

    def __init__(self, link: GdbLink, listener: socket.socket) -> None:
        super().__init__(link)
        self._listener = listener

    def _serve(self) -> None:
        self._listener.setblocking(False)
        while self._theirs not in select.select((self._listener, self._theirs), (), ())[0]:
            with contextlib.suppress(BlockingIOError):  # It was somebody whom the listener refuses.
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
    """Passes everything on as it comes, but for stops in one function.

    The model reads and writes memory there, and the core goes on. So a client sees a board with that device,
    whatever it does with it.

    Args:
        server: connection to the server, ready for use.
        client: our end of the client's connection.
        neighbour: who works when the core stands in its function.
    """

    def __init__(self, server: GdbClient, client: socket.socket, neighbour: ExternalModel) -> None:
        super().__init__(server.hand_over())
        self._server = server
        self._connection = client
        self._neighbour = neighbour
        self._place: int | None = None
        self._wanted = False  # The client has asked for a stop.

    def _serve(self) -> None:
        self._pass_on(self._connection)

    def _interrupt(self) -> None:
        self._wanted = True
        super()._interrupt()

    def _ask(self, packet: bytes) -> None:
        """Pass a client's packet on; what lets the core run begins behind the function where that is due."""
        asked = bytes.fromhex(packet[6:].decode()) if packet.startswith(b"qRcmd,") else b""
        if asked.startswith(_PLACE):
            self._watch(int(asked[len(_PLACE) :], 16))
            self._reply(b"OK")
            return
        if packet == b"vCont?":
            self._reply(b"")  # GDB then says c and s
            return
        if asked.startswith(_LOGIC):
            self._neighbour.program(os.fsdecode(asked[len(_LOGIC) :]))
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
        """Pass an answer on, but for a stop that is the neighbour's."""
        if self._running and packet.startswith(_STOPS):
            if packet[:1] in (b"T", b"S") and not self._wanted and self._is_due():
                self._attend()
                self._link.send(b"c", _PATIENCE)
                return
            self._wanted = False
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
