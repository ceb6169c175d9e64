# SPDX-License-Identifier: Apache-2.0
"""The pipes on the virtual board, through OpenOCD: behaviour that a session alone does not show."""

import os
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from hil_tests.programs import handwritten
from utvm import boards
from utvm.boards.parts import Timeouts
from utvm.drivers import Connection, attach
from utvm.errors import BoardError, ProbeError, TransportError
from utvm.firmware import Firmware, build
from utvm.probe.openocd import OpenOcd
from utvm.runtime import Pipe
from utvm.session.fault import DeviceFault
from utvm.session.pipes import open_pipe
from utvm.session.rpc import RpcSession, start_rpc

pytestmark = pytest.mark.slow

_BEGIN = struct.pack("<iQ", 2, 5) + b"0.8.0" + struct.pack("<i", 0)
_DOUBLER = handwritten("doubler", "  y[0] = 2 * x[0];\n  return 0;")
_ID = b"SEGGER RTT"
_LOGGED = "".join(chr(ord("a") + index % 26) for index in range(1500))
_TALKER = handwritten(
    "talker",
    "  static char words[1500];\n"
    "  for (int place = 0; place < 1500; place++) {\n"
    "    words[place] = (char)('a' + place % 26);\n"
    "  }\n"
    "  utvm_link_log(words, 1500u);\n"
    "  __builtin_trap();",
    "void utvm_link_log(const char *words, uint32_t length);",
)


@pytest.fixture(scope="module")
def module_connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    board = boards.load("stm32f746")
    with attach(board, "virtual", log_directory=tmp_path_factory.mktemp("logs")) as connection:
        yield connection


@pytest.fixture
def connection(module_connection: Connection) -> Iterator[Connection]:
    yield module_connection
    module_connection.clear_breakpoints()


def firmware(connection: Connection, pipe: Pipe) -> Firmware:
    return build(connection.board, [_DOUBLER], "rpc", pipe=pipe)


def test_rtt_control_block_is_complete_before_its_id(connection: Connection) -> None:
    image = firmware(connection, "rtt")
    connection.program(image)
    block = image.symbols["utvm_rtt"]
    connection.reset(halt=True)
    connection.write_memory(block, bytes(16))
    connection.gdb.insert_watchpoint(block, 1, "write")
    try:
        for _ in range(4):  # Start-up code clears it, then its letters are written.
            connection.gdb.resume()
            assert connection.gdb.wait_for_stop(30.0)
            if connection.read_memory(block, 1) != b"\0":
                break
    finally:
        connection.gdb.remove_watchpoint(block, 1, "write")
    fields = struct.unpack("<10s6x2i12I", connection.read_memory(block, 72))
    identity, ups, downs, *rings = fields
    assert (identity, ups, downs) == (_ID, 1, 1)
    for _name, address, size, written, read, flags in (rings[:6], rings[6:]):
        assert connection.read_memory(address, size) == bytes(size)
        assert (written, read, flags) == (0, 0, 2)


def openocd_of(connection: Connection) -> OpenOcd:
    (openocd,) = (service for service in connection.services if isinstance(service, OpenOcd))
    return openocd


def listening_ports(connection: Connection) -> set[int]:
    """Return the TCP ports on which the connection's OpenOCD listens."""
    sockets = psutil.Process(openocd_of(connection).pid).net_connections()
    return {item.laddr.port for item in sockets if item.status == psutil.CONN_LISTEN}


def test_rtt_has_no_open_port_and_starts_again(connection: Connection) -> None:
    image = firmware(connection, "rtt")
    for _ in range(2):
        with start_rpc(connection, image) as server:
            server.connect().request(_BEGIN, 60.0)
            assert listening_ports(connection) == set()


def test_end_of_openocd_ends_rtt(tmp_path: Path) -> None:
    with (
        pytest.raises(ProbeError),  # its server cannot be stopped
        attach(boards.load("stm32f746"), "virtual", log_directory=tmp_path) as connection,
        open_pipe(connection, firmware(connection, "rtt")) as wire,
    ):
        os.kill(openocd_of(connection).pid, signal.SIGKILL)
        with pytest.raises(TransportError, match="closed the connection"):
            wire.transport.read(60.0)
        with pytest.raises(TransportError, match="broke"):
            wire.transport.write(b"x")


def test_stale_rtt_buffers_are_ignored_after_reset(connection: Connection) -> None:
    image = firmware(connection, "rtt")
    original = connection.board
    with open_pipe(connection, image) as wire:
        connection.program(image)
        wire.restart()
        connection.insert_breakpoint(image.symbols["utvm_start"])  # before memory is cleared
        connection.board = original.model_copy(update={"timeouts": Timeouts(start=0.2)})
        try:
            with pytest.raises(BoardError, match=r"no RTT buffers .* 0\.2 s"):
                wire.restart()
        finally:
            connection.board = original


def test_board_waiting_in_semihosting_blocks_nothing(connection: Connection) -> None:
    image = firmware(connection, "semihosting")
    with start_rpc(connection, image) as server:
        for begin in (server.connect, server.restart, server.restart):
            begin().request(_BEGIN, 60.0)
            assert connection.read_memory(image.symbols["utvm_programs"], 4) != bytes(4)
            connection.check()


def test_semihosting_read_keeps_its_time_limit(connection: Connection) -> None:
    image = firmware(connection, "semihosting")
    with open_pipe(connection, image) as wire:
        connection.program(image)
        wire.restart()
        output = b""
        while b"is up" not in output:
            output += wire.transport.read(10.0)
        begin = time.monotonic()
        assert wire.transport.read(0.3) == b""
        assert 0.3 <= time.monotonic() - begin < 5.0


def test_stop_that_is_no_semihosting_call_is_an_error(connection: Connection) -> None:
    image = firmware(connection, "semihosting")
    with start_rpc(connection, image) as server:
        link = server.connect()
        address = image.symbols["utvm_server_answer"]
        connection.insert_breakpoint(address)
        with pytest.raises(TransportError, match=f"stopped at {address:#010x}, and not for a semihosting call"):
            link.request(_BEGIN, 60.0)


def test_data_sent_before_a_fault_arrives_completely(connection: Connection) -> None:
    image = build(connection.board, [_TALKER], "rpc", pipe="console")
    messages: list[str] = []
    with start_rpc(connection, image, messages.append) as server, RpcSession(server, [_TALKER]) as session:
        with pytest.raises(DeviceFault, match="undefined instruction"):
            session.run("talker", [np.zeros(4, np.int32)])
        assert messages[-1] == _LOGGED
