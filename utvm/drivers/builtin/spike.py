# SPDX-License-Identifier: Apache-2.0
"""Spike, the RISC-V ISA simulator, if installed, behind OpenOCD."""

import shutil

from utvm.base.text.quoting import tcl
from utvm.boards import Board
from utvm.boards.parts import SpikePart
from utvm.drivers import connection, driver
from utvm.probe.debug_port import OpenOcdPort
from utvm.probe.spike import beside, can_be_private, start_spike
from utvm.selection import BoardSelection


def _simulator(board: Board) -> SpikePart:
    assert board.virtual.simulator
    return board.virtual.simulator


def _is_installed(board: Board) -> bool:
    return shutil.which(_simulator(board).program) is not None


def _find(board: Board, selection: BoardSelection) -> driver.ReachableBoard | None:
    if selection.kind == "physical" or selection.serial or not _is_installed(board):
        return None
    simulator = _simulator(board)
    caps = board.capabilities_with(simulator.lacks, "OpenOCD")

    def start(setup: driver.Setup) -> connection.Connection:
        private = can_be_private()
        if not private:
            setup.say("other users of this computer can reach Spike's port: network namespaces are not available here")
        spike = setup.stack.enter_context(
            start_spike(simulator, board.memory, setup.logs / "spike.log", private=private)
        )
        assert spike.health_match
        select = simulator.probe.format(port=tcl(spike.health_match["port"]))
        openocd, gdb = driver.start_openocd(setup, board, [select], within=beside(spike) if private else ())
        # Its serial line would be on its terminal, which is not available here.
        return connection.Connection(
            board,
            "virtual",
            "VIRTUAL board, simulated by Spike",
            caps,
            setup.logs,
            probe="JTAG over TCP",
            port=OpenOcdPort(gdb, live="memory while running" in caps),
            services=(spike, openocd),
            emulated=True,
            worth_moving=driver.WORTH_MOVING_BY_BITBANG,
        )

    return driver.ReachableBoard(board, driver.BoardIdentity(board.full_name, "virtual"), caps, "openocd", start)


def _describe(board: Board) -> tuple[str, str]:
    simulator = _simulator(board)
    state = "through OpenOCD" if _is_installed(board) else "not installed"
    return "simulated", f"by Spike: {simulator.program} --isa={simulator.isa}, {state}"


DRIVER = driver.Driver(
    name="spike",
    rank=30,
    supports=lambda board: board.virtual.simulator is not None,
    find=_find,
    describe=_describe,
    refusal="is emulated: there is no physical one here",
)
