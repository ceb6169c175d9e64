# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a link to a board, for what is in front of it: it answers MinRPC packets itself."""

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from utvm.errors import TransportError
from utvm.session.bridge import Bridge
from utvm.session.link import BoardFaulted
from utvm.session.minrpc import Code, TypeIndex, exception_packet

POINTER = 4  # tvm-ffi's type index of a handle
KEY = "stand-in"
LIMIT = 4096

FUNCTIONS = ("test.add_one", "test.refuse", "test.fault", "test.hang")


def returned(*values: tuple[int, int | None]) -> bytes:
    packet = struct.pack("<ii", Code.RETURN, len(values))
    for index, value in values:
        packet += struct.pack("<i", index) + (b"" if value is None else struct.pack("<q", value))
    return packet


class AnswersByHand:
    """A session with a board that has a few functions. A handle is a function's number, from 1."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.terminated = False
        self.aborted = threading.Event()
        self.hanging = threading.Event()

    def request(self, packet: bytes, timeout: float) -> bytes:
        assert not self.terminated
        self.packets.append(packet)
        (code,) = struct.unpack_from("<i", packet)
        if code == Code.GET_FUNCTION:
            # i32 code, i32 one argument, i32 type; the name is at the end however strings are passed.
            found = [n for n, name in enumerate(FUNCTIONS, 1) if packet.endswith(name.encode())]
            return returned((POINTER, found[0])) if found else returned((TypeIndex.NONE, None))
        if code != Code.CALL:
            return returned((TypeIndex.NONE, None))
        handle, _count = struct.unpack_from("<Qi", packet, 4)
        return self.call(FUNCTIONS[handle - 1], packet[16:], timeout)

    def call(self, name: str, arguments: bytes, timeout: float) -> bytes:
        if name == "test.add_one":
            index, value = struct.unpack("<iq", arguments)
            assert index == TypeIndex.INTEGER
            return returned((TypeIndex.INTEGER, TypeIndex.INTEGER), (TypeIndex.INTEGER, value + 1))
        if name == "test.refuse":
            return exception_packet("the model refuses: café")
        if name == "test.fault":
            raise BoardFaulted(b"record")
        self.hanging.set()
        self.aborted.wait(timeout)
        raise TransportError("given up" if self.aborted.is_set() else f"no answer within {timeout:g} s")

    def terminate(self) -> None:
        self.terminated = True

    def abort(self) -> None:
        self.aborted.set()


class Bench:
    """Makes links, and can be made to fail at it."""

    def __init__(self) -> None:
        self.links: list[AnswersByHand] = []
        self.restarts = 0
        self.dead: TransportError | None = None
        self.deaf: TransportError | None = None
        self.lines: list[str] = []

    def connect(self) -> AnswersByHand:
        if self.deaf:
            raise self.deaf
        return self._link()

    def restart(self) -> AnswersByHand:
        self.restarts += 1
        if self.dead:
            raise self.dead
        self.deaf = None
        return self._link()

    def _link(self) -> AnswersByHand:
        # One board: a session may begin only when the one before it is over or broken.
        self.links.append(AnswersByHand())
        return self.links[-1]

    def log(self, line: str) -> None:
        self.lines.append(line)


@contextmanager
def serving(bridge: Bridge) -> Iterator[Bridge]:
    """Have a thread serve a bridge, and see that it ends."""
    errors: list[BaseException] = []

    def serve() -> None:
        try:
            bridge.serve()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield bridge
    finally:
        bridge.stop()
        thread.join(60)
        assert not thread.is_alive()
        assert not errors, errors


def make_bridge(connection: Bench, **options: object) -> Bridge:
    factory: Callable[..., Bridge] = Bridge
    return factory(
        connection.connect, connection.restart, **{"key": KEY, "packet_limit": LIMIT, "log": connection.log, **options}
    )
