# SPDX-License-Identifier: Apache-2.0
"""QEMU, which is board and debug port in one."""

from utvm.boards import Board, Emulator
from utvm.drivers.bitstream_memory import loaded_bitstream
from utvm.drivers.connection import Connection
from utvm.drivers.driver import Driver, DriverOptions, ReachableBoard, Setup
from utvm.drivers.openocd import open_console
from utvm.probe.debug_port import QemuPort
from utvm.probe.gdb import GdbClient
from utvm.probe.qemu import Qemu, QemuClient
from utvm.probe.relay import Relay
from utvm.virtual.neighbour import Neighbour


def _emulator(board: Board) -> Emulator:
    assert board.virtual.emulator
    return board.virtual.emulator


def _neighbour_of(board: Board) -> Neighbour | None:
    """Return what stands for the accelerator of a board that has one: QEMU knows none."""
    made = None
    if board.accelerator:
        from utvm.boards.accelerators import accelerator_of  # It brings the compiler's own words.

        made = accelerator_of(board).neighbour
    return (
        made([(region.address, region.size) for region in board.memory if region.kind == "ram"]) if made else None
    )


def _find(board: Board, asked: DriverOptions) -> ReachableBoard | None:
    if asked.wish == "physical" or asked.serial:
        return None
    emulator = _emulator(board)
    able = board.capabilities_with(board.virtual.lacking, None)

    def start(setup: Setup) -> Connection:
        neighbour = _neighbour_of(board)
        at = 0 if neighbour else setup.gdb_port
        qemu = setup.stack.enter_context(Qemu(emulator, log=setup.logs / "qemu.log", port=at))
        kind = board.cpu_row.breakpoint_kind
        port = qemu.gdb_port
        if neighbour:
            neighbour.program(loaded_bitstream(board))
            relay = Relay(port, neighbour, advice=qemu.advice, breakpoint_kind=kind, at=setup.gdb_port)
            port = setup.stack.enter_context(relay).port
        client = GdbClient if neighbour else QemuClient
        gdb = setup.stack.enter_context(client("127.0.0.1", port, advice=qemu.advice, breakpoint_kind=kind))
        return Connection(
            board,
            "virtual",
            f"VIRTUAL board, emulated by QEMU ({emulator.machine})"
            + (f", with a model of {', '.join(board.accelerator)} beside it" if neighbour else ""),
            able,
            setup.logs,
            probe="QEMU's GDB stub without OpenOCD",
            port=QemuPort(
                gdb,
                live=False,
                attended=neighbour.symbol if neighbour else "",
            ),
            console=open_console(setup, board, f"socket://127.0.0.1:{qemu.console_port}"),
            services=(qemu,),
            emulated=True,
        )

    return ReachableBoard(board, "virtual", able, "qemu", start)


def _tell(board: Board) -> tuple[str, str]:
    emulator = _emulator(board)
    return "emulated", f"by QEMU: {emulator.program} -M {emulator.machine}; no OpenOCD"


WAY = Driver(
    name="qemu",
    rank=40,
    serves=lambda board: board.virtual.emulator is not None,
    find=_find,
    tell=_tell,
    refusal="is emulated: there is no physical one here",
)
