# SPDX-License-Identifier: Apache-2.0
"""State of a debug port after a refused request, with a scripted server."""

import pytest
from fake_gdb_server import FakeGdbServer

from utvm.errors import BoardError
from utvm.probe.debug_port import OpenOcdPort, QemuPort
from utvm.probe.gdb import GdbClient
from utvm.probe.packets import encode

_REFUSED = [encode(b"E0e")]


def test_halted_core_resumes_when_a_read_is_refused() -> None:
    def reply(request: bytes) -> list[bytes] | None:
        if request == b"\x03":
            return [encode(b"T02thread:01;")]
        if request.startswith(b"m"):
            return _REFUSED
        return [] if request == b"c" else None

    with FakeGdbServer(reply) as server, GdbClient(server.connect(), timeout=5.0) as gdb:
        port = OpenOcdPort(gdb, live=False)
        gdb.resume()
        with pytest.raises(BoardError), port.access():
            gdb.read_memory(0x4000_0000, 4)
        assert gdb.running
        # A halted core stays halted.
        assert port.halt()
        with pytest.raises(BoardError), port.access():
            gdb.read_memory(0x4000_0000, 4)
        assert not gdb.running


def test_qemu_survives_a_refused_physical_write() -> None:
    def reply(request: bytes) -> list[bytes] | None:
        if request.startswith(b"Qqemu.PhyMemMode:"):
            return [encode(b"OK")]
        return _REFUSED if request[:1] in (b"X", b"M") else None

    with FakeGdbServer(reply) as server, GdbClient(server.connect(), timeout=5.0) as gdb:
        with pytest.raises(BoardError):
            QemuPort(gdb, live=False).write_word(0xF800_0008, 0xDF0D)
        modes = [request for request in server.requests if request.startswith(b"Qqemu")]
    assert modes == [b"Qqemu.PhyMemMode:1", b"Qqemu.PhyMemMode:0"]
