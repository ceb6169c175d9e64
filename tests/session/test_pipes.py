# SPDX-License-Identifier: Apache-2.0
"""The pipes on the virtual board, through the real OpenOCD: what a conversation alone does not show."""

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
_LOGGED = "".join(chr(ord("a") + place % 26) for place in range(1500))
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
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    board = boards.load("stm32f746")
    with attach(board, "virtual", log_directory=tmp_path_factory.mktemp("logs")) as bench:
        yield bench


@pytest.fixture
def bench(attached: Connection) -> Iterator[Connection]:
    yield attached
    attached.clear_breakpoints()


def firmware(bench: Connection, pipe: Pipe) -> Firmware:
    return build(bench.board, [_DOUBLER], "rpc", pipe=pipe)


def test_rtt_control_block_is_complete_before_its_id(bench: Connection) -> None:
    image = firmware(bench, "rtt")
    bench.program(image)
    block = image.symbols["utvm_rtt"]
    bench.reset(halt=True)
    bench.write_memory(block, bytes(16))
    bench.gdb.insert_watchpoint(block, 1, "write")
    try:
        for _ in range(4):  # Start-up code clears it, then its letters come.
            bench.gdb.resume()
            assert bench.gdb.wait_for_stop(30.0)
            if bench.read_memory(block, 1) != b"\0":
                break
    finally:
        bench.gdb.remove_watchpoint(block, 1, "write")
    words = struct.unpack("<10s6x2i12I", bench.read_memory(block, 72))
    identity, ups, downs, *rings = words
    assert (identity, ups, downs) == (_ID, 1, 1)
    for _name, where, size, came_in, went_out, flags in (rings[:6], rings[6:]):
        assert bench.read_memory(where, size) == bytes(size)
        assert (came_in, went_out, flags) == (0, 0, 2)


def openocd_of(bench: Connection) -> OpenOcd:
    (openocd,) = (service for service in bench._services if isinstance(service, OpenOcd))
    return openocd


def listening(bench: Connection) -> set[int]:
    """Return the TCP ports that the bench's OpenOCD listens on."""
    connections = psutil.Process(openocd_of(bench).pid).net_connections()
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_rtt_listens_nowhere_and_begins_again(bench: Connection) -> None:
    image = firmware(bench, "rtt")
    for _ in range(2):
        with start_rpc(bench, image) as ready:
            ready.connect().request(_BEGIN, 60.0)
            assert listening(bench) == set()


def test_an_openocd_that_dies_ends_rtt(tmp_path: Path) -> None:
    with (
        pytest.raises(ProbeError),  # its server cannot be stopped any more
        attach(boards.load("stm32f746"), "virtual", log_directory=tmp_path) as bench,
        open_pipe(bench, firmware(bench, "rtt")) as wire,
    ):
        os.kill(openocd_of(bench).pid, signal.SIGKILL)
        with pytest.raises(TransportError, match="closed the connection"):
            wire.transport.read(60.0)
        with pytest.raises(TransportError, match="broke"):
            wire.transport.write(b"x")


def test_stale_rtt_buffers_are_ignored_after_reset(bench: Connection) -> None:
    image = firmware(bench, "rtt")
    usual = bench.board
    with open_pipe(bench, image) as wire:
        bench.program(image)
        wire.restart()
        bench.insert_breakpoint(image.symbols["utvm_start"])  # before memory is cleared
        bench.board = usual.model_copy(update={"timeouts": Timeouts(start=0.2)})
        try:
            with pytest.raises(BoardError, match=r"no RTT buffers .* 0\.2 s"):
                wire.restart()
        finally:
            bench.board = usual


def test_board_waiting_in_semihosting_blocks_nobody(bench: Connection) -> None:
    image = firmware(bench, "semihosting")
    with start_rpc(bench, image) as ready:
        for begin in (ready.connect, ready.restart, ready.restart):
            begin().request(_BEGIN, 60.0)
            assert bench.read_memory(image.symbols["utvm_programs"], 4) != bytes(4)
            bench.check()


def test_a_semihosting_read_takes_no_longer_than_asked(bench: Connection) -> None:
    image = firmware(bench, "semihosting")
    with open_pipe(bench, image) as wire:
        bench.program(image)
        wire.restart()
        said = b""
        while b"is up" not in said:
            said += wire.transport.read(10.0)
        begin = time.monotonic()
        assert wire.transport.read(0.3) == b""
        assert 0.3 <= time.monotonic() - begin < 5.0


def test_a_stop_that_is_no_semihosting_call_is_told(bench: Connection) -> None:
    image = firmware(bench, "semihosting")
    with start_rpc(bench, image) as ready:
        link = ready.connect()
        where = image.symbols["utvm_server_answer"]
        bench.insert_breakpoint(where)
        with pytest.raises(TransportError, match=f"stopped at {where:#010x}, and not for a semihosting call"):
            link.request(_BEGIN, 60.0)


def test_what_was_being_sent_when_a_fault_came_arrives_whole(bench: Connection) -> None:
    image = build(bench.board, [_TALKER], "rpc", pipe="console")
    logged: list[str] = []
    with start_rpc(bench, image, logged.append) as ready, RpcSession(ready, [_TALKER]) as session:
        with pytest.raises(DeviceFault, match="undefined instruction"):
            session.run("talker", [np.zeros(4, np.int32)])
        assert logged[-1] == _LOGGED
