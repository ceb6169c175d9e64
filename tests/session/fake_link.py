# SPDX-License-Identifier: Apache-2.0
"""A fake link to a board, which answers MinRPC packets itself."""

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


def return_packet(*values: tuple[int, int | None]) -> bytes:
    packet = struct.pack("<ii", Code.RETURN, len(values))
    for index, value in values:
        packet += struct.pack("<i", index) + (b"" if value is None else struct.pack("<q", value))
    return packet


class FakeLink:
    """A session with a fake board that has a few functions. A handle is a function's number, from 1."""

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
            # i32 code, i32 one argument, i32 type; the name is at the end, in any encoding of strings.
            handles = [n for n, name in enumerate(FUNCTIONS, 1) if packet.endswith(name.encode())]
            return return_packet((POINTER, handles[0])) if handles else return_packet((TypeIndex.NONE, None))
        if code != Code.CALL:
            return return_packet((TypeIndex.NONE, None))
        handle, _count = struct.unpack_from("<Qi", packet, 4)
        return self.call(FUNCTIONS[handle - 1], packet[16:], timeout)

    def call(self, name: str, arguments: bytes, timeout: float) -> bytes:
        if name == "test.add_one":
            index, value = struct.unpack("<iq", arguments)
            assert index == TypeIndex.INTEGER
            return return_packet((TypeIndex.INTEGER, TypeIndex.INTEGER), (TypeIndex.INTEGER, value + 1))
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


class FakeBoard:
    """A fake board: it makes links, or raises the errors that a test sets."""

    def __init__(self) -> None:
        self.links: list[FakeLink] = []
        self.restarts = 0
        self.restart_error: TransportError | None = None
        self.connect_error: TransportError | None = None
        self.lines: list[str] = []

    def connect(self) -> FakeLink:
        if self.connect_error:
            raise self.connect_error
        return self._link()

    def restart(self) -> FakeLink:
        self.restarts += 1
        if self.restart_error:
            raise self.restart_error
        self.connect_error = None
        return self._link()

    def _link(self) -> FakeLink:
        # One board: a session may begin only after the one before it has ended or broken.
        self.links.append(FakeLink())
        return self.links[-1]

    def log(self, line: str) -> None:
        self.lines.append(line)


@contextmanager
def serving(bridge: Bridge) -> Iterator[Bridge]:
    """Serve a bridge in a thread, and check that the thread ends."""
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


def make_bridge(board: FakeBoard, **options: object) -> Bridge:
    factory: Callable[..., Bridge] = Bridge
    return factory(board.connect, board.restart, **{"key": KEY, "packet_limit": LIMIT, "log": board.log, **options})
