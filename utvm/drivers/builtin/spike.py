# SPDX-License-Identifier: Apache-2.0
"""Spike, the RISC-V ISA simulator, where it is installed, behind OpenOCD."""

import shutil

from utvm.boards import Board, SpikePart
from utvm.drivers.connection import Connection
from utvm.drivers.driver import Driver, DriverOptions, ReachableBoard, Setup
from utvm.drivers.openocd import WORTH_MOVING_BY_BITBANG, start_openocd
from utvm.probe.debug_port import OpenOcdPort
from utvm.probe.spike import start_spike


def _simulator(board: Board) -> SpikePart:
    assert board.virtual.simulator
    return board.virtual.simulator


def _installed(board: Board) -> bool:
    return shutil.which(_simulator(board).program) is not None


def _find(board: Board, asked: DriverOptions) -> ReachableBoard | None:
    if asked.wish == "physical" or asked.serial or not _installed(board):
        return None
    simulator = _simulator(board)
    able = board.capabilities_with(simulator.lacks, "OpenOCD")

    def start(setup: Setup) -> Connection:
        spike = setup.stack.enter_context(start_spike(simulator, board.memory, setup.logs / "spike.log"))
        assert spike.health_match
        openocd, gdb = start_openocd(setup, board, [simulator.probe.format(port=spike.health_match["port"])])
        # Its serial line is on its own terminal, which it has not here.
        return Connection(
            board,
            "virtual",
            "VIRTUAL board, simulated by Spike",
            able,
            setup.logs,
            probe="JTAG over TCP",
            port=OpenOcdPort(gdb, live="memory while running" in able),
            services=(spike, openocd),
            emulated=True,
            worth_moving=WORTH_MOVING_BY_BITBANG,
        )

    return ReachableBoard(board, "virtual", able, "openocd", start)


def _tell(board: Board) -> tuple[str, str]:
    simulator = _simulator(board)
    found = "through OpenOCD" if _installed(board) else "not installed"
    return "simulated", f"by Spike: {simulator.program} --isa={simulator.isa}, {found}"


WAY = Driver(
    name="spike",
    rank=30,
    serves=lambda board: board.virtual.simulator is not None,
    find=_find,
    tell=_tell,
    refusal="is emulated: there is no physical one here",
)
