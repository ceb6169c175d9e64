# SPDX-License-Identifier: Apache-2.0
"""QEMU: a board with a debug port."""

import socket

from utvm.boards import Board, bitstream, parts
from utvm.drivers import connection, driver
from utvm.probe import debug_port, relay
from utvm.probe.gdb import GdbClient
from utvm.probe.qemu import Qemu, QemuClient
from utvm.selection import BoardSelection
from utvm.virtual.wiring import ExternalModel


def _emulator(board: Board) -> parts.Emulator:
    assert board.virtual.emulator
    return board.virtual.emulator


def _neighbour_of(board: Board) -> ExternalModel | None:
    """The model of a board's accelerator, which QEMU lacks."""
    factory = None
    if board.accelerator:
        from utvm.boards.accelerators import accelerator_of  # It imports the compiler.

        factory = accelerator_of(board).neighbour
    return (
        factory([(region.address, region.size) for region in board.memory if region.kind == "ram"])
        if factory
        else None
    )


def _find(board: Board, selection: BoardSelection) -> driver.ReachableBoard | None:
    if selection.kind == "physical" or selection.serial:
        return None
    emulator = _emulator(board)
    able = board.capabilities_with(board.virtual.lacking, None)

    def start(setup: driver.Setup) -> connection.Connection:
        neighbour = _neighbour_of(board)
        qemu = setup.stack.enter_context(Qemu(emulator, log=setup.logs / "qemu.log"))
        kind = board.cpu_row.breakpoint_kind
        client: type[GdbClient] = QemuClient
        channel = qemu.gdb
        if neighbour:
            neighbour.program(bitstream.loaded_bitstream(board))
            behind = setup.stack.enter_context(GdbClient(channel, advice=qemu.advice, breakpoint_kind=kind))
            channel, theirs = socket.socketpair()
            setup.stack.enter_context(channel)
            setup.stack.enter_context(relay.NeighbourRelay(behind, theirs, neighbour))
            client = GdbClient
        gdb = setup.stack.enter_context(client(channel, advice=qemu.advice, breakpoint_kind=kind))
        return connection.Connection(
            board,
            "virtual",
            f"VIRTUAL board, emulated by QEMU ({emulator.machine})"
            + (f", with a model of {', '.join(board.accelerator)} beside it" if neighbour else ""),
            able,
            setup.logs,
            probe="QEMU's GDB stub without OpenOCD",
            port=debug_port.QemuPort(gdb, live=False, attended=neighbour.symbol if neighbour else ""),
            console=driver.open_console(setup, board, qemu.console),
            services=(qemu,),
            emulated=True,
        )

    return driver.ReachableBoard(board, driver.BoardIdentity(board.full_name, "virtual"), able, "qemu", start)


def _describe(board: Board) -> tuple[str, str]:
    emulator = _emulator(board)
    return "emulated", f"by QEMU: {emulator.program} -M {emulator.machine}; no OpenOCD"


DRIVER = driver.Driver(
    name="qemu",
    rank=40,
    supports=lambda board: board.virtual.emulator is not None,
    find=_find,
    describe=_describe,
    refusal="is emulated: there is no physical one here",
)
