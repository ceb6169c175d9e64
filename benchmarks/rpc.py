# SPDX-License-Identifier: Apache-2.0
"""Measures RPC: round trips, bytes a second, a run's overhead against the debug port's, and code size.

In one run:

- on the process that replaces a board, and on the virtual STM32F746 through each of its pipes: the round trip of a
  call of an empty function, and the speed of copies to and from the board;
- on the virtual STM32F746 behind a probe as slow as a real ST-Link (2 ms a command): samples of the int8 digits
  model through the debug port and over RPC on the serial line. The bytes' time on that line is added, as a virtual
  line takes no time;
- flash of the STM32F746's images with a model that does nothing.

Run: ``.venv/bin/python benchmarks/rpc.py``. Ends with 1 if a target is missed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import seen
from hil_tests.programs import handwritten
from models.digits import quantize
from models.digits.data import held_out
from utvm import boards, compiler, firmware, runtime
from utvm.boards import Board
from utvm.compiler import Tensor
from utvm.drivers import Connection, attach
from utvm.session import HostDriven, Session
from utvm.session.rpc import RpcSession, start_rpc

EMPTY = "tvm.rpc.server.GetCRTMaxPacketSize"
BLOCK = Tensor("block", (32768,), "uint8")
SAMPLES = 10
LATENCY_US = 2000
BITS_PER_BYTE = 10  # on the line: start, eight, stop
FASTER_BY = 5.0
RPC_CODE_BYTES = 12 * 1024
ALONE_CODE_BYTES = 4 * 1024
_IDLE = handwritten("idle", "  return 0;")


@dataclass(frozen=True)
class PipeSpeed:
    """A pipe and its figures: milliseconds of a round trip (median), KiB/s to and from the board."""

    name: str
    round_trip_ms: float
    up: float
    down: float


def measure_pipe(name: str, session: RpcSession) -> PipeSpeed:
    """Time a pipe. The first call, which looks the function up, is not counted."""
    session.call(EMPTY)
    trips = []
    for _ in range(50):
        begin = time.perf_counter()
        session.call(EMPTY)
        trips.append(time.perf_counter() - begin)
    address = session.allocate(BLOCK)
    data = np.random.default_rng(0).integers(0, 256, BLOCK.size_bytes, np.uint8).tobytes()
    begin = time.perf_counter()
    session.write(BLOCK, address, data)
    middle = time.perf_counter()
    if session.read(BLOCK, address) != data:
        raise RuntimeError(f"{name}: the bytes that came back are others")
    end = time.perf_counter()
    kib = BLOCK.size_bytes / 1024
    return PipeSpeed(name, 1000 * statistics.median(trips), kib / (middle - begin), kib / (end - middle))


@contextmanager
def open_board(board: Board, folder: Path, latency_us: int = 0) -> Iterator[Connection]:
    """Open the virtual board."""
    with attach(board, "virtual", log_directory=folder, latency_us=latency_us) as connection:
        yield connection


def seconds_a_sample(session: Session, model: str) -> float:
    """Return the median of some samples. The first one, which loads the model, is not counted."""
    seconds = []
    for picture in quantize.quantized_images(held_out()[0][: SAMPLES + 1]):
        begin = time.perf_counter()
        session.run(model, [picture[np.newaxis]])
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[1:])


def compare_with_the_debug_port(board: Board, folder: Path) -> dict[str, float]:
    """Run the same samples through the debug port and over RPC, behind a slow probe."""
    library = compiler.compile_model(compiler.load(quantize.MODEL), target=board.target)
    with open_board(board, folder, LATENCY_US) as connection:
        with HostDriven(connection, firmware.build(board, [library])) as driven:
            through_probe = seconds_a_sample(driven, library.name)
        connection.clear_breakpoints()
        image = firmware.build(board, [library], "rpc")
        with start_rpc(connection, image) as server, RpcSession(server, [library]) as session:
            over_rpc = seconds_a_sample(session, library.name)
            assert session.link is not None
            earlier = session.link.bytes_sent + session.link.bytes_received
            seconds_a_sample(session, library.name)
            sent = session.link.bytes_sent + session.link.bytes_received - earlier
    line = sent / (SAMPLES + 1) * BITS_PER_BYTE / board.console.baud
    return {
        "debug_port_ms": 1000 * through_probe,
        "rpc_ms": 1000 * over_rpc,
        "serial_line_ms": 1000 * line,
        "ratio": through_probe / (over_rpc + line),
    }


def measure_pipes(board: Board, folder: Path) -> list[PipeSpeed]:
    """Time each pipe of the process and of the virtual board."""
    host, speeds = boards.load("host"), []
    for pipe in runtime.pipes("host"):
        program = firmware.build(host, [_IDLE], "rpc", pipe=pipe)
        with (
            attach(host, log_directory=folder) as connection,
            start_rpc(connection, program) as server,
            RpcSession(server, [_IDLE]) as session,
        ):
            speeds.append(measure_pipe(f"host: {pipe}", session))
    with open_board(board, folder) as connection:
        for pipe in runtime.pipes("cortex_m"):
            image = firmware.build(board, [_IDLE], "rpc", pipe=pipe)
            with start_rpc(connection, image) as server, RpcSession(server, [_IDLE]) as session:
                speeds.append(measure_pipe(f"VIRTUAL stm32f746: {pipe}", session))
    return speeds


def main() -> int:
    """Measure, print, and compare with the targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    board = boards.load("stm32f746")
    with tempfile.TemporaryDirectory() as name:
        speeds = measure_pipes(board, Path(name))
        compared = compare_with_the_debug_port(board, Path(name))
    rpc = firmware.build(board, [_IDLE], "rpc").shares
    zeros = [np.zeros(tensor.shape, tensor.dtype) for tensor in _IDLE.inputs]
    standalone = firmware.build(board, [_IDLE], "standing_alone", zeros).shares
    table = Table("pipe", box=None)
    for heading in ("round trip, ms", "KiB/s to the board", "KiB/s from it"):
        table.add_column(heading, justify="right")
    for speed in speeds:
        table.add_row(speed.name, f"{speed.round_trip_ms:.2f}", f"{speed.up:,.0f}", f"{speed.down:,.0f}")
    out = Console(highlight=False)
    out.print(table)
    out.print(
        f"one sample of digits_int8 with a probe of {LATENCY_US} us a command: "
        f"debug port {compared['debug_port_ms']:.1f} ms, "
        f"RPC {compared['rpc_ms']:.1f} ms and {compared['serial_line_ms']:.1f} ms of serial line: "
        f"{compared['ratio']:.1f} times faster"
    )
    for name, shares in (("with RPC", rpc), ("standing alone", standalone)):
        out.print(
            f"flash without a model, {name}: runtime and C library {shares.runtime:,} B, "
            f"the board's port and interrupt table {shares.board:,} B"
        )
    seen.keep(
        "rpc",
        {
            "round_trip_ms": {
                speed.name.removeprefix("VIRTUAL stm32f746: "): round(speed.round_trip_ms, 2) for speed in speeds
            },
            "sample": {name: round(value, 1) for name, value in compared.items()},
            "flash": {"rpc": asdict(rpc), "standing_alone": asdict(standalone)},
        },
    )
    missed_targets = [
        target
        for target, met in {
            f"RPC at least {FASTER_BY:g} times faster a sample": compared["ratio"] >= FASTER_BY,
            f"runtime with RPC below {RPC_CODE_BYTES:,} B": rpc.runtime < RPC_CODE_BYTES,
            f"runtime standing alone below {ALONE_CODE_BYTES:,} B": standalone.runtime < ALONE_CODE_BYTES,
        }.items()
        if not met
    ]
    for target in missed_targets:
        out.print(f"missed: {target}")
    return 1 if missed_targets else 0


if __name__ == "__main__":
    sys.exit(main())
