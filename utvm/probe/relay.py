# SPDX-License-Identifier: Apache-2.0
"""A GDB server that stands before another one, and has a model work where the board's driver starts its device.

Everything is passed on as it comes, but for stops in one function: the model reads and writes memory there, and
the core goes on. So a client sees a board with that device, whatever it does with it.
"""

import contextlib
import logging
import select
import socket
import threading
from collections.abc import Iterator
from types import TracebackType

from utvm.errors import ProbeError, UtvmError
from utvm.probe.gdb import GdbClient
from utvm.probe.packets import encode, escape
from utvm.virtual.neighbour import Neighbour

_LOG = logging.getLogger("utvm.probe.relay")
_BREAK = 0x03
_PART = 0.01  # Seconds that the rest of a packet is waited for, before others are looked at.
_STOPPED = b"T05thread:01;"
_PLACE = b"neighbour "  # A monitor command: what follows is the function's address.
_LOGIC = b"logic "  # Another one: a bitstream's name follows.


def place_command(address: int | None) -> str:
    """Return the monitor command that says where the driver's function is; None if there is none."""
    return f"{_PLACE.decode()}{-1 if address is None else address:x}"


def logic_command(bitstream: str) -> str:
    """Return the monitor command that programs the logic in which the neighbour is."""
    return f"{_LOGIC.decode()}{bitstream}"


class _Server(GdbClient):
    """The server behind: what it is asked by us, and what is passed on."""

    def fileno(self) -> int:
        return self._wire.fileno()

    def pass_on(self, packet: bytes) -> None:
        self._wire.send(packet, self._timeout)

    def come(self) -> Iterator[bytes]:
        """Give what is here: the rest of a packet is waited for, but not for long."""
        packet = self._wire.receive(_PART)
        while packet is not None:
            yield packet
            packet = self._wire.receive(0.0)


class Relay:
    """A server for the length of a ``with`` block; clients come one after the other.

    Args:
        port: of the server behind, on this computer.
        neighbour: who works when the core stands in its function.
        advice: as that of :class:`GdbClient`.
        at: TCP port that clients connect to; by default any free one.
    """

    def __init__(self, port: int, neighbour: Neighbour, *, advice: str, breakpoint_kind: int, at: int = 0) -> None:
        self._server = _Server("127.0.0.1", port, advice=advice, breakpoint_kind=breakpoint_kind)
        self._neighbour = neighbour
        self._at = at
        self._place: int | None = None
        self._running = False
        self._wanted = False  # The client has asked for a stop.
        self._from_client = bytearray()
        self._own = contextlib.ExitStack()

    def __enter__(self) -> "Relay":
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._server)
            try:
                self._listening = stack.enter_context(socket.create_server(("127.0.0.1", self._at)))
            except OSError as error:
                raise ProbeError(
                    f"TCP port {self._at} cannot be served: {error.strerror}", "choose another one"
                ) from error
            ours, self._theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(self._theirs)
            thread = threading.Thread(target=self._serve, name="relay", daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(ours.close)
            self._own = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own.close()

    @property
    def port(self) -> int:
        """TCP port that a client connects to."""
        return int(self._listening.getsockname()[1])

    def _serve(self) -> None:
        """Pass on until the server behind has gone, or the ``with`` block ends."""
        try:
            while self._theirs not in select.select((self._listening, self._theirs), (), ())[0]:
                self._client, _ = self._listening.accept()
                with self._client:
                    self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._from_client.clear()
                    self._pass_on()
        except (UtvmError, OSError) as error:
            # The client sees a connection that breaks, and says what to do.
            _LOG.warning("%s", error)

    def _pass_on(self) -> None:
        while True:
            ends = (self._client.fileno(), self._server.fileno(), self._theirs.fileno())
            ready, _, _ = select.select(ends, (), ())
            if self._theirs.fileno() in ready:
                return
            if self._client.fileno() in ready:
                data = self._client.recv(1 << 16)
                if not data:
                    return
                self._from_client += data
                for packet in iter(self._next_packet, None):
                    self._ask(packet)
            if self._server.fileno() in ready:
                for answer in self._server.come():
                    self._answer(answer)

    def _next_packet(self) -> bytes | None:
        """Return the next packet's payload, escaped as it came; a break is done at once."""
        pending = self._from_client
        while pending and pending[:1] != b"$":
            if pending.pop(0) == _BREAK and self._running:
                self._wanted = True
                self._server.interrupt()
        end = pending.find(b"#")
        if end < 0 or len(pending) < end + 3:
            return None
        payload = bytes(pending[1:end])
        del pending[: end + 3]
        self._client.sendall(b"+")
        return payload

    def _reply(self, payload: bytes) -> None:
        self._client.sendall(encode(escape(payload)))

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
            self._neighbour.program(asked[len(_LOGIC) :].decode())
            self._reply(b"OK")
            return
        if packet[:1] in (b"c", b"s"):
            due = self._is_due()
            if due:
                self._attend()
            if due and packet[:1] == b"s":
                self._reply(_STOPPED)
                return
            self._running = True
        self._server.pass_on(packet)

    def _answer(self, packet: bytes) -> None:
        """Pass an answer on, but for a stop that is the neighbour's."""
        if self._running and packet[:1] in (b"T", b"S", b"W", b"X"):
            self._running = False
            if packet[:1] in (b"T", b"S") and not self._wanted and self._is_due():
                self._attend()
                self._running = True
                self._server.pass_on(b"c")
                return
            self._wanted = False
        self._reply(packet)

    def _watch(self, place: int) -> None:
        self._server.clear_breakpoints()
        self._place = place if place >= 0 else None
        if self._place is not None:
            self._server.insert_breakpoint(self._place)

    def _is_due(self) -> bool:
        return self._place is not None and self._server.read_register("pc") == self._place

    def _attend(self) -> None:
        """Have the neighbour work, and leave its function's first instruction behind."""
        assert self._place is not None
        self._neighbour.attend(self._server)
        self._server.remove_breakpoint(self._place)
        self._server.step()
        self._server.insert_breakpoint(self._place)
